"""Record what is published and which runs of workflows are started, and find it again."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any, NoReturn, Self, SupportsIndex, Unpack, overload

from django.core.exceptions import SynchronousOnlyOperation

from mq_django.conf import get_config
from mq_django.core.publication import Publication
from mq_django.core.texts import repr_of
from mq_django.errors import TestKitError, UnknownRun
from mq_django.inspector import workflow_runs
from mq_django.producers.sinks import publication_sent
from mq_django.producers.workflow_run import Run, by_run, do, run_started
from mq_django.producers.workflow_steps import StepDelivery, open_homes
from mq_django.testing.published import (
    Criteria,
    Published,
    check_destination,
    comparison,
    described,
    differences,
    expected_values,
    nearest,
    published_of,
)
from mq_django.testing.transactions import pending, pending_runs
from mq_django.testing.transactions import waiting as in_outbox
from mq_django.transport.connections import open_transport

# The runs of workflows that a test has started, and what supervisors do for them.

#: The most runs that a text shows, and the most characters of an error in it.
MAX_RUNS, MAX_ERROR = 20, 300
#: How old what is left has to be: nobody else works on it. The clock of a test can go back by a moment.
AGE_MS = -1000


class StartedRuns(list[Run]):
    """Runs of workflows, in the order in which they were started. The text of the list has the state of each."""

    def __init__(self, found: Iterable[Run] = ()) -> None:
        super().__init__(found)
        self._waiting = pending_runs()

    @overload
    def __getitem__(self, at: SupportsIndex, /) -> Run: ...

    @overload
    def __getitem__(self, at: slice, /) -> list[Run]: ...

    def __getitem__(self, at: SupportsIndex | slice, /) -> Run | list[Run]:
        """Return a run, or several. The error for one that is not there tells which runs there are."""
        __tracebackhide__ = True
        try:
            return super().__getitem__(at)
        except IndexError:
            raise IndexError(f"there is no run {at}: {self!r}") from None

    def get(self, workflow: Any = None, /, *, name: str | None = None, state: str | None = None) -> Run:
        """Return the one run that matches.

        Args:
            workflow: a workflow; None: any.
            name: the name of a workflow; None: any.
            state: building, running, succeeded, failed, cancelled or expired; None: any.

        Raises:
            AssertionError: there is none, or more than one. It tells which runs there are.
            TestKitError: `workflow` is no workflow, or there is no such state.
            StoreError: Redis cannot be reached.
        """
        __tracebackhide__ = True
        asked = {"name": name, "state": state} | ({} if workflow is None else {"name": _name_of(workflow)})
        if state is not None and state not in workflow_runs.RUN_STATES:
            raise TestKitError(f"state= is one of {', '.join(workflow_runs.RUN_STATES)}, not {repr_of(state)}")
        found = [run for run in self if asked["name"] in (None, run.name) and state in (None, _state(run))]
        if len(found) == 1:
            return found[0]
        text = " and ".join(f"{what} {repr_of(value)}" for what, value in asked.items() if value is not None)
        raise AssertionError(f"expected 1 run with {text or 'any name and state'}, found {len(found)}: {self!r}")

    def __repr__(self) -> str:
        """Return one run a line, with its state; for an empty list why it is empty."""
        more = [f"  and {len(self) - MAX_RUNS} more"] if len(self) > MAX_RUNS else []
        lines = [f"  {_line(run)}" for run in self[:MAX_RUNS]] + more
        if lines:
            return "\n".join(["[", *lines, "]", *filter(None, [self.waiting()])])
        return f"[]: {self.waiting() or 'no run was started'}"

    def waiting(self) -> str:
        """Return the runs that wait for a commit as text; empty if there are none."""
        count = len(self._waiting)
        if not count:
            return ""
        waits = "1 run of a workflow waits" if count == 1 else f"{count} runs of workflows wait"
        names = "\n".join(f"  {run.name}" for run in self._waiting[:MAX_RUNS])
        return f"{waits} for the commit: call mq.commit()\n{names}"


def run_supervised() -> int:
    """Do what a supervisor does for workflows, and return how much there was to do.

    Passes on how steps have ended whose messages were deleted or redriven, publishes steps that a full queue has
    refused, and ends runs that have expired.
    """
    found = [(home, left) for home in open_homes() if (left := home.left(age_ms=AGE_MS)) is not None]
    if not found:
        return 0
    done = 0
    for queue in get_config().each_part():
        if "step" not in queue.unsupported:
            done += StepDelivery(queue, open_transport("consume", queue.connection)).deliver_left(age_ms=AGE_MS)
    for home, left in found:
        for work in by_run(left):
            do(home, work)
            done += 1
    return done


def _name_of(workflow: Any) -> str:
    name = getattr(workflow, "name", None)
    if not hasattr(workflow, "start") or not isinstance(name, str):
        raise TestKitError(f"get() takes a workflow, or name=, not {repr_of(workflow)}")
    return name


def _state(run: Run) -> str:
    try:
        return run.state
    except UnknownRun:
        return ""


def _line(run: Run) -> str:
    view = workflow_runs.run(run.id)
    if view is None:
        return f"{run.name}: deleted, or ended more than a week ago"
    counts = {"failed": view.failed, "skipped": view.skipped, "started": view.started, "waiting": view.waiting}
    parts = [f"{view.done} of {view.total} steps done", *(f"{count} {word}" for word, count in counts.items() if count)]
    failed = workflow_runs.failure(run.id) if view.failed else None
    error = f"; step {failed[0]}: {failed[1][:MAX_ERROR]}" if failed else ""
    return f"{run.name}: {view.state}, {', '.join(parts)}{error}"


# Record what is published, and find it again.

#: The most records that a text shows.
MAX_RECORDS = 20


class Records(list[Published]):
    """Published messages. The text of an empty list names other messages that were published or wait for a commit."""

    def __init__(self, found: Iterable[Published] = (), *, others: Sequence[Published] = (), asked: str = "") -> None:
        super().__init__(found)
        self._others = others
        self._asked = asked
        self._waiting = pending()

    def __repr__(self) -> str:
        """Return one record a line."""
        if self:
            return f"[\n{_lines(self)}\n]"
        return f"[]: {self._why()}"

    def _why(self) -> str:
        """Return why nothing was found. What to do comes first, because pytest may cut a text."""
        published = f"no message has {self._asked or 'this'}; published were\n{_lines(self._others)}"
        parts = [self.waiting(), published if self._others else ""]
        return "\n".join(filter(None, parts)) or "nothing was published"

    def waiting(self) -> str:
        """Return the messages that wait for a commit, or in an outbox, as text; empty if there are none."""
        found = (
            (self._waiting, "for the commit: call mq.commit()"),
            (self._in_outbox(), "in an outbox: call mq.relay()"),
        )
        return "\n".join(_waiting(records, where) for records, where in found if records)

    def _in_outbox(self) -> list[Published]:
        """Return the other messages in an outbox. An event loop cannot read them, and goes without them."""
        waiting = {record.id for record in self._waiting}
        with suppress(SynchronousOnlyOperation):
            return [record for record in in_outbox() if record.id not in waiting]
        return []


def _waiting(records: Sequence[Published], where: str) -> str:
    count = len(records)
    waits = "1 message waits" if count == 1 else f"{count} messages wait"
    return f"{waits} {where}\n{_lines(records)}"


class Recorder:
    """Records what this process publishes, and the runs that it starts, while it is active, in all threads.

        with Recorder() as recorder:
            publish()
        assert recorder.published("emails", "welcome")

    A message is recorded when Redis has accepted it. One that was not written, because another one keeps its unique key
    or a topic had it already, is not recorded.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._sent: list[Publication] = []
        self._runs: list[Run] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to record."""
        publication_sent.connect(self._on_sent)
        run_started.connect(self._on_run_started)

    def stop(self) -> None:
        """Stop recording. The records stay."""
        publication_sent.disconnect(self._on_sent)
        run_started.disconnect(self._on_run_started)

    @contextmanager
    def _paused(self) -> Iterator[None]:
        """Record nothing while a block runs."""
        Recorder.stop(self)
        try:
            yield
        finally:
            Recorder.start(self)

    def _on_sent(self, publication: Publication, message_id: str, **_: object) -> None:
        if publication.message.id == message_id:
            with self._lock:
                self._sent.append(publication)

    def _on_run_started(self, run: Run, **_: object) -> None:
        with self._lock:
            self._runs.append(run)

    def clear(self) -> None:
        """Forget all records."""
        with self._lock:
            self._sent.clear()
            self._runs.clear()

    @property
    def workflows(self) -> StartedRuns:
        """The runs of workflows that were started, in order."""
        with self._lock:
            return StartedRuns(self._runs)

    def published(self, queue: str | None = None, name: str | None = None, **criteria: Unpack[Criteria]) -> Records:
        """Return the messages that were published and match, in order.

        Args:
            queue: the name of a queue, a topic or a group; None: all.
            name: the name of the message; None: all.
            criteria: `data`, `key`, `unique`, `headers`, `priority`, `delay`, `deliver_at`; of a task also `task` (the
                task or its path), `args` and `kwargs`.

        Raises:
            UnknownQueue: there is no such queue or topic.
            InvalidMessage: `delay` or `deliver_at` is not a duration or a datetime.
            TestKitError: `task` is no task.
        """
        expected = expected_values(queue, name, criteria)
        records = self._records()
        found = [record for record in records if differences(record, expected) == []]
        return Records(found, others=records, asked=described(expected))

    def assert_published(
        self,
        queue: str | None = None,
        name: str | None = None,
        *,
        count: int | None = None,
        **criteria: Unpack[Criteria],
    ) -> None:
        """Check that messages were published.

        Args:
            queue, name, criteria: as for published().
            count: how many; None: at least one.

        Raises:
            AssertionError: there are none, or another number. It tells what was published, and what the most similar
                message has instead.
            UnknownQueue: there is no such queue or topic.
            InvalidMessage: `delay` or `deliver_at` is not a duration or a datetime.
            TestKitError: `task` is no task.
        """
        __tracebackhide__ = True
        expected = expected_values(queue, name, criteria)
        found = self.published(queue, name, **criteria)
        if found if count is None else len(found) == count:
            return
        number = "at least one message" if count is None else "1 message" if count == 1 else f"{count} messages"
        text = f"expected {number} with {described(expected) or 'any content'}, found {len(found)}: {found!r}"
        similar = None if found else nearest(self._records(), expected)
        more = [found.waiting() if found else "", "" if similar is None else comparison(similar, expected)]
        _fail("\n".join(filter(None, [text, *more])))

    def assert_nothing_published(self, queue: str | None = None) -> None:
        """Check that nothing was published, and that nothing waits for a commit.

        Args:
            queue: the name of a queue, a topic or a group; None: all.

        Raises:
            AssertionError: something was. It tells what.
            UnknownQueue: there is no such queue or topic.
        """
        __tracebackhide__ = True
        if queue is not None:
            check_destination(queue)
        found = [record for record in self._records() if queue in (None, record.queue)]
        waiting = [record for record in pending() if queue in (None, record.queue)]
        if found:
            _fail(f"expected that nothing is published, found {len(found)}:\n{_lines(found)}")
        if waiting:
            _fail(f"expected that nothing is published, but {len(waiting)} will be at the commit:\n{_lines(waiting)}")

    def _records(self) -> list[Published]:
        with self._lock:
            sent = list(self._sent)
        return [published_of(publication) for publication in sent]


def _lines(records: Sequence[Published]) -> str:
    lines = [f"  {record!r}" for record in records[:MAX_RECORDS]]
    more = len(records) - len(lines)
    return "\n".join([*lines, f"  and {more} more"] if more else lines)


def _fail(text: str) -> NoReturn:
    __tracebackhide__ = True
    raise AssertionError(text)
