"""Find a message by its id without a scan."""

from mq_django.admin.ui import references, text
from mq_django.admin.ui.page import SEE_DATA, Page
from mq_django.inspector import dead_letters, entries
from mq_django.inspector.messages import search_waiting


def found_at_once(page: Page, name: str, message_id: str) -> str:
    """Return the URL of a message's page; empty if it can only be found by a scan."""
    waiting = search_waiting(name, message_id, by_unique=page.can(SEE_DATA))
    if waiting is not None:
        return page.url("message", name, waiting.room, references.handle(page, waiting))
    dead = dead_letters.find(name, message_id)
    if dead is not None:
        return page.url("dead_letter", name, dead)
    found = entries.find(name, message_id)
    return "" if found is None else page.url("entry", name, found.source, text.to_url(found.entry))
