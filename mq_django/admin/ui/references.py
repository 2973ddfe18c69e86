"""What stands for messages in addresses, forms and the admin's log, which others read than those who may see data.

There a message is named by its id. Unique keys, keys and the text of errors may quote its data.
"""

from django.core.exceptions import PermissionDenied

from mq_django.admin.ui import text
from mq_django.admin.ui.page import SEE_DATA, Page
from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.inspector.message_views import WaitingView

#: Stands where something is hidden.
HIDDEN = "…"


def handle(page: Page, view: WaitingView) -> str:
    """Return what names a message that waits in an address; empty when only a unique key would that is hidden."""
    found = view.handle or (view.member if page.can(SEE_DATA) else b"")
    return text.to_url(found) if found else ""


def named(page: Page, handle: str) -> bytes:
    """Return what an address or a form names a message by.

    Raises:
        PermissionDenied: a unique key, by somebody who may not see data: keys could be guessed.
    """
    found = text.from_url(handle)
    if found.startswith(UNIQUE_PREFIX.encode()) and not page.can(SEE_DATA):
        raise PermissionDenied
    return found


def label(handle: str) -> str:
    """Return a handle for a confirmation or the log: the id, and nothing of a unique key."""
    return without_unique(text.from_url(handle).decode(errors="backslashreplace"))


def without_unique(name: str) -> str:
    """Return what names a message, but nothing of a unique key."""
    return HIDDEN if name.startswith(UNIQUE_PREFIX) else name
