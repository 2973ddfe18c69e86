"""References to messages in URLs, forms and the admin's log, which users without permission to see data can read.

There a message is named by its id. Unique keys, keys and the text of errors may quote its data.
"""

from django.core.exceptions import PermissionDenied

from mq_django.admin.ui import text
from mq_django.admin.ui.page import SEE_DATA, Page
from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.inspector.message_views import MessageView, name_of

#: Placeholder for hidden text.
HIDDEN = "…"


def handle(page: Page, view: MessageView) -> str:
    """Return the reference of a message for a URL or form; empty if only its unique key, which is hidden, finds it."""
    if view.ref.startswith(UNIQUE_PREFIX) and not page.can(SEE_DATA):
        return ""
    return text.to_url(name_of(view.ref))


def message_url(page: Page, queue: str, view: MessageView) -> str:
    """Return the address of the page of a message; empty if only its unique key finds it, which is hidden."""
    if view.state == "log":
        return page.url("log_entry", queue, view.ref)
    ref = handle(page, view)
    return page.url("message", queue, view.state, ref) if ref else ""


def named(page: Page, handle: str) -> bytes:
    """Return the member of a message from its reference in a URL or form.

    Raises:
        PermissionDenied: it is a unique key, and the user may not see data, but could guess keys.
    """
    found = text.from_url(handle)
    if found.startswith(UNIQUE_PREFIX.encode()) and not page.can(SEE_DATA):
        raise PermissionDenied
    return found


def label(handle: str) -> str:
    """Return a handle for a confirmation or the log: the id, but no unique key."""
    return without_unique(text.from_url(handle).decode(errors="backslashreplace"))


def without_unique(name: str) -> str:
    """Return the reference of a message without a unique key."""
    return HIDDEN if name.startswith(UNIQUE_PREFIX) else name
