"""Continue what processes that have ended have left of workflows, and end runs that have expired."""

import time
from collections.abc import Sequence

from mq_django.conf import QueueConfig
from mq_django.consumers.service import Service
from mq_django.core import clock
from mq_django.producers.step_courier import StepCourier
from mq_django.producers.step_starts import open_homes
from mq_django.producers.workflow_upkeep import forget_old, keep_up
from mq_django.stores.workflow_home import WorkflowHome
from mq_django.transport.connections import open_wire

#: Seconds between two rounds: while there are runs, and otherwise.
TICK, IDLE = 1.0, 5.0
#: What is older than this was left by a process that has ended.
OLD_MS = 1000
#: Seconds between two looks at the list of all runs.
FORGET = 60.0


class WorkflowService(Service):
    """Every supervisor does this for all runs and all queues: what two of them do, is done once."""

    name = "workflows"

    def __init__(self, queues: Sequence[QueueConfig]) -> None:
        super().__init__()
        self.connection = None
        self._forgot = 0.0
        #: By home: runs at the beginning of its list that still exist.
        self._skipped: dict[str, int] = {}
        self._couriers = [
            (config, StepCourier(config, open_wire("consume", config.connection)))
            for config in queues
            if "step" not in config.lacks
        ]

    def run_once(self) -> float:
        """Deliver notes, publish starts, continue changes and end expired runs that nobody else has."""
        homes = [home for home in open_homes() if home.is_used()]
        if not homes:
            return IDLE
        before_ms = round(clock.now() * 1000) - OLD_MS
        self.each(
            self._couriers,
            lambda one: one[1].deliver_old(before_us=before_ms * 1000),
            called=lambda one: one[0].name,
            server=lambda one: one[0].connection,
        )
        for home in homes:
            keep_up(home, before_ms=before_ms, now_ms=before_ms + OLD_MS, progressed=self._note_progress)
        self._forget(homes, now_ms=before_ms + OLD_MS)
        return TICK

    def _forget(self, homes: Sequence[WorkflowHome], *, now_ms: int) -> None:
        """Shorten the list of all runs, a part of it each minute."""
        if time.monotonic() - self._forgot < FORGET:
            return
        self._forgot = time.monotonic()
        for home in homes:
            key = home.keys.home
            self._skipped[key] = forget_old(home, now_ms=now_ms, skipped=self._skipped.get(key, 0))

    def _note_progress(self) -> None:
        self.progressed = time.monotonic()
