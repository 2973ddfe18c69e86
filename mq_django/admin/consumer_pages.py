"""The page of all consumers, and asking them to go quiet or to stop."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.ui import filter_form, text
from mq_django.admin.ui.live import LiveParts, LiveRows
from mq_django.admin.ui.page import OPERATE, SEE_DATA, VIEW, Page, confirm, needs, sections
from mq_django.admin.ui.text import bar
from mq_django.core.jsontext import LAST_MS, whole
from mq_django.core.partitions import public_name
from mq_django.core.stacks import Stack, Stacks
from mq_django.core.texts import escape
from mq_django.inspector import actions, processes

PARTS = ("unconsumed",)

#: The most supervisors on the page, live ones first, and the most running messages per consumer.
MAX_SHOWN, MAX_RUNNING = 100, 5
#: Queues that are listed; of more there is the number, with a link.
MAX_QUEUES, MAX_ALONE = 5, 20


@needs(VIEW)
def consumers(page: Page) -> HttpResponse:
    """Show all consumers and their running messages."""
    context = _context(page)
    live = _live(page, context).context()
    return page.render("consumers", _("Consumers"), live_url=page.url("consumers_stats"), live=live, **context)


@needs(VIEW)
def stats(page: Page) -> HttpResponse:
    """Return the live parts of the page."""
    return page.shared("consumers", lambda: _live(page, _context(page))).response(page.request)


def _live(page: Page, context: dict[str, Any]) -> LiveParts:
    return page.live(PARTS, context, {"supervisors": LiveRows.of("supervisor", context["supervisors"], "id")})


@needs(VIEW, OPERATE)
def quiet(page: Page, who: str) -> HttpResponse:
    """Ask a consumer, or all consumers of a supervisor, to stop fetching."""
    return _ask(page, who, "quiet")


@needs(VIEW, OPERATE)
def stop(page: Page, who: str) -> HttpResponse:
    """Ask a consumer, or all consumers of a supervisor, to stop when their running handlers have finished."""
    return _ask(page, who, "stop")


def _ask(page: Page, who: str, what: processes.Ask) -> HttpResponse:
    asked = _consumer(who)
    if not page.is_confirmed:
        return _confirm(page, asked, what)
    queues = processes.ask(asked, what)
    name = escape(asked)[:200]
    if not queues:
        return _gone(page, asked)
    said = {
        "quiet": _("“%(name)s” was asked to go quiet. It stops fetching within a few seconds."),
        "stop": _("“%(name)s” was asked to stop. It ends when its running handlers have finished."),
    }
    page.say(messages.SUCCESS, said[what] % {"name": name})
    for queue in queues:
        page.log(queue, f"Asked {name} to {'go quiet' if what == 'quiet' else 'stop'}")
    return HttpResponseRedirect(page.url("consumers"))


def _gone(page: Page, who: str) -> HttpResponse:
    return page.leave(page.url("consumers"), _("“%(name)s” is gone: it has stopped.") % {"name": escape(who)[:200]})


def _confirm(page: Page, asked: str, what: processes.Ask) -> HttpResponse:
    found = processes.everybody(asked)
    selected = [
        process
        for supervisor in found.supervisors
        for process in supervisor.processes
        if asked in (process.id, supervisor.id)
    ]
    supervisors = [one.id for one in found.supervisors if one.id == asked and one.housekeeping]
    if not selected and not supervisors:
        return _gone(page, asked)
    count, running = len(selected) or len(supervisors), sum(len(process.running) for process in selected)
    titles = {
        "quiet": ngettext("Quiet %(count)s consumer?", "Quiet %(count)s consumers?", count),
        "stop": ngettext("Stop %(count)s consumer?", "Stop %(count)s consumers?", count)
        if selected
        else _("Stop this supervisor?"),
    }
    sentences = {
        "quiet": _(
            "It stops fetching, finishes the messages it holds, and cannot be resumed, only stopped. Messages "
            "that are being handled now: %(running)s."
        ),
        "stop": _(
            "Its running handlers get the grace time to finish. Other messages it holds return to the queue. It is not "
            "replaced. When the last consumer of a runconsumer has stopped, runconsumer ends as well, and your process "
            "manager may restart it. Messages that are being handled now: %(running)s."
        ),
    }
    words = {"quiet": _("Yes, quiet it"), "stop": _("Yes, stop it")}
    names = [process.id for process in selected] or supervisors
    return confirm(
        page,
        "",
        titles[what] % {"count": text.number(count)},
        sentences[what] % {"running": text.number(running)},
        words[what],
        tab="consumers",
        listed=[text.visible(name, limit=160) for name in names],
        back_url=page.url("consumers"),
        dangerous=what == "stop",
    )


def _context(page: Page) -> dict[str, Any]:
    found = processes.everybody()
    return {
        "tabs": sections(page, "consumers"),
        "summary": _summary(found),
        "supervisors": [_supervisor(page, found, one) for one in found.supervisors[:MAX_SHOWN]],
        "unlisted": text.beyond(len(found.supervisors), MAX_SHOWN),
        "left_out": text.number(found.left_out) if found.left_out else "",
        "alone": [{"name": name, "url": page.queue_url(name)} for name in found.alone[:MAX_ALONE]],
        "more_alone": text.beyond(len(found.alone), MAX_ALONE),
    }


def _summary(found: processes.Everybody) -> str:
    alive = [one for one in found.supervisors if one.alive]
    count = sum(len(one.processes) for one in alive)
    if not count:
        return _("No consumer is running.")
    said = ngettext("%(count)s consumer is running.", "%(count)s consumers are running.", count) % {
        "count": text.number(count)
    }
    gone = len(found.supervisors) - len(alive)
    if not gone:
        return said
    lost = ngettext("%(count)s supervisor is gone.", "%(count)s supervisors are gone.", gone)
    return f"{said} {lost % {'count': text.number(gone)}}"


def _supervisor(page: Page, found: processes.Everybody, one: processes.SupervisorView) -> dict[str, Any]:
    seen = one.seen_ms_ago
    return {
        "id": text.visible(one.id, limit=160),
        "host": text.visible(one.host, limit=80),
        "version": text.visible(one.version, limit=40),
        # Of those that are alive this would only change with every poll.
        "seen": "" if seen is None or one.alive else _("%(time)s ago") % {"time": text.duration(seen)},
        "alive": one.alive,
        "can_operate": page.can(OPERATE),
        "is_asked": all(asked == "stop" for asked in [process.asked for process in one.processes] or [one.asked]),
        "is_quiet": all(process.asked for process in one.processes),
        "quiet_url": page.url("quiet", text.to_url(one.id.encode())),
        "stop_url": page.url("stop", text.to_url(one.id.encode())),
        "has_many": len(one.processes) > 1,
        "housekeeping": [{"name": name, "url": page.queue_url(name)} for name in one.housekeeping],
        "processes": [_process(page, found, one, process) for process in one.processes],
    }


def _process(
    page: Page, found: processes.Everybody, supervisor: processes.SupervisorView, one: processes.ProcessView
) -> dict[str, Any]:
    return {
        "id": text.visible(one.id, limit=160),
        "state": _state(supervisor, one),
        "alive": supervisor.alive,
        "pid": "" if one.pid is None else str(one.pid),
        "threads": text.slots(one.busy, one.threads),
        "coroutines": text.number(one.coroutines) if one.coroutines else "",
        "since": text.moment(one.since_ms, now=found.now_ms),
        **_queues(page, one),
        "running": [_running(page, item) for item in one.running[:MAX_RUNNING]],
        "more": text.beyond(len(one.running), MAX_RUNNING),
        "handled": text.number(one.handled),
        "failed": text.number(one.failed),
        "has_failed": one.failed > 0,
        "stacks_url": page.url("stacks", text.to_url(one.id.encode())),
        "quiet_url": "" if one.asked else page.url("quiet", text.to_url(one.id.encode())),
        "stop_url": "" if one.asked == "stop" else page.url("stop", text.to_url(one.id.encode())),
    }


def _queues(page: Page, one: processes.ProcessView) -> dict[str, Any]:
    count = len(one.queues)
    if count <= MAX_QUEUES:
        return {"queues": [{"name": name, "url": page.queue_url(name)} for name in one.queues]}
    return {
        "all_queues": ngettext("%(count)s queue", "%(count)s queues", count) % {"count": text.number(count)},
        "queues_url": f"{page.url('changelist')}?{urlencode({'of': one.id})}",
    }


def _state(supervisor: processes.SupervisorView, one: processes.ProcessView) -> str:
    if not supervisor.alive:
        return _("gone")
    if one.state == "stopping":
        return _("stopping")
    if one.asked == "stop":
        return _("asked to stop")
    if one.state == "quiet":
        return _("quiet")
    return _("asked to go quiet") if one.asked else _("running")


def _running(page: Page, item: processes.RunningMessage) -> dict[str, Any]:
    return {
        "name": text.visible(item.message.name, limit=80),
        "id": text.visible(item.message.id, limit=80),
        "queue": item.queue,
        "time": text.duration(item.ms),
        "progress": bar(item.progress, can_see_data=page.can(SEE_DATA)),
        **_links(page, item),
    }


# The page that shows where each handler of a consumer is.

#: Seconds to wait for an answer in the request. A later one is shown by a poll.
WAIT = 0.5

STACK_PARTS = ("stacks",)

#: The most characters of a stack: no frame of one that a consumer sends is cut off.
LONGEST = 100_000

#: By queue and id: what a consumer runs by the last heartbeat.
Known = Mapping[tuple[str, str], processes.RunningMessage]


@needs(VIEW)
def stacks(page: Page, who: str) -> HttpResponse:
    """Ask a consumer for its stacks, and show them."""
    consumer = _consumer(who)
    found = processes.find_process(consumer)
    request = None if found is None else processes.ask_for_stacks(consumer, found[1].queues)
    if found is None or request is None:
        return _gone(page, consumer)
    _supervisor, process = found
    answer = processes.read_answer(request, seconds=WAIT)
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
        live=page.live(STACK_PARTS, context).context(),
        **context,
    )


@needs(VIEW)
def stack_stats(page: Page, who: str) -> HttpResponse:
    """Return the live parts of the page: nothing until the consumer has answered."""
    consumer, asked = _consumer(who), whole(page.request.GET.get("asked", ""), LAST_MS)
    request = processes.StackRequest(consumer=consumer, queue=page.request.GET.get("queue", ""), asked_ms=asked or 0)
    answer = None if asked is None else processes.read_answer(request)
    found = None if answer is None else processes.find_process(consumer)
    if answer is None or found is None:
        # What the browser shows stays: answers are kept for a minute only.
        return LiveParts("", {}).response(page.request)
    return page.parts(STACK_PARTS, _answered(page, found[1], answer))


def _consumer(who: str) -> str:
    return text.from_url(who).decode(errors="replace")


def _unanswered(page: Page, process: processes.ProcessView) -> dict[str, Any]:
    return {
        "summary": _("The consumer has not answered yet."),
        "is_answered": False,
        "running": [_message(page, item) for item in process.running],
    }


def _answered(page: Page, process: processes.ProcessView, answer: Stacks) -> dict[str, Any]:
    count = answer.handlers
    summary = ngettext("%(count)s handler is running.", "%(count)s handlers are running.", count)
    known = {(public_name(item.queue), item.message.id): item for item in process.running}
    return {
        "summary": summary % {"count": text.number(count)} if count else _("It runs nothing."),
        "is_answered": True,
        "stacks": [_stack(page, one, known) for one in answer.stacks],
        "more": text.number(answer.more) if answer.more else "",
    }


def stack_anchor(message_id: str) -> str:
    """Return the part of the page of stacks that is about the handler of a message."""
    return f"handler-{text.to_url(message_id.encode(errors='replace'))}"


def _stack(page: Page, one: Stack, known: Known) -> dict[str, Any]:
    item = known.get((public_name(one.queue), one.id))
    kinds = {"thread": _("thread"), "coroutine": _("coroutine")}
    titles = {
        "task": _("A task on the event loop that no handler awaits"),
        "sync": _("What a coroutine runs in another thread, with sync_to_async"),
    }
    return {
        "title": titles.get(one.kind, ""),
        "anchor": stack_anchor(one.id) if one.id and one.kind in kinds else "",
        "name": text.visible(one.name or one.id, limit=80),
        "id": text.visible(one.id, limit=160),
        "queue": text.visible(one.queue, limit=160),
        "kind": kinds.get(one.kind, ""),
        "time": text.duration(one.ms),
        "frames": text.visible("\n".join(_frames(one, with_code=page.can(SEE_DATA))), limit=LONGEST, lines=True),
        "has_frames": bool(one.frames),
        **(_links(page, item) if item is not None else {}),
    }


def _message(page: Page, item: processes.RunningMessage) -> dict[str, Any]:
    message = item.message
    name, queue = text.visible(message.name or message.id, limit=80), text.visible(item.queue, limit=160)
    return {"name": name, "queue": queue, "time": text.duration(item.ms), **_links(page, item)}


def _links(page: Page, item: processes.RunningMessage) -> dict[str, str]:
    where = item.queue, item.message.state, filter_form.handle(page, item.message)
    can_cancel = page.can(OPERATE) and actions.can_cancel_running(item.queue)
    return {"url": page.url("message", *where), "cancel_url": page.url("cancel", *where) if can_cancel else ""}


def _frames(one: Stack, *, with_code: bool) -> Iterator[str]:
    """Yield the lines of a stack in the form of a traceback."""
    if one.left_out:
        left_out = ngettext(
            "… %(count)s outer frame is left out", "… %(count)s outer frames are left out", one.left_out
        )
        yield left_out % {"count": text.number(one.left_out)}
    for frame in one.frames:
        yield f'File "{frame.file}", line {frame.line}, in {frame.function}'
        if with_code and frame.code:
            yield f"    {frame.code}"
    if one.others:
        others = ngettext(
            "… and %(count)s more task that it awaits at the same time",
            "… and %(count)s more tasks that it awaits at the same time",
            one.others,
        )
        yield others % {"count": text.number(one.others)}
