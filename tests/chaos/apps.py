"""What runs in the consumers of a run: the handlers, and the noting of what happens to each delivery."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.apps import AppConfig

from tests.chaos import observing, points
from tests.chaos.history import History
from tests.chaos.settings import TRANSACTIONS


class Chaos(AppConfig):
    """Notes a consumer's history when a run asks for it."""

    name = "tests.chaos"

    def ready(self) -> None:
        """Begin to observe."""
        folder = os.environ.get("CHAOS_HISTORY")
        if folder:
            observing.observe(History(Path(folder)))
            points.install(Path(folder))
            if os.environ.get(TRANSACTIONS):
                # Its modules need the models.
                from tests.chaos import transaction_points  # noqa: PLC0415

                transaction_points.install()
            # A thread would keep its consumers from being forked; these have no timer, and end with their supervisor.
            signal.signal(signal.SIGALRM, _end_with_owner)
            signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)


def _end_with_owner(*_: Any) -> None:
    """End this process when the run that it belongs to is gone: consumers themselves wait for Redis for ever."""
    try:
        # Of another user, whose processes /proc may hide, it is not permitted; and there it is.
        with suppress(PermissionError):
            os.kill(int(os.environ["CHAOS_OWNER"]), 0)
    except ProcessLookupError:
        os._exit(1)
