"""The metrics of a supervisor, which has no files: it serves them itself."""

import threading
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from mq_django.observability.prometheus_package import prometheus_client

#: Seconds between the due time of a message and its promotion.
LAGS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30)
LIMITS = [*map(str, map(float, LAGS)), "+Inf"]


class SupervisorMetrics:
    """Measures a supervisor, and is a collector of prometheus_client. See `SupervisorMeasurer`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Queue -> the number of promotions by bucket, of which the last has no limit, and their sum in seconds.
        self._promotions: dict[str, tuple[list[int], float]] = {}
        self._outages = 0

    def promoted(self, queue: str, seconds: float) -> None:
        """Note how long after its due time a message was made ready."""
        with self._lock:
            counts, total = self._promotions.get(queue, ([0] * (len(LAGS) + 1), 0.0))
            counts[bisect_left(LAGS, seconds)] += 1
            self._promotions[queue] = counts, total + seconds

    def lost_redis(self) -> None:
        """Note that a server of Redis can no longer be reached."""
        with self._lock:
            self._outages += 1

    def collect(self) -> Iterator[Any]:
        """Yield the metrics."""
        name = "mq_django_promotion_lag_seconds"
        lags = prometheus_client.Metric(
            name, "How long after the due time of the first delayed message it was made ready.", "histogram"
        )
        outages = prometheus_client.Metric(
            "mq_django_redis_outages", "How often a Redis server could not be reached any more.", "counter"
        )
        with self._lock:
            for queue, (counts, total) in sorted(self._promotions.items()):
                for limit, count in zip(LIMITS, accumulate(counts), strict=True):
                    lags.add_sample(f"{name}_bucket", {"queue": queue, "le": limit}, count)
                lags.add_sample(f"{name}_count", {"queue": queue}, sum(counts))
                lags.add_sample(f"{name}_sum", {"queue": queue}, total)
            outages.add_sample("mq_django_redis_outages_total", {}, self._outages)
        yield lags
        yield outages
