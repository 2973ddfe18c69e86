"""Interrupt handlers past their timeout, and release messages that have a handler now."""

from collections.abc import Mapping, Sequence

from mq_django.consumers.service import Service
from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.worker.call_path import Slot
from mq_django.consumers.worker.cancels import Cancels
from mq_django.consumers.worker.pools import Pool, ThreadPool
from mq_django.consumers.worker.stacks import StackAnswers
from mq_django.registry import names
from mq_django.stores.base import Store

#: Seconds between two checks: how late a timeout may be.
TICK = 0.1
#: Messages released by one script call.
BATCH = 500


class Timekeeper(Service):
    """Enforces the timeouts of the slots."""

    name = "timekeeper"

    def __init__(self, threads: ThreadPool, loop: Pool) -> None:
        super().__init__()
        self._threads = threads
        self._pools = (threads, loop)

    def run_once(self) -> float:
        """Interrupt late handlers, and hand back messages that wait behind slow ones."""
        self._threads.interrupt_late()
        for pool in self._pools:
            pool.check()
        return TICK


class Releaser(Service):
    """Releases unhandled messages for which this consumer has a handler."""

    name = "releaser"

    def __init__(self, stores: Mapping[int, Store], shared_state: SharedState) -> None:
        super().__init__()
        self._stores = stores
        self._shared_state = shared_state
        #: Each queue is checked once at the start, and later only when its supervisor has seen unhandled messages.
        self.has_checked_all = False

    def run_once(self) -> float:
        """Release the messages that this consumer can handle."""
        asked = [
            store for n, store in self._stores.items() if not self.has_checked_all or self._shared_state.unhandled(n)
        ]
        self.each(asked, self._release, called=lambda store: store.config.name)
        self.has_checked_all = True
        return 5.0

    def _release(self, store: Store) -> None:
        known = list(names(store.config.name))
        while store.release_unhandled(known, limit=BATCH):
            pass


#: Rounds until the requests are read again while there are some: they end after a day, or by a redrive.
READ_AGAIN = 100


class Canceller(Service):
    """Reads requests when its supervisor says so: it interrupts handlers that are to be cancelled, and sends stacks.

    Args:
        cancels: the messages of the queues on one server that are to be cancelled, by the number of the queue.
        answers: what answers requests for stacks, by the number of the queue.
        shared_state: says when to read again.
        slots: where handlers run.
    """

    name = "canceller"

    def __init__(
        self,
        cancels: Mapping[int, Cancels],
        answers: Mapping[int, StackAnswers],
        shared_state: SharedState,
        slots: Sequence[Slot],
    ) -> None:
        super().__init__()
        self._cancels = cancels
        self._answers = answers
        self._shared_state = shared_state
        self._slots = slots
        #: Queue -> the number in the shared state when the requests were read last. None was read yet.
        self._seen: dict[int, int] = {}
        self._rounds = 0

    def run_once(self) -> float:
        """Read the requests that have changed, and interrupt the handlers that they name."""
        self._rounds += 1
        state = {number: self._shared_state.requests(number) for number in self._cancels}
        changed = [number for number, seen in state.items() if self._must_read(number, seen)]
        self.each(changed, lambda number: self._read(number, state[number]), called=self._name)
        if any(one.ids for one in self._cancels.values()):
            self.each(self._slots, self._interrupt, called=_queue_of)
        return TICK

    def _name(self, number: int) -> str:
        return self._cancels[number].queue

    def _must_read(self, number: int, seen: int) -> bool:
        return self._seen.get(number) != seen or (bool(self._cancels[number].ids) and not self._rounds % READ_AGAIN)

    def _read(self, number: int, seen: int) -> None:
        self._cancels[number].read()
        # An answer that fails is not tried again: who waits for it has gone by then, and asks again.
        self._seen[number] = seen
        self._answers[number].answer()

    def _interrupt(self, slot: Slot) -> None:
        job = slot.running()
        # The messages of a batch are not interrupted: the others in the call would have to run again.
        if job is None or job.together or (cancels := self._cancels.get(job.path.executor.number)) is None:
            return
        message_id = job.delivery.message.id
        force = cancels.ids.get(message_id)
        # Asked again, because the message may have been redriven since the requests were read.
        if force is not None and not slot.has_cancelled(force=force) and cancels.is_current(message_id):
            slot.cancel(job, force=force)


def _queue_of(slot: Slot) -> str:
    job = slot.running()
    return "" if job is None else job.delivery.message.queue
