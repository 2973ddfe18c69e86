"""The pages of what became of messages, of queues that keep it."""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from mq_django.admin.messages.message_rows import facts, listed
from mq_django.admin.ui import filter_form, text
from mq_django.admin.ui.message_search import found_at_once, handled_url
from mq_django.admin.ui.page import SEE_DATA, VIEW, Page, needs
from mq_django.admin.ui.tabs import tabs
from mq_django.conf import get_config
from mq_django.inspector.handled_messages import (
    HandledView,
    find_handled,
    get_handled,
    keeps_handled,
    look_among_handled,
)

#: Messages per page.
PER_PAGE = 50


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
        rows=[_row(page, name, row) for row in found.rows],
        **filter_form.shown(page, message_id=message_id),
        **filter_form.progress(page, found, message_id=message_id),
    )


@needs(VIEW)
def message(page: Page, name: str, entry: str, member: str) -> HttpResponse:
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


def _row(page: Page, name: str, view: HandledView) -> dict[str, Any]:
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
