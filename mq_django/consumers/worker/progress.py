"""Look at running handlers: interrupt those past their timeout and those that were cancelled, save what they report."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

from mq_django.consumers.service import ServerQueues, Service
from mq_django.consumers.shared_state import Receipt, SharedState
from mq_django.consumers.worker.breakers import Cancels
from mq_django.consumers.worker.call_path import Slot
from mq_django.consumers.worker.pools import Pool, ThreadPool
from mq_django.consumers.worker.settler import ReportBook
from mq_django.consumers.worker.stacks import StackAnswers
from mq_django.core import clock
from mq_django.core.logs import get_logger
from mq_django.errors import StoreError
from mq_django.registry import names
from mq_django.stores import open_store
from mq_django.stores.base import Store
from mq_django.stores.results import RunningTask, note_running, save
from mq_django.transport.cluster_transport import AnySession
from mq_django.transport.sessions import Transport

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
        if not store.release_unhandled(known, limit=BATCH):
            return
        # No more than there are now: consumers with older code may set messages aside again at once.
        left = store.depths().unhandled
        while left > 0 and not self.stopping and (moved := store.release_unhandled(known, limit=BATCH)):
            left -= moved
            self.progressed = time.monotonic()


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
        request = cancels.ids.get(job.delivery.message.id)
        if request is None or not request.is_for(job.delivery) or slot.has_cancelled(force=request.force):
            return
        # Asked again, because the message may have been redriven since the requests were read.
        if cancels.is_current(job.delivery):
            slot.cancel(job, force=request.force)


def _queue_of(slot: Slot) -> str:
    job = slot.running()
    return "" if job is None else job.delivery.message.queue


# The tasks that have been running for a second, each of which is noted once in its result.

#: Seconds that a task runs before that is noted: shorter ones cost nothing.
AFTER = 1.0


class RunningTasks:
    """The tasks of one server's queues that run in this process.

    Args:
        queues: on that server, by their numbers. Those that keep no results are left out.
        consumer: the name of this consumer in the lines of attempts.
        shared_state: says since when a slot runs, and whether this consumer still holds what it has read.
        slots: where handlers run.
    """

    def __init__(self, queues: ServerQueues, consumer: str, shared_state: SharedState, slots: Sequence[Slot]) -> None:
        self._queues = {number: config for number, config in queues.items() if config.keeps_results}
        self._consumer = consumer
        self._shared_state = shared_state
        self._slots = slots
        #: The deliveries that are noted, and were still running at the last look.
        self._noted: set[Receipt] = set()

    def unnoted(self) -> Mapping[int, Mapping[Receipt, RunningTask]]:
        """Return the tasks that have been running for a second and are not noted yet, by the number of the queue."""
        if not self._queues:
            return {}
        found: dict[int, dict[Receipt, RunningTask]] = defaultdict(dict)
        now, now_ms, running = time.monotonic(), clock.now_ms(), set[Receipt]()
        for slot in self._slots:
            job = slot.running()
            if job is None or not job.path.handler.keeps_result:
                continue
            receipt = job.path.executor.receipt(job.delivery)
            running.add(receipt)
            # Read after the job: if another one has started since, it has not been running for long.
            seconds = now - self._shared_state.since(slot.number)
            if seconds >= AFTER and receipt.queue in self._queues and receipt not in self._noted:
                found[receipt.queue][receipt] = RunningTask(job.delivery, now_ms - round(seconds * 1000))
        self._noted &= running
        return found

    def note(self, transport: Transport, number: int, tasks: Mapping[Receipt, RunningTask]) -> None:
        """Note in the results of tasks of a queue that they are running.

        Raises:
            StoreError: Redis cannot be reached, or refuses a command. What is not noted is returned by `unnoted` again.
        """
        # What this consumer no longer holds, another one may be handling.
        held = {
            receipt: each for receipt, each in tasks.items() if self._shared_state.holds(number, each.delivery.read_at)
        }
        note_running(transport, self._queues[number], self._consumer, list(held.values()))
        self._noted.update(held)


logger = get_logger(__name__)

#: Seconds between two rounds: how much of its work a handler repeats after its process was killed.
EVERY = 1.0


class ProgressReporter(Service):
    """Looks once a second at the running handlers of one server's queues.

    It saves what has changed in their reports, and notes in the results of tasks that these are running.
    """

    name = "progress reporter"

    def __init__(
        self, books: Mapping[int, ReportBook], tasks: RunningTasks, shared_state: SharedState, session: AnySession
    ) -> None:
        super().__init__()
        self._books = books
        self._tasks = tasks
        self._shared_state = shared_state
        self._session = session

    def run_once(self) -> float:
        """Save the reports that have changed, and note the tasks that have been running for a second."""
        self._save_reports()
        unnoted = self._tasks.unnoted()
        self.each(unnoted, lambda number: self._tasks.note(self._session, number, unnoted[number]), called=self._name)
        return EVERY

    def close(self) -> None:
        """Save what handlers have reported last that outlast the grace period."""
        try:
            self._save_reports()
        except StoreError as error:
            logger.warning("The last reports of running handlers could not be saved: %s", error)
        self._session.close()

    def _save_reports(self) -> None:
        self.each(self._books, self._save, called=self._name)

    def _save(self, number: int) -> None:
        book = self._books[number]
        # What the consumer no longer holds, another one may be handling.
        held = [each for each in book.changed() if self._shared_state.holds(number, each.delivery.read_at)]
        save(self._session, book.config, held)

    def _name(self, number: int) -> str:
        return self._books[number].config.name


# The chunks that running handlers stream.

#: Seconds between two rounds of sending. Chunks of the meantime are one batch.
BATCHED = 0.005
#: Seconds until a queue is tried again after an error.
AGAIN = 1.0
#: The most calls of the last round for each queue.
LAST_CALLS = 100


class StreamSender(Service):
    """Sends what the handlers of one server's queues stream: at once, and then in batches of 5 ms."""

    name = "stream sender"

    def __init__(self, books: Mapping[int, ReportBook], consumer: str, session: AnySession) -> None:
        super().__init__()
        self._books = books
        self._consumer = consumer
        self._session = session
        self._stores = {number: open_store(book.config, session) for number, book in books.items()}
        self._next = 0.0
        #: Of each queue that has failed, when it is tried again.
        self._later: dict[int, float] = {}
        for book in books.values():
            book.wake = self.wake

    def wake(self) -> None:
        """Start the next round. Called by handlers for each chunk."""
        if not self._woken.is_set():
            self._woken.set()

    def run_once(self) -> float:
        """Send what is there."""
        self._stopping.wait(self._next - time.monotonic())
        # Cleared before anything is read: a chunk that is added from now on sets it again.
        self._woken.clear()
        now = time.monotonic()
        self._next = now + BATCHED
        self.each([n for n in self._books if self._later.get(n, now) <= now], self._send, called=self._name)
        return min([EVERY, *(at - now for at in self._later.values() if at > now)])

    def close(self) -> None:
        """Send the last chunks of handlers that outlast the grace period."""
        try:
            for _ in range(LAST_CALLS):
                if not any(book.streaming() for book in self._books.values()):
                    break
                self.each(self._books, self._send, called=self._name)
        except StoreError as error:
            logger.warning("The last chunks of running handlers could not be sent: %s", error)
        self._session.close()

    def _send(self, number: int) -> None:
        if not (runs := self._books[number].streaming()):
            return
        try:
            self._stores[number].append(self._consumer, runs)
        except StoreError:
            self._later[number] = time.monotonic() + AGAIN
            raise
        if self._books[number].streaming():
            self.wake()

    def _name(self, number: int) -> str:
        return self._books[number].config.name
