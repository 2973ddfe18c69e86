"""The page that shows where each handler of a consumer is."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.ui import text
from mq_django.admin.ui.live import LiveParts
from mq_django.admin.ui.page import OPERATE, SEE_DATA, VIEW, Page, needs
from mq_django.admin.ui.tabs import sections
from mq_django.core.numbers import LAST_MS, whole
from mq_django.core.partitions import public_name
from mq_django.core.stacks import Stack, Stacks
from mq_django.core.visible import escape
from mq_django.inspector import actions
from mq_django.inspector.processes import ProcessView, RunningMessage
from mq_django.inspector.stack_views import StackRequest, ask_for_stacks, find_process, read_answer

#: Seconds to wait for an answer in the request. A later one is shown by a poll.
WAIT = 0.5

PARTS = ("stacks",)

#: The most characters of a stack: no frame of one that a consumer sends is cut off.
LONGEST = 100_000

#: By queue and id: what a consumer runs by the last heartbeat.
Known = Mapping[tuple[str, str], RunningMessage]


@needs(VIEW)
def stacks(page: Page, who: str) -> HttpResponse:
    """Ask a consumer for its stacks, and show them."""
    consumer = _consumer(who)
    found = find_process(consumer)
    request = None if found is None else ask_for_stacks(consumer, found[1].queues)
    if found is None or request is None:
        page.say(messages.WARNING, _("“%(name)s” is gone: it has stopped.") % {"name": escape(consumer)[:200]})
        return HttpResponseRedirect(page.url("consumers"))
    _supervisor, process = found
    answer = read_answer(request, seconds=WAIT)
    if answer is None:
        context = _unanswered(page, process)
        again = urlencode({"queue": request.queue, "asked": request.asked_ms})
        context["live_url"] = f"{page.url('stacks_stats', who)}?{again}"
    else:
        context = _answered(page, process, answer)
    return page.render(
        "stacks",
        _("Stacks"),
        tabs=sections(page, "consumers"),
        consumer=text.visible(consumer, limit=160),
        again_url=page.url("stacks", who),
        live=page.live(PARTS, context).context(),
        **context,
    )


@needs(VIEW)
def stats(page: Page, who: str) -> HttpResponse:
    """Return the live parts of the page: nothing until the consumer has answered."""
    consumer, asked = _consumer(who), whole(page.request.GET.get("asked", ""), LAST_MS)
    request = StackRequest(consumer=consumer, queue=page.request.GET.get("queue", ""), asked_ms=asked or 0)
    answer = None if asked is None else read_answer(request)
    found = None if answer is None else find_process(consumer)
    if answer is None or found is None:
        # What the browser shows stays: answers are kept for a minute only.
        return LiveParts("", {}).response(page.request)
    return page.parts(PARTS, _answered(page, found[1], answer))


def _consumer(who: str) -> str:
    return text.from_url(who).decode(errors="replace")


def _unanswered(page: Page, process: ProcessView) -> dict[str, Any]:
    return {
        "summary": _("The consumer has not answered yet."),
        "is_answered": False,
        "running": [_message(page, item) for item in process.running],
    }


def _answered(page: Page, process: ProcessView, answer: Stacks) -> dict[str, Any]:
    count = answer.handlers
    summary = ngettext("%(count)s handler is running.", "%(count)s handlers are running.", count)
    known = {(public_name(item.queue), item.entry.message.id): item for item in process.running}
    return {
        "summary": summary % {"count": text.number(count)} if count else _("It runs nothing."),
        "is_answered": True,
        "stacks": [_stack(page, one, known) for one in answer.stacks],
        "more": text.number(answer.more) if answer.more else "",
    }


def _stack(page: Page, one: Stack, known: Known) -> dict[str, Any]:
    item = known.get((public_name(one.queue), one.id))
    kinds = {"thread": _("thread"), "coroutine": _("coroutine")}
    titles = {
        "task": _("A task on the event loop that no handler awaits"),
        "sync": _("What a coroutine runs in another thread, with sync_to_async"),
    }
    return {
        "title": titles.get(one.kind, ""),
        "name": text.visible(one.name or one.id, limit=80),
        "id": text.visible(one.id, limit=160),
        "queue": text.visible(one.queue, limit=160),
        "kind": kinds.get(one.kind, ""),
        "time": text.duration(one.ms),
        "frames": text.visible("\n".join(_frames(one, with_code=page.can(SEE_DATA))), limit=LONGEST, lines=True),
        "has_frames": bool(one.frames),
        **(_links(page, item) if item is not None else {}),
    }


def _message(page: Page, item: RunningMessage) -> dict[str, Any]:
    message = item.entry.message
    name, queue = text.visible(message.name or message.id, limit=80), text.visible(item.queue, limit=160)
    return {"name": name, "queue": queue, "time": text.duration(item.ms), **_links(page, item)}


def _links(page: Page, item: RunningMessage) -> dict[str, str]:
    where = item.queue, item.entry.source, text.to_url(item.entry.entry)
    can_cancel = page.can(OPERATE) and actions.can_cancel_running(item.queue)
    return {"url": page.url("entry", *where), "cancel_url": page.url("cancel_running", *where) if can_cancel else ""}


def _frames(one: Stack, *, with_code: bool) -> Iterator[str]:
    """Yield the lines of a stack in the form of a traceback."""
    if one.left_out:
        yield _("… %(count)s outer frames are left out") % {"count": text.number(one.left_out)}
    for frame in one.frames:
        yield f'File "{frame.file}", line {frame.line}, in {frame.function}'
        if with_code and frame.code:
            yield f"    {frame.code}"
    if one.others:
        yield _("… and %(count)s more tasks that it awaits at the same time") % {"count": text.number(one.others)}
