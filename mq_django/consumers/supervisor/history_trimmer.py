"""Trim the histories of queues to what their KEEP_HANDLED allows."""

import time
from collections.abc import Sequence

from mq_django.consumers.service import Service
from mq_django.stores.handled import MessageHistory

#: Seconds between two rounds.
EVERY = 10.0
#: Trims of one queue in a row: 500,000 messages. More wait for the next round, so that no queue delays the others.
IN_A_ROW = 1000


class HistoryTrimmer(Service):
    """Trims the histories of its queues. Any number of processes may do so, because a trim is idempotent."""

    name = "history trimmer"

    def __init__(self, histories: Sequence[MessageHistory]) -> None:
        super().__init__()
        self._histories = histories

    def run_once(self) -> float:
        """Trim the history of every queue."""
        self.each(self._histories, self._trim, called=lambda history: history.config.name)
        return EVERY

    def _trim(self, history: MessageHistory) -> None:
        for _ in range(IN_A_ROW):
            if not history.trim().more or self.stopping:
                return
            self.progressed = time.monotonic()
