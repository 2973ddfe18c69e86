"""What the handler of a message streams, as a live part of the page of the message."""

import json
from typing import Any

from django.http import HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.message_lists import ending_words, shown_error
from mq_django.admin.ui import text
from mq_django.admin.ui.live import LiveParts
from mq_django.admin.ui.page import SEE_DATA, VIEW, Page, needs, tabs
from mq_django.conf import get_config
from mq_django.core.message_streams import Chunk
from mq_django.inspector.message_stream import StreamView, stream_of
from mq_django.inspector.message_views import MessageView

PARTS = ("tabs", "message_stream")


def streamed(page: Page, name: str, view: MessageView) -> dict[str, Any]:
    """Return what the page of a message adds if its queue keeps streams, and there is one or may be one."""
    found, may_stream = stream_of(name, view.id), view.state not in ("dead", "handled")
    if get_config().queue(name).stream is None or not (found or may_stream):
        return {}
    context = _context(page, name, view.state, found)
    url = page.url("message_stats", name, view.state, text.to_url(view.id.encode(errors="replace")))
    is_live = may_stream or (found is not None and found.end is None)
    return {"live": page.live(PARTS, context).context(), "live_url": url if is_live else "", **context}


@needs(VIEW)
def stats(page: Page, name: str, state: str, message: str) -> HttpResponse:
    """Return the live parts of the page of a message."""
    message_id = text.from_url(message).decode(errors="replace")

    def live() -> LiveParts:
        return page.live(PARTS, _context(page, name, state, stream_of(name, message_id)))

    return page.shared("message", live).response(page.request)


def _context(page: Page, name: str, state: str, found: StreamView | None) -> dict[str, Any]:
    context = {"tabs": tabs(page, name, state)}
    if found is None:
        return {**context, "summary": _("Nothing was streamed yet."), "pieces": [], "earlier": ""}
    can_see_data = page.can(SEE_DATA)
    said = ngettext("%(count)s earlier entry is not shown.", "%(count)s earlier entries are not shown.", found.earlier)
    shown = [chunk for chunk in found.chunks if can_see_data or chunk.kind in ("restart", "end")]
    streaming = _("The handler is streaming.") if state == "pending" else ""
    return {
        **context,
        "summary": _("The stream has ended.") if found.end else streaming,
        "pieces": [(chunk.kind, _html(chunk, can_see_data=can_see_data)) for chunk in shown],
        "earlier": said % {"count": text.number(found.earlier)} if found.earlier else "",
    }


def _html(chunk: Chunk, *, can_see_data: bool) -> SafeString | str:
    match chunk.kind:
        case "text":
            return text.visible(chunk.value[-text.LONGEST :], lines=True)
        case "log":
            return text.visible(chunk.value)
        case "json":
            return text.visible(json.dumps(chunk.value, ensure_ascii=False))
        case "bytes":
            return text.size(len(chunk.value))
        case "restart":
            return _("Restarted: attempt %(number)s") % {"number": text.number(chunk.attempt)}
    ending = ending_words(chunk.outcome)  # type: ignore[arg-type] # read_chunk() knows no others
    said = _("Ended: %(ending)s") % {"ending": ending}
    error = shown_error(chunk.error, can_see_data=can_see_data, limit=1000) if chunk.error else ""
    return format_html("{}. {}", said, error) if error else said
