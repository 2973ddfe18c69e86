"""Whether this process runs tests. Then no client connects to the configured servers: see `test_server`."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

#: Set to 1, it turns test mode on, and to 0 off. Programs that tests start inherit it.
SWITCH = "MQ_DJANGO_TESTING"

#: Handles what is ready, while a test uses `mq_django.testing`: code that waits for a result calls it, because in such
#: a test no other process handles messages.
handle_ready: Callable[[], object] | None = None

#: Publishes the rows of the outbox of a database, by its alias, while a test uses `mq_django.testing`: in such a test
#: no relay runs.
relay: Callable[[str], object] | None = None

#: The aliases of the databases whose outboxes such a test has used.
outboxes: set[str] = set()


def note_outbox(alias: str) -> None:
    """Note that the outbox of a database is used, if a test uses `mq_django.testing`."""
    if relay is not None:
        outboxes.add(alias)


def is_on() -> bool:
    """Return whether this process runs tests, or was started by tests.

    pytest sets PYTEST_VERSION before it imports anything of the project, `manage.py test` is known by its arguments,
    and other runners of Django by the outbox that `setup_test_environment()` makes.
    """
    switch = os.environ.get(SWITCH)
    if switch is not None:
        return switch not in ("", "0")
    if "PYTEST_VERSION" in os.environ or _is_test_command() or _has_outbox():
        os.environ[SWITCH] = "1"
        return True
    return False


def worker() -> str:
    """Return which parallel process of a test run this is, of pytest-xdist or of Django; "": there is only one.

    A program that a test has started does not know the number of Django's process, and returns "".
    """
    number = getattr(sys.modules.get("django.test.runner"), "_worker_id", 0)
    return os.environ.get("PYTEST_XDIST_WORKER") or (f"django{number}" if number else "")


def _is_test_command() -> bool:
    program = Path(sys.argv[0]) if sys.argv else Path()
    is_django = program.parts[-2:] == ("django", "__main__.py")
    return sys.argv[1:2] == ["test"] and (is_django or program.name.startswith(("manage", "django-admin")))


def _has_outbox() -> bool:
    return hasattr(sys.modules.get("django.core.mail"), "outbox")
