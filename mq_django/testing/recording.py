"""Record what is published, and find it again."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import NoReturn, Self, Unpack

from mq_django.core.publication import Publication
from mq_django.producers.sinks import publication_sent
from mq_django.producers.workflow_run import Run, run_started
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
from mq_django.testing.relaying import waiting as in_outbox
from mq_django.testing.started_runs import StartedRuns
from mq_django.testing.transactions import pending

#: The most records that a text shows.
MAX_RECORDS = 20


class Records(list[Published]):
    """Published messages. The text of an empty list names other messages that were published or wait for a commit."""

    def __init__(self, found: Iterable[Published] = (), *, others: Sequence[Published] = (), asked: str = "") -> None:
        super().__init__(found)
        self._others = others
        self._asked = asked
        self._waiting = pending()
        waiting = {record.id for record in self._waiting}
        self._in_outbox = [record for record in in_outbox() if record.id not in waiting]

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
            (self._in_outbox, "in an outbox: call mq.relay()"),
        )
        return "\n".join(_waiting(records, where) for records, where in found if records)


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
