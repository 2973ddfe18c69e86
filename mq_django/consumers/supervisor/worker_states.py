"""What the threads of a supervisor read of its consumers and tell them, by their shared states."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mq_django.consumers.shared_state import Running
from mq_django.consumers.supervisor.doing import doing
from mq_django.consumers.supervisor.heartbeat import Announcement
from mq_django.consumers.supervisor.worker_process import WorkerProcess


class WorkerStates:
    """The consumers of a supervisor that have not ended. One thread changes which these are; any thread may ask."""

    def __init__(self, queues: range, describe: Callable[[WorkerProcess], Mapping[str, Any]]) -> None:
        self._queues = queues
        self._describe = describe
        self._workers: list[WorkerProcess] = []
        #: Held while consumers are added or removed, and while their shared states are used.
        self._changing = threading.Lock()
        #: The latest that is known of each queue.
        self._paused: dict[int, bool] = {}
        #: What people ask, by consumer or supervisor, until it is taken.
        self._asked: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._workers)

    def __iter__(self) -> Iterator[WorkerProcess]:
        return iter(self._workers.copy())

    def add(self, child: WorkerProcess) -> None:
        """Add a consumer that has just been started."""
        with self._changing:
            for number, paused in self._paused.items():
                child.shared_state.set_paused(number, paused)
            self._workers.append(child)

    def remove(self, child: WorkerProcess) -> None:
        """Remove a consumer that has ended, and close what was shared with it."""
        with self._changing:
            self._workers.remove(child)
            child.close()

    def evict(self) -> None:
        """Announce none of these consumers any more: others took them for dead."""
        with self._changing:
            for child in self._workers:
                child.evicted = True

    def suspend(self, child: WorkerProcess, now: float) -> None:
        """Let a consumer begin nothing more of what it has: it may go on at any moment, and gives that back itself."""
        with self._changing:
            child.suspended = now
            for number in self._queues:
                child.shared_state.hold_until(number, 0.0)

    def pause(self, number: int, paused: bool) -> None:
        """Tell the consumers, and those to come, whether a queue is paused."""
        with self._changing:
            self._paused[number] = paused
            for child in self._workers:
                child.shared_state.set_paused(number, paused)

    def tell_of_unhandled(self, number: int, there_are: bool) -> None:
        """Tell the consumers whether a queue has messages whose name nobody knew."""
        with self._changing:
            for child in self._workers:
                child.shared_state.set_unhandled(number, there_are)

    def ask(self, asks: Mapping[str, str]) -> None:
        """Add what people ask of consumers or of all of them."""
        with self._changing:
            self._asked |= asks

    def take_asked(self) -> Mapping[str, str]:
        """Return what people have asked since the last call."""
        with self._changing:
            asked, self._asked = self._asked, {}
        return asked

    def doing(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Return what each consumer does and has done, a value a queue."""
        with self._changing:
            shown = [child for child in self._workers if not child.evicted]
            return {child.consumer: doing(child.shared_state, self._queues) for child in shown}

    def announced(self) -> Mapping[str, Mapping[str, Any]]:
        """Return what to tell of the consumers."""
        with self._changing:
            shown = [child for child in self._workers if not child.evicted]
            described = {child.consumer: self._describe(child) for child in shown}
        backlogs = {child.backlog: described[child.consumer] for child in shown if child.backlog}
        return described | {backlog: {**owner, "ward": False, "threads": 0} for backlog, owner in backlogs.items()}

    def running(self) -> Mapping[str, Sequence[Running]]:
        """Return what each consumer runs."""
        with self._changing:
            return {child.consumer: child.shared_state.running() for child in self._workers}

    def held(self, number: int, announcement: Announcement, moment: float) -> None:
        """Tell the announced consumers until when they hold what they have of a queue."""
        with self._changing:
            for child in self._workers:
                if child.consumer in announcement.consumers and not child.evicted and child.suspended is None:
                    child.shared_state.hold_until(number, moment)
                    child.announced.add(number)
