"""The page that finds a message in all queues."""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from mq_django.admin.messages.handled_pages import ending_words
from mq_django.admin.ui import references, text
from mq_django.admin.ui.filter_form import MAX_TEXT
from mq_django.admin.ui.message_search import handled_url
from mq_django.admin.ui.page import SEE_DATA, VIEW, Page, needs
from mq_django.admin.ui.tabs import sections
from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.core.visible import escape
from mq_django.inspector.dead_letters import DeadLetterView
from mq_django.inspector.handled_messages import HandledView
from mq_django.inspector.message_ids import Ended
from mq_django.inspector.message_views import EntryView, WaitingView
from mq_django.inspector.whereabouts import FoundMessageIn, Whereabouts, find_everywhere

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
        rows=[_row(page, message_id, one) for one in search.found],
        not_searched=_names(list(search.not_searched)),
        errors=_names(sorted(search.errors)),
    )


def _names(names: list[str]) -> str:
    """Return the names of queues for a sentence."""
    more = [_("%(count)s more") % {"count": text.number(len(names) - MAX_NAMES)}] if len(names) > MAX_NAMES else []
    return ", ".join([*map(escape, names[:MAX_NAMES]), *more])


def _row(page: Page, message_id: str, one: FoundMessageIn) -> dict[str, Any]:
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
