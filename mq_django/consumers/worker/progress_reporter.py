"""Save what running handlers report, and which tasks are running."""

from collections.abc import Iterator, Mapping, Sequence

from mq_django.consumers.by_server import ServerQueues, assign, open_session_to
from mq_django.consumers.service import Service
from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.worker.canceller import Lane
from mq_django.consumers.worker.lanes import RunningState
from mq_django.consumers.worker.report_book import ReportBook
from mq_django.consumers.worker.running_tasks import RunningTasks
from mq_django.core.logs import get_logger
from mq_django.errors import StoreError
from mq_django.stores.progress_reports import save
from mq_django.transport.cluster_wires import AnySession

logger = get_logger(__name__)

#: Seconds between two rounds: how much of its work a handler repeats after its process was killed.
EVERY = 1.0


class ProgressReporter(Service):
    """Looks once a second at the running handlers of one server's queues.

    It saves what has changed in their reports, and notes in the results of tasks that these are running.
    """

    name = "progress reporter"

    def __init__(
        self, books: Mapping[int, ReportBook], tasks: RunningTasks, shared_state: RunningState, session: AnySession
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


def progress_reporters(
    servers: Mapping[str, ServerQueues],
    books: Sequence[ReportBook],
    consumer: str,
    shared_state: SharedState,
    places: Sequence[Lane],
) -> Iterator[ProgressReporter]:
    """Yield a reporter for the queues on each server."""
    for share in servers.values():
        tasks = RunningTasks(share, consumer, shared_state, places)
        reporter = ProgressReporter(
            {number: books[number] for number in share}, tasks, shared_state, open_session_to(share)
        )
        assign([reporter], share.values(), servers=len(servers))
        yield reporter
