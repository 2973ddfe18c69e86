"""Continue what processes that have ended have left of workflows, and end runs that have expired."""

import time
from collections.abc import Mapping, Sequence

from mq_django.conf import QueueConfig
from mq_django.consumers.service import Service
from mq_django.errors import NotPermitted
from mq_django.producers.workflow_run import by_run, do, forget_old
from mq_django.producers.workflow_steps import StepDelivery, open_homes
from mq_django.stores.workflow_home import WorkflowHome, noted
from mq_django.transport.connections import open_transport

#: Seconds between two rounds: while there are runs, and otherwise.
TICK, IDLE = 1.0, 5.0
#: What is older than this was left by a process that has ended.
OLD_MS = 1000
#: Seconds between two looks at the list of all runs, and for notes about steps of runs that do not exist.
FORGET = 60.0


class WorkflowService(Service):
    """Every supervisor does this for all runs and all queues: what two of them do, is done once."""

    name = "workflows"

    def __init__(self, queues: Sequence[QueueConfig]) -> None:
        super().__init__()
        self.connection = None
        self._forgot = 0.0
        #: By home: runs at the beginning of its list that still exist, and the last start of the last round.
        self._skipped: dict[str, int] = {}
        self._after: dict[str, bytes] = {}
        #: By server: its queues.
        self._queues: dict[str, list[QueueConfig]] = {}
        for config in queues:
            if "step" not in config.unsupported:
                self._queues.setdefault(config.connection, []).append(config)
        self._couriers = {
            config.name: StepDelivery(config, open_transport("consume", server))
            for server, group in self._queues.items()
            for config in group
        }

    def run_once(self) -> float:
        """Deliver notes, publish starts, continue changes and end expired runs that nobody else has."""
        homes = {home.keys.home: home for home in open_homes()}
        try:
            left = {key: home.left(age_ms=OLD_MS, after=self._after.get(key, b"")) for key, home in homes.items()}
        except NotPermitted:
            # A project without workflows need not grant their keys. One with them gets this error when it starts a run.
            return IDLE
        found = {key: work for key, work in left.items() if work is not None}
        if not found and time.monotonic() - self._forgot < FORGET:
            return IDLE
        for key, work in found.items():
            # What cannot be published yet must not hold up what follows it.
            self._after[key] = work.last_start
        self.each(
            [(homes[key], one) for key, work in found.items() for one in by_run(work)],
            lambda pair: do(*pair),
            called=lambda pair: f"run {pair[1].run}",
        )
        self.each(self._queues, self._deliver, called=lambda server: f"server {server!r}", server=str)
        self._forget(homes)
        return TICK if found else IDLE

    def _deliver(self, server: str) -> None:
        """Deliver the notes of the queues of one server."""
        self.each(
            self._noted(server),
            lambda queue: self._couriers[queue].deliver_left(age_ms=OLD_MS),
            called=str,
            server=lambda _: server,
        )

    def _noted(self, server: str) -> list[str]:
        """Return the queues of a server that may have notes."""
        queues = self._queues[server]
        found = noted(open_transport("consume", server), [config.keys for config in queues])
        return [config.name for config, is_noted in zip(queues, found, strict=True) if is_noted]

    def _forget(self, homes: Mapping[str, WorkflowHome]) -> None:
        """Shorten the list of all runs, a part of it each minute."""
        if time.monotonic() - self._forgot < FORGET:
            return
        self._forgot = time.monotonic()
        for key, home in homes.items():
            self._skipped[key] = forget_old(home, skipped=self._skipped.get(key, 0))
