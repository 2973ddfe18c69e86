"""The metrics of a consumer process."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any

from mq_django.core.messages import Delivery
from mq_django.core.outcomes import Ack, Bury, Cancel, Expire, HandBack, Outcome, Retry, SetAside, StepEnd
from mq_django.observability.prometheus_package import prometheus_client
from mq_django.registry import find
from mq_django.stores.base import Settlement

#: The label of messages for which no handler is registered here. Names are foreign input, and their number has no
#: limit.
OTHER = "other"

OUTCOMES: dict[type[Outcome], str] = {
    Ack: "handled",
    StepEnd: "handled",
    Retry: "retried",
    Bury: "buried",
    Expire: "expired",
    Cancel: "cancelled",
    HandBack: "handed_back",
    SetAside: "unhandled",
}

#: Seconds: of handlers; of round trips; between a message that is ready and its fetch.
DURATIONS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
TRIPS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
LAGS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)

#: Parts of a second, about microseconds. Sums of binary fractions are exact, so those of several processes are the same
#: in each order. Sums of other numbers differ in the last digit, and Prometheus takes a smaller one for a restart.
FRACTIONS = 2**20


class ConsumerMetrics:
    """Measures a consumer process. See `ConsumerMeasurer`."""

    def __init__(self) -> None:
        # Without a registry: all metrics of a process in multiprocess mode are served.
        counter, histogram = prometheus_client.Counter, prometheus_client.Histogram
        self._handlers = histogram(
            "mq_django_handler_duration_seconds",
            "How long handlers ran, by the outcome of the attempt.",
            ["queue", "handler", "outcome"],
            buckets=DURATIONS,
            registry=None,
        )
        self._fetches = counter("mq_django_fetches_total", "Fetches that returned messages.", ["queue"], registry=None)
        self._fetched = counter("mq_django_fetched_messages_total", "Messages fetched.", ["queue"], registry=None)
        self._fetch_seconds = histogram(
            "mq_django_fetch_duration_seconds",
            "Round trips that returned messages and did not wait for them.",
            ["queue"],
            buckets=TRIPS,
            registry=None,
        )
        self._settled = counter(
            "mq_django_settled_messages_total", "Settled deliveries, by outcome.", ["queue", "outcome"], registry=None
        )
        self._settle_seconds = histogram(
            "mq_django_settle_duration_seconds",
            "Round trips that settled a batch of outcomes.",
            ["queue"],
            buckets=TRIPS,
            registry=None,
        )
        self._lag = histogram(
            "mq_django_wakeup_lag_seconds",
            "Time from a message being ready to its fetch by a consumer that waited for messages.",
            ["queue"],
            buckets=LAGS,
            registry=None,
        )

    def fetched(self, queue: str, messages: int, seconds: float | None) -> None:
        """Note a fetch that returned messages, and how long its round trip took; None: it waited for messages."""
        _child(self._fetches, queue).inc()
        _child(self._fetched, queue).inc(messages)
        if seconds is not None:
            _child(self._fetch_seconds, queue).observe(_summable(seconds))

    def woken(self, queue: str, seconds: float) -> None:
        """Note how long after a message became ready a read that waited for it returned it."""
        _child(self._lag, queue).observe(_summable(seconds))

    def settled(self, queue: str, settlements: Sequence[Settlement], seconds: float) -> None:
        """Note a batch of outcomes, and how long its round trip took."""
        _child(self._settle_seconds, queue).observe(_summable(seconds))
        counts = Counter(type(settlement.outcome) for settlement in settlements)
        for kind, count in counts.items():
            _child(self._settled, queue, OUTCOMES[kind]).inc(count)
        durations: dict[tuple[str, type[Outcome]], list[float]] = defaultdict(list)
        for delivery, outcome, _, micros, *_ in settlements:
            if micros is not None and isinstance(delivery, Delivery):
                durations[delivery.message.name, type(outcome)].append(micros / 1e6)
        for (name, kind), found in durations.items():
            _observe(_child(self._handlers, queue, _label(queue, name), OUTCOMES[kind]), found)


@cache
def _child(metric: Any, *labels: str) -> Any:
    """Return the metric with these labels: labels() takes a lock and much longer. The number of labels is bounded."""
    return metric.labels(*labels)


def _observe(histogram: prometheus_client.Histogram, durations: Sequence[float]) -> None:
    """Add durations to a histogram, each of its numbers once: observe() would write two for each message."""
    histogram._sum.inc(_summable(sum(durations)))  # noqa: SLF001 - there is no public method for several values
    for bucket, count in Counter(bisect_left(DURATIONS, seconds) for seconds in durations).items():
        histogram._buckets[bucket].inc(count)  # noqa: SLF001


def _summable(seconds: float) -> float:
    """Return the seconds in whole fractions, whose sums are exact."""
    return round(seconds * FRACTIONS) / FRACTIONS


def _label(queue: str, name: str) -> str:
    """Return the name under which a handler is registered; of a subscriber of all names its path."""
    handler = find(queue, name)
    return OTHER if handler is None else handler.name or handler.where or OTHER
