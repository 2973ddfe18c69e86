"""Save what running handlers report, send what they stream, and note which tasks are running."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

from mq_django.consumers.by_server import ServerQueues
from mq_django.consumers.service import Service
from mq_django.consumers.shared_state import Receipt, SharedState
from mq_django.consumers.worker.call_path import Slot
from mq_django.consumers.worker.settler import ReportBook
from mq_django.core import clock
from mq_django.core.logs import get_logger
from mq_django.errors import StoreError
from mq_django.stores import open_store
from mq_django.stores.results import RunningTask, note_running, save
from mq_django.transport.cluster_transport import AnySession
from mq_django.transport.sessions import Transport

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
