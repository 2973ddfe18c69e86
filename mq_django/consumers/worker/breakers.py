"""Report to the breakers of a queue what its handlers do, and find the messages that must not run.

Failures that a breaker counts get their outcome here, because it depends on what all consumers have seen: while it is
open they are parked and not charged, else they are retried, or buried, as others.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from mq_django.conf import QueueConfig
from mq_django.consumers.decisions import send, settled_as
from mq_django.core import clock
from mq_django.core.breakers import Breaker, Counted, Hold, Results, subjects_of
from mq_django.core.logs import get_logger
from mq_django.core.messages import Ack, Bury, Delivery, HandBack, Outcome, Park, Retry
from mq_django.core.retries import retry_after
from mq_django.errors import ConfigurationError, StoreError
from mq_django.registry import Handler, find, names
from mq_django.signals import breaker_closed, breaker_opened, breaker_probed
from mq_django.stores import open_store
from mq_django.stores.base import CancelRequest, CountedFailure, Settlement, Store
from mq_django.transport.connections import open_transport

logger = get_logger(__name__)


#: Seconds between two reports of messages that were handled. Failures are reported at once.
REPORT = 1.0
#: The most subjects whose failures are remembered, and the most names whose breakers are.
MOST = 1000
#: Of a handler that has none, for the probes of a breaker that somebody has opened: any failure counts.
_BY_HAND = Breaker()


def _classes(breaker: Breaker) -> tuple[type[BaseException], ...]:
    try:
        return breaker.classes()
    except ConfigurationError as error:
        # A check at the start has said so, too. The others still count.
        logger.error("%s", error)  # noqa: TRY400 - the sentence says it
        return tuple(each for each in breaker.on if isinstance(each, type))


class Breakers:
    """The breakers of one queue in this process. Several threads settle, and so may use it.

    Args:
        config: the queue.
    """

    def __init__(self, config: QueueConfig) -> None:
        self._config = config
        #: By the name of messages.
        self._known: dict[str, Breaker | None] = {}
        self._unreported: dict[str, Results] = {}
        self._reported = 0.0
        #: Subjects of keys that have failed here, the latest last, each with the end of its time: only of these it is
        #: reported what was handled.
        self._failing: dict[str, float] = {}
        self._lock = threading.Lock()
        #: Called when one has opened or closed, so that this process knows it before its supervisor hears of it.
        self.changed: Callable[[], None] | None = None

    def counted_failure(
        self, delivery: Delivery, handler: Handler, outcome: Outcome, raised: BaseException | None
    ) -> CountedFailure | None:
        """Return what a failure that a breaker counts is about; None for what none counts."""
        breaker = handler.breaker or self._config.breaker or (_BY_HAND if delivery.probe else None)
        if breaker is None or not isinstance(outcome, Retry):
            return None
        counts = outcome.trips or breaker is _BY_HAND
        if raised is not None and breaker is not _BY_HAND:
            counts = issubclass(type(raised), _classes(breaker)) or retry_after(raised) is not None
        return CountedFailure(_reported_to(delivery, breaker), outcome.error, handler, raised) if counts else None

    def judge(self, store: Store, batch: list[Settlement]) -> list[Settlement]:
        """Return a batch with the outcomes of the failures that a breaker counts, and report it.

        Raises:
            StoreError: Redis cannot be reached, or refuses. Nothing is reported then.
        """
        with self._lock:
            at_once = any([self._note(each) for each in batch])  # noqa: C419 - each one is noted
            if not self._unreported or not (at_once or time.monotonic() - self._reported >= REPORT):
                return batch
            rows = list(self._unreported.values())
            self._unreported.clear()
        self._reported = time.monotonic()
        found = {row.subject: counted for row, counted in zip(rows, store.count_results(rows), strict=True)}
        if self.changed is not None and any(_is_news(row, found[row.subject]) for row in rows):
            self.changed()
        for row in rows:
            self._announce(row, found[row.subject])
        # A handler that is gone since has no breaker.
        return [
            self._judged(each, found.get(each.failure.subject, Counted("", ""))) if each.failure else each
            for each in batch
        ]

    def without_report(self, batch: Sequence[Settlement]) -> list[Settlement]:
        """Return a batch that cannot be reported with the outcomes of a handler without a breaker."""
        return [self._judged(each, Counted("", "")) if each.failure else each for each in batch]

    def _note(self, settlement: Settlement) -> bool:
        """Note an outcome, and return whether it is to be reported at once."""
        delivery, outcome, failure = settlement.delivery, settlement.outcome, settlement.failure
        if not isinstance(delivery, Delivery) or isinstance(outcome, HandBack):
            return False
        # What has expired, say, tells nothing about what it needs.
        has_run = settlement.micros is not None and isinstance(outcome, Ack | Retry | Bury)
        if not has_run and not delivery.probe:
            return False
        breaker = self._of(delivery.message.name) or (_BY_HAND if delivery.probe else None)
        if breaker is None:
            return False
        subject = failure.subject if failure else _reported_to(delivery, breaker)
        # A probe of another breaker than its handler's must not open it again once somebody has closed it.
        is_own = breaker is not _BY_HAND and subject == breaker.subject(delivery.message)
        if isinstance(outcome, Park) and outcome.subject == subject:
            # It is known that this probe has failed: its batch is settled again.
            return False
        if breaker.by == "key" and not failure and not delivery.probe and not self._has_failed(subject):
            return False
        row = self._unreported.get(subject) or self._unreported.setdefault(subject, Results(breaker, subject))
        if failure:
            row.failed += is_own
            row.failed_probes += bool(delivery.probe)
            row.error = failure.error
            if breaker.by == "key":
                self._remember(subject, breaker)
        elif has_run:
            row.handled += is_own
            row.probes += bool(delivery.probe)
        else:
            row.unrun_probes += 1
        return failure is not None or bool(delivery.probe)

    def _of(self, name: str) -> Breaker | None:
        if name in self._known:
            return self._known[name]
        handler = find(self._config.public_name, name)
        found = (handler.breaker if handler else None) or self._config.breaker
        if len(self._known) < MOST:
            self._known[name] = found
        return found

    def _remember(self, subject: str, breaker: Breaker) -> None:
        # As the last one: of too many the one gives way that has not failed for longest.
        self._failing.pop(subject, None)
        self._failing[subject] = time.monotonic() + _seconds(breaker.within)
        if len(self._failing) > MOST:
            del self._failing[next(iter(self._failing))]

    def _has_failed(self, subject: str) -> bool:
        until = self._failing.get(subject)
        if until is not None and until < time.monotonic():
            del self._failing[subject]
            return False
        return until is not None

    def _judged(self, settlement: Settlement, counted: Counted) -> Settlement:
        delivery, failure = settlement.delivery, settlement.failure
        assert failure is not None
        assert isinstance(delivery, Delivery)
        if counted.holds:
            return Settlement(delivery, Park(failure.subject, counted.first_ms))
        if settlement.uncharged:
            return settlement
        handler, micros, raised = failure.handler, settlement.micros, failure.raised
        final = settled_as(delivery, settlement.outcome, handler, micros=micros, exception=raised)
        if isinstance(final.outcome, Bury) and handler.ended is not None:
            handler.ended(delivery.message, final.outcome, (micros or 0) / 1e6, raised)
        return final

    def _announce(self, row: Results, counted: Counted) -> None:
        """Log a change of a breaker, and send its signal: of all consumers the one that has caused it does so."""
        queue, kind, value = self._config.public_name, *row.subject.split(":", 1)
        about = {"queue": queue, "kind": kind, "value": value}
        what = f"queue {queue}" if kind == "queue" else f"{kind} {value!r} of queue {queue}"
        if counted.after == "open" and counted.before not in ("open", "ramp"):
            text = "The breaker of %s is open, %d of %d failed: its messages wait until a probe is handled. %s"
            logger.warning(text, what, counted.failed, row.breaker.of, row.error)
            send(breaker_opened, Breaker, **about, error=row.error, failed=counted.failed, of=row.breaker.of)
        elif row.probes or row.failed_probes:
            send(breaker_probed, Breaker, **about, succeeded=not row.failed_probes, error=row.error)
            if counted.after == "ended":
                logger.warning("The breaker of %s is closed: its messages are made ready", what)
                send(breaker_closed, Breaker, **about)


def _is_news(row: Results, counted: Counted) -> bool:
    """Return whether this process may not know the state of a breaker: it has changed, or no probe has failed."""
    return counted.before != counted.after or (counted.holds and row.failed > row.failed_probes)


def _reported_to(delivery: Delivery, breaker: Breaker) -> str:
    """Return the subject to which it is reported how a message has ended: of a probe, that of its hold."""
    # Any program may have written the entry.
    return delivery.probe if delivery.probe in subjects_of(delivery.message) else breaker.subject(delivery.message)


def _seconds(value: object) -> float:
    assert isinstance(value, timedelta)
    return value.total_seconds()


def breakers_of(config: QueueConfig) -> Breakers | None:
    """Return the breakers of a queue; None if neither it nor a handler of it has one, or it is in RSMQ's format."""
    if config.store == "rsmq":
        return None
    found = (find(config.public_name, name) for name in names(config.public_name))
    return Breakers(config) if config.breaker or any(each and each.breaker for each in found) else None


# The messages of a queue that must not run: to be cancelled although they do not wait, or held.


class _Unread(dict[str, CancelRequest]):
    """Any message may be among them: a consumer that has just started may fetch before it has read the requests."""

    def __bool__(self) -> bool:
        return True

    def __contains__(self, message_id: object) -> bool:
        return True


class Cancels:
    """The messages of one queue that are to be cancelled. Nearly always there are none."""

    def __init__(self, store: Store) -> None:
        #: For any thread: its transport takes a connection for each round trip.
        self._store = store
        self.queue = store.config.name
        #: The requests, by the ids of the messages.
        self.ids: Mapping[str, CancelRequest] = _Unread()
        #: What is held, by subject.
        self.holds: Mapping[str, Hold] = {}
        #: Whether any message may be among them: asked for each message.
        self.any = True

    def read(self) -> None:
        """Read the requests and the holds.

        Raises:
            StoreError: Redis cannot be reached, or refuses.
        """
        self.holds, self.ids = self._store.current_holds(), self._store.cancel_requests()
        self.any = bool(self.ids or self.holds)

    def forget(self) -> None:
        """Have them read before the next message starts."""
        self.ids, self.any = _Unread(), True

    def is_current(self, delivery: Delivery) -> bool:
        """Return whether a message that is to be cancelled still is: it may have been redriven since.

        Raises:
            StoreError: Redis cannot be reached, or refuses.
        """
        return self._store.is_cancelled(delivery)

    def held(self, delivery: Delivery) -> Park | None:
        """Return the outcome of a message that is held, or None. A probe passes breakers, but not what people hold."""
        if not self.holds:
            return None
        now = clock.now_ms()
        for hold in filter(None, map(self.holds.get, subjects_of(delivery.message))):
            if hold.holds(now) and not (delivery.probe and hold.by_breaker):
                return Park(hold.subject, hold.first_ms)
        return None

    def has(self, delivery: Delivery) -> bool | None:
        """Return whether a message is to be cancelled before it starts; None if Redis cannot say so now."""
        message_id = delivery.message.id
        try:
            if isinstance(self.ids, _Unread):
                self.read()
            # Which of the messages with this id is meant, is_current() knows.
            return message_id in self.ids and self.is_current(delivery)
        except StoreError as error:
            logger.warning("It is not known whether message %s is still to be cancelled: %s", message_id, error)
            return None


def open_cancels(queues: Sequence[QueueConfig]) -> list[Cancels]:
    """Return the messages of each queue that are to be cancelled."""
    return [Cancels(open_store(config, open_transport("chores", config.connection))) for config in queues]
