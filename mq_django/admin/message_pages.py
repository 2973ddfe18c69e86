"""The pages of ready and pending messages."""

from collections.abc import Callable
from typing import Any, get_args

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseRedirect
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from mq_django.admin.message_rows import facts, listed
from mq_django.admin.ui import filter_form, references, text
from mq_django.admin.ui.confirm import CONFIRMED, confirm
from mq_django.admin.ui.filter_form import MAX_TEXT, found_at_once, handled_url
from mq_django.admin.ui.job_pages import job_line
from mq_django.admin.ui.page import OPERATE, SEE_DATA, VIEW, Page, needs, sections, sentence_of, tabs
from mq_django.admin.ui.text import bar_of
from mq_django.conf import get_config
from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.core.texts import escape
from mq_django.inspector import actions, explain, message_lists
from mq_django.inspector.dead_letters import DeadLetterView
from mq_django.inspector.explain import why
from mq_django.inspector.message_lists import HandledView, find_handled, get_handled, keeps_handled, look_among_handled
from mq_django.inspector.message_views import EntrySource, EntryView, WaitingView
from mq_django.inspector.queues import queue as look_at
from mq_django.inspector.queues import quick_stats
from mq_django.inspector.readers import Ended
from mq_django.inspector.running_messages import RunTimes, run_time, run_times
from mq_django.inspector.stream_reader import Scanned
from mq_django.inspector.whereabouts import FoundMessageIn, Whereabouts, find_everywhere

# Cancel a message that is ready or being handled.

#: The form field that asks for the replacement of the process.
FORCE = "force"


def source_of(word: str) -> EntrySource:
    """Return the source of a message in a URL, or raise Http404."""
    for source in get_args(EntrySource):
        if word == source:
            found: EntrySource = source
            return found
    raise Http404


@needs(VIEW, OPERATE)
def cancel_running(page: Page, name: str, source: str, entry: str) -> HttpResponse:
    """Cancel a message that is ready or being handled, after confirmation."""
    view = (
        message_lists.get(name, source_of(source), text.from_url(entry)) if actions.can_cancel_running(name) else None
    )
    if view is None:
        page.say(messages.WARNING, _("The message is no longer here: it was handled, retried or deleted."))
        return HttpResponseRedirect(page.url("ready", name))
    back_url = page.url("entry", name, source, entry)
    if page.request.method != "POST" or CONFIRMED not in page.request.POST:
        return _confirm(page, name, view, back_url)
    message_id, force = view.message.id, page.request.POST.get(FORCE) == "yes"
    outcome = actions.cancel(name, [message_id.encode()], running=True, force=force)
    if outcome.error is not None:
        page.say(messages.ERROR, sentence_of(outcome.error))
        return HttpResponseRedirect(back_url)
    page.say(
        messages.SUCCESS,
        _("Its consumer was asked to cancel the message. It is told within a second.")
        if outcome.asked
        else _("The message was cancelled."),
    )
    how = ", and to replace its process if needed" if force else ""
    page.log(name, f"Asked to cancel the running message {escape(message_id)[:200]}{how}")
    return HttpResponseRedirect(page.url("pending" if view.consumer else "ready", name))


def _confirm(page: Page, name: str, view: EntryView, back_url: str) -> HttpResponse:
    force = {
        "name": FORCE,
        "is_box": True,
        "label": _("Replace its process if it goes on"),
        "help": _(
            "For a handler that ignores the interrupt, or waits where Python cannot interrupt it. Other messages of "
            "the process may finish within the grace time, or return to the queue without a counted attempt."
        ),
    }
    stacks_url = page.url("stacks", text.to_url(view.consumer.encode(errors="replace")))
    return confirm(
        page,
        name,
        _("Cancel this message?"),
        tab="pending" if view.consumer else "ready",
        sentence=_(
            "If its handler runs, it is interrupted where it is: its transaction is rolled back, and what it has done "
            "outside of it stays. If it has not started, it never will. The message is deleted."
        ),
        button=_("Yes, cancel it"),
        act_url=page.request.path,
        back_url=back_url,
        listed=[text.visible(f"{view.message.name} {view.message.id}", limit=200)],
        dangerous=True,
        inputs=[force] if view.consumer else [],
        look=(_("See where its handler is"), stacks_url) if view.consumer else None,
    )


# The pages of ready and pending messages.

#: Messages per page.
PER_PAGE = 50

TITLES = {"ready": gettext_lazy("Ready messages"), "pending": gettext_lazy("Pending messages")}


@needs(VIEW)
def ready(page: Page, name: str) -> HttpResponse:
    """Show a page of the ready messages, in the order of delivery."""
    return _listing(page, name, "ready", message_lists.ready)


@needs(VIEW)
def pending(page: Page, name: str) -> HttpResponse:
    """Show a page of the pending messages."""
    return _listing(page, name, "pending", message_lists.pending)


def _listing(page: Page, name: str, place: str, read: Callable[..., Scanned[EntryView]]) -> HttpResponse:
    message_id, after = page.request.GET.get("id", "").strip(), page.request.GET.get("after", "")
    if message_id and not after:
        url = found_at_once(page, name, message_id)
        if url:
            return HttpResponseRedirect(url)
    found = read(name, filter_form.criteria(page, message_id), after=after, limit=PER_PAGE)
    view = quick_stats(name)
    times = run_times(view) if place == "pending" else {}
    return page.render(
        "entries",
        str(TITLES[place]),
        queue=name,
        place=place,
        tabs=tabs(page, name, place, view),
        rows=[_row(page, name, row, times) for row in found.rows],
        purge_url="" if message_id else page.url("act_on_all", name, "ready", "delete") + filter_form.query(page),
        **(job_line(page, name, "ready") if place == "ready" else {}),
        **filter_form.shown(page, message_id=message_id),
        **filter_form.progress(page, found, message_id=message_id),
    )


@needs(VIEW)
def message(page: Page, name: str, source: str, entry: str) -> HttpResponse:
    """Show a ready or pending message, and why it is not running."""
    view = message_lists.get(name, source_of(source), text.from_url(entry))
    if view is None:
        page.say(messages.WARNING, _("The message is no longer here: it was handled, retried or deleted."))
        return HttpResponseRedirect(page.url("ready", name))
    place = "pending" if view.consumer else "ready"
    cause = explain.why_entry(view, look_at(name))
    runs = cause.kind == "running"
    return page.render(
        "message",
        _("Message"),
        queue=name,
        tabs=tabs(page, name, place),
        is_running=runs,
        cancel_url=page.url("cancel_running", name, source, entry) if actions.can_cancel_running(name) else "",
        progress=bar_of(name, view.message.id, can_see_data=page.can(SEE_DATA)),
        why=why(cause, name=view.message.name, can_see_data=page.can(SEE_DATA)),
        **facts(
            view.message,
            can_see_data=page.can(SEE_DATA),
            first=[
                (_("Attempt"), str(view.message.attempt)),
                (_("Consumer"), text.visible(view.consumer) if view.consumer else ""),
                (_("Running for"), text.duration(cause.ms) if runs else ""),
                (
                    _("Lease extended"),
                    _("%(time)s ago") % {"time": text.duration(view.held_ms)} if view.consumer else "",
                ),
            ],
            last=[(_("Ready since"), text.moment(view.ready_ms))],
        ),
    )


def _row(page: Page, name: str, view: EntryView, times: RunTimes) -> dict[str, Any]:
    ms = run_time(view, times)
    return {
        "url": page.url("entry", name, view.source, text.to_url(view.entry)),
        "since": text.moment(view.ready_ms),
        "priority": view.message.priority or "",
        "consumer": text.visible(view.consumer, limit=60),
        "running": "" if ms is None else text.duration(ms),
        **listed(view.message, can_see_data=page.can(SEE_DATA)),
    }


# The pages of what became of messages, of queues that keep it.

#: Messages per page.


def ending_words(view: HandledView) -> str:
    """Return what became of a message, as a word for a table."""
    words = {
        "handled": _("handled"),
        "expired": _("expired"),
        "buried": _("became a dead letter"),
        "cancelled": _("cancelled"),
    }
    return words[view.ending]


@needs(VIEW)
def listing(page: Page, name: str) -> HttpResponse:
    """Show a page of the history of a queue, the newest message first, or find one by its id."""
    message_id, after = page.request.GET.get("id", "").strip(), page.request.GET.get("after", "")
    if message_id and not after:
        handled = find_handled(name, message_id)
        url = found_at_once(page, name, message_id) if handled is None else handled_url(page, name, handled)
        if url:
            return HttpResponseRedirect(url)
    found = look_among_handled(name, filter_form.criteria(page, message_id), after=after, limit=PER_PAGE)
    config = get_config().queue(name)
    return page.render(
        "handled",
        _("Handled messages"),
        queue=name,
        tabs=tabs(page, name, "handled"),
        keeps=keeps_handled(name),
        period="" if config.keep_handled is None else text.period(config.keep_handled),
        most=text.number(config.keep_handled_count),
        rows=[_handled_row(page, name, row) for row in found.rows],
        **filter_form.shown(page, message_id=message_id),
        **filter_form.progress(page, found, message_id=message_id),
    )


@needs(VIEW)
def handled_message(page: Page, name: str, entry: str, member: str) -> HttpResponse:
    """Show what became of a message."""
    view = get_handled(name, entry, text.from_url(member).decode(errors="replace"))
    if view is None:
        page.say(messages.WARNING, _("It is no longer kept what became of this message."))
        return HttpResponseRedirect(page.url("handled", name))
    no_data = ""
    if not view.message.has_data:
        no_data = _("The data was not kept. With KEEP_HANDLED_DATA it is, up to 4 KiB.")
    return page.render(
        "handled_message",
        _("Message"),
        queue=name,
        tabs=tabs(page, name, "handled"),
        no_data=no_data,
        **facts(
            view.message,
            can_see_data=page.can(SEE_DATA),
            first=[
                (_("Ending"), ending_words(view)),
                (_("Attempt"), str(view.message.attempt)),
                (_("Consumer"), text.visible(view.consumer) if view.consumer else ""),
            ],
            last=[
                (_("Started"), text.moment(view.started_ms)),
                (_("Ended"), text.moment(view.finished_ms)),
                (_("Took"), text.seconds(view.seconds)),
            ],
        ),
    )


def _handled_row(page: Page, name: str, view: HandledView) -> dict[str, Any]:
    cells = listed(view.message, can_see_data=page.can(SEE_DATA))
    return {
        **cells,
        "data": cells["data"] if view.message.has_data else _("not kept"),
        "url": handled_url(page, name, view),
        "ending": ending_words(view),
        "is_bad": view.ending != "handled",
        "ended": text.moment(view.finished_ms),
        "took": text.seconds(view.seconds),
        "consumer": text.visible(view.consumer, limit=60),
    }


# The page that finds a message in all queues.

#: Seconds for which ready and pending messages are searched, so that the page takes at most 2.
SECONDS = 0.5
#: The most names of queues in a sentence.
MAX_NAMES = 10


@needs(VIEW)
def find(page: Page) -> HttpResponse:
    """Find a message in all queues by its id, or by `u:` and its unique key."""
    message_id = page.request.GET.get("id", "").strip()[:MAX_TEXT]
    search = Whereabouts(found=(), not_searched=(), errors={})
    if message_id.startswith(UNIQUE_PREFIX) and not page.can(SEE_DATA):
        page.say(messages.WARNING, _("You do not have permission to search by unique keys: they may contain data."))
    elif message_id:
        search = find_everywhere(message_id, seconds=SECONDS)
    return page.render(
        "find",
        _("Find a message"),
        tabs=sections(page, ""),
        find_url=page.url("find"),
        message_id=message_id,
        asked=text.visible(message_id, limit=200),
        rows=[_found_row(page, message_id, one) for one in search.found],
        not_searched=_names(list(search.not_searched)),
        errors=_names(sorted(search.errors)),
    )


def _names(names: list[str]) -> str:
    """Return the names of queues for a sentence."""
    more = [_("%(count)s more") % {"count": text.number(len(names) - MAX_NAMES)}] if len(names) > MAX_NAMES else []
    return ", ".join([*map(escape, names[:MAX_NAMES]), *more])


def _found_row(page: Page, message_id: str, one: FoundMessageIn) -> dict[str, Any]:
    view = one.view
    known = view.message if isinstance(view, WaitingView | EntryView | DeadLetterView | HandledView) else None
    name = getattr(view, "name", "") if known is None else known.name
    return {
        "id": text.visible(message_id if known is None else references.without_unique(known.id), limit=60),
        "name": text.visible(name, limit=60) if name else "",
        "queue": one.queue,
        "queue_url": page.queue_url(one.queue),
        "url": _url(page, one),
        "place": _place(one),
        "when": _when(one),
    }


def _url(page: Page, one: FoundMessageIn) -> str:
    """Return the URL of the page of a message; "" if it has none."""
    match one.view:
        case WaitingView() as waiting:
            handle = references.handle(page, waiting)
            return page.url("message", one.queue, waiting.room, handle) if handle else ""
        case DeadLetterView() as letter:
            return page.url("dead_letter", one.queue, letter.entry)
        case HandledView() as handled:
            return handled_url(page, one.queue, handled)
        case EntryView() as found if one.place == "log":
            return page.url("log_entry", one.queue, found.entry.decode(errors="replace"))
        case EntryView() as found:
            return page.url("entry", one.queue, found.source, text.to_url(found.entry))
    return ""


def _place(one: FoundMessageIn) -> str:
    if isinstance(one.view, HandledView):
        return ending_words(one.view)
    return {
        "delayed": _("delayed"),
        "unhandled": _("unhandled: no consumer has a handler"),
        "parked": _("parked: over the limit of its key"),
        "ready": _("ready"),
        "pending": _("pending"),
        "dead": _("dead letter"),
        "expired": _("discarded: it had expired"),
        "replaced": _("replaced by another with its unique key"),
        "result": _("its task has ended"),
        "log": _("in the log of the topic"),
    }[one.place]


def _when(one: FoundMessageIn) -> SafeString | str:
    match one.view:
        case WaitingView() as waiting:
            return text.moment(waiting.due_ms)
        case DeadLetterView() as letter:
            return text.moment(letter.buried_ms)
        case HandledView() as handled:
            return text.moment(handled.finished_ms)
        case EntryView() as found:
            return text.moment(found.ready_ms)
        case Ended() as gone:
            return text.moment(gone.ms)
    return text.moment(one.view.ms)
