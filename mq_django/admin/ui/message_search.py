"""Find a message by its id without a scan."""

from django.contrib import messages
from django.utils.translation import gettext as _

from mq_django.admin.ui import references, text
from mq_django.admin.ui.page import SEE_DATA, Page
from mq_django.core.lookup import Place
from mq_django.core.visible import escape
from mq_django.inspector import dead_letters, entries, message_ids
from mq_django.inspector.handled_messages import HandledView, find_handled
from mq_django.inspector.messages import search_waiting


def handled_url(page: Page, name: str, view: HandledView) -> str:
    """Return the URL of the page of a message in the history of its queue."""
    return page.url("handled_message", name, view.entry, text.to_url(view.member.encode(errors="replace")))


def found_at_once(page: Page, name: str, message_id: str) -> str:
    """Return the URL of a message's page; empty if it can only be found by a scan. Tells what became of it."""
    waiting = search_waiting(name, message_id, by_unique=page.can(SEE_DATA))
    if waiting is not None:
        return page.url("message", name, waiting.room, references.handle(page, waiting))
    dead = dead_letters.find(name, message_id)
    if dead is not None:
        return page.url("dead_letter", name, dead)
    found = entries.find(name, message_id)
    if found is not None:
        return page.url("entry", name, found.source, text.to_url(found.entry))
    handled = find_handled(name, message_id)
    # One that was buried may be ready again, since it was redriven.
    if handled is not None and handled.ending != "buried":
        return handled_url(page, name, handled)
    ended = message_ids.ended(name, message_id)
    if ended is not None:
        sentences = {
            Place.EXPIRED: _("Message “%(id)s” was discarded %(time)s ago: it had expired before it was handled."),
            Place.REPLACED: _("Message “%(id)s” was replaced %(time)s ago by another one with its unique key."),
        }
        sentence, ago = sentences[ended.place], text.duration(max(0, text.now_ms() - ended.ms))
        page.say(messages.WARNING, sentence % {"id": escape(message_id)[:200], "time": ago})
    return ""
