"""The metrics of the processes of one `runconsumer`: its consumers write them to files, its supervisor serves them."""

import mmap
import os
import struct
import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from mq_django.consumers.measuring import Measurers
from mq_django.consumers.processes import private_folder
from mq_django.consumers.service import Service
from mq_django.consumers.supervisor.health import Answer, Route
from mq_django.core.logs import get_logger
from mq_django.core.messages import (
    Ack,
    Bury,
    Cancel,
    Delivery,
    Expire,
    HandBack,
    Outcome,
    Park,
    Retry,
    SetAside,
    StepDrop,
    StepEnd,
)
from mq_django.observability.prometheus_package import core, mmap_dict, multiprocess, prometheus_client, values
from mq_django.registry import find
from mq_django.stores.base import Settlement

# Files of metrics that cannot end their process.
#
# prometheus_client writes metrics to files that are mapped into memory and not allocated. When the disk is full, such
# a write ends the process with SIGBUS. Here files are allocated before they are mapped. If that fails, the process
# goes on with memory of its own, so that its handlers do not notice it, and its metrics are served as they were at
# that time.

logger = get_logger(__name__)

#: Bytes of a new file. It doubles when it is full.
NEW = 1 << 16
#: Bytes before the first entry.
HEAD = 8
#: The most bytes of an entry, beside its key.
ENTRY = 32

FULL = "The metrics of process %d are served without its later changes: %s"


def use_allocated_files() -> None:
    """Let prometheus_client use these files. Called before metrics are defined."""
    values.MmapedDict = AllocatedDict  # type: ignore[attr-defined]


class AllocatedDict(mmap_dict.MmapedDict):
    """The values of a process in a file that is allocated, or else in memory."""

    #: The open file; None: the values are in memory.
    _f: Any

    def __init__(self, filename: str, read_mode: bool = False) -> None:
        try:
            _create(Path(filename))
            super().__init__(filename, read_mode)  # type: ignore[no-untyped-call]
        except (OSError, ValueError, RuntimeError, struct.error) as error:
            if file := getattr(self, "_f", None):
                file.close()
            self._f, self._fname, self._positions, self._used = None, filename, {}, HEAD
            self._capacity, self._m = NEW, mmap.mmap(-1, NEW)
            _log(error)

    def _init_value(self, key: str) -> None:
        needed = self._used + len(key.encode()) + ENTRY
        if needed > self._capacity:
            self._grow(needed)
        super()._init_value(key)  # type: ignore[no-untyped-call]

    def _grow(self, needed: int) -> None:
        capacity = self._capacity
        while capacity < needed:
            capacity *= 2
        try:
            if self._f is not None:
                _write_zeros(self._f.fileno(), capacity - self._capacity)
                self._m = mmap.mmap(self._f.fileno(), capacity)
        except OSError as error:
            self._f.close()
            self._f = None
            _log(error)
        if self._f is None:
            content = self._m[: self._used]
            self._m = mmap.mmap(-1, capacity)
            self._m[: self._used] = content
        self._capacity = capacity


def _create(path: Path) -> None:
    """Create a file of zeros. Under another name first, because readers do not expect an empty file."""
    if path.exists():
        return
    new = path.with_suffix(".new")
    try:
        with new.open("wb") as file:
            _write_zeros(file.fileno(), NEW)
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def _write_zeros(file: int, size: int) -> None:
    """Append zeros, which allocates them on all systems."""
    zeros = memoryview(bytes(size))
    while zeros:
        zeros = zeros[os.write(file, zeros) :]


def _log(error: Exception) -> None:
    # In another thread, because prometheus_client holds its lock, and a project may count its log lines in a metric.
    threading.Thread(target=logger.error, args=(FULL, os.getpid(), error), daemon=True).start()


#: In the name of a file in the place of a process id.
ENDED = "ended"

#: A number, and for some gauges when it was set.
Value = tuple[float, float]


def merge_ended(folder: Path) -> None:
    """Add the files of ended processes to the totals, and delete them.

    Gauges that are for live processes only, or have a value for each process, are deleted with their process.

    Raises:
        OSError: the totals cannot be written. The files stay.
    """
    for kind, paths in _ended_files(folder).items():
        total = folder / f"{kind}_{ENDED}.db"
        if kind == "gauge_all" or kind.startswith("gauge_live"):
            values: Mapping[str, Value] = {}
        else:
            values = _merged(kind, [*([total] if total.exists() else []), *paths])
        if values:
            _write(total, values)
        for path in paths:
            path.unlink(missing_ok=True)


def _ended_files(folder: Path) -> Mapping[str, Sequence[Path]]:
    """Return the files of processes that have ended, by kind, such as `counter` or `gauge_max`."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in folder.glob("*.db"):
        kind, _, process = path.stem.rpartition("_")
        if process.isdecimal() and not _is_alive(int(process)):
            found[kind].append(path)
    return found


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another user
        return True
    return True


def _merged(kind: str, paths: Sequence[Path]) -> Mapping[str, Value]:
    merged: dict[str, Value] = {}
    for path in paths:
        for key, value in _read(path):
            merged[key] = _sum(kind, merged[key], value) if key in merged else value
    return merged


def _sum(kind: str, one: Value, other: Value) -> Value:
    if kind == "gauge_min":
        return min(one, other)
    if kind == "gauge_max":
        return max(one, other)
    if kind == "gauge_mostrecent":
        return max(one, other, key=lambda value: value[1])
    return one[0] + other[0], 0.0


def _read(path: Path) -> Sequence[tuple[str, Value]]:
    try:
        entries = mmap_dict.MmapedDict.read_all_values_from_file(str(path))
        return [(key, (value, timestamp)) for key, value, timestamp, _ in entries]
    except (ValueError, RuntimeError, struct.error) as error:
        logger.warning("A damaged file of metrics is ignored: %s: %s", path.name, error)
        return []


def _write(path: Path, values: Mapping[str, Value]) -> None:
    new = path.with_suffix(".new")
    try:
        # Allocated first, because the file is then mapped into memory, and must not be full: see AllocatedDict.
        new.write_bytes(bytes(HEAD + sum(len(key.encode()) + ENTRY for key in values)))
        file = mmap_dict.MmapedDict(str(new))
        try:
            for key, value in values.items():
                file.write_value(key, *value)
        finally:
            file.close()
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise


#: The label of messages for which no handler is registered here. Names are foreign input, and their number has no
#: limit.
OTHER = "other"

OUTCOMES: dict[type[Outcome], str] = {
    Ack: "handled",
    StepEnd: "handled",
    StepDrop: "cancelled",
    Retry: "retried",
    Bury: "buried",
    Expire: "expired",
    Cancel: "cancelled",
    HandBack: "handed_back",
    SetAside: "unhandled",
    Park: "held",
}

#: Seconds: of handlers; of round trips; between a message that is ready and its fetch.
DURATIONS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
PIPELINES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
LAGS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)

#: Parts of a second, about microseconds. Sums of binary fractions are exact, so sums of several processes are the same
#: in each order. Sums of other numbers differ in the last digit, and Prometheus takes a smaller one for a restart.
FRACTIONS = 2**20


class ConsumerMetrics:
    """Measures a consumer process. See `ConsumerMeasurer`."""

    def __init__(self) -> None:
        # Without a registry: all metrics of a process in multiprocess mode are served.
        counter = partial(prometheus_client.Counter, registry=None)
        histogram = partial(prometheus_client.Histogram, registry=None)
        of_queue = partial(histogram, labelnames=["queue"])
        self._handlers = histogram(
            "mq_django_handler_duration_seconds",
            "How long handlers ran, by the outcome of the attempt.",
            ["queue", "handler", "outcome"],
            buckets=DURATIONS,
        )
        self._fetches = counter("mq_django_fetches_total", "Fetches that returned messages.", ["queue"])
        self._fetched = counter("mq_django_fetched_messages_total", "Messages fetched.", ["queue"])
        self._fetch_seconds = of_queue(
            "mq_django_fetch_duration_seconds",
            "Round trips that returned messages and did not wait for them.",
            buckets=PIPELINES,
        )
        self._settled = counter(
            "mq_django_settled_messages_total", "Settled deliveries, by outcome.", ["queue", "outcome"]
        )
        self._settle_seconds = of_queue(
            "mq_django_settle_duration_seconds", "Round trips that settled a batch of outcomes.", buckets=PIPELINES
        )
        self._lag = of_queue(
            "mq_django_wakeup_lag_seconds",
            "Time from a message being ready to its fetch by a consumer that waited for messages.",
            buckets=LAGS,
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


# The metrics of a supervisor, which has no files: it serves them itself.

#: Seconds between the due time of a message and its promotion.
PROMOTION_LAGS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30)
LIMITS = [*map(str, map(float, PROMOTION_LAGS)), "+Inf"]


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
            counts, total = self._promotions.get(queue, ([0] * (len(PROMOTION_LAGS) + 1), 0.0))
            counts[bisect_left(PROMOTION_LAGS, seconds)] += 1
            self._promotions[queue] = counts, total + seconds

    def lost_redis(self) -> None:
        """Note that a server of Redis can no longer be reached."""
        with self._lock:
            self._outages += 1

    def collect(self) -> Iterator[Any]:
        """Yield the metrics."""
        lags = core.HistogramMetricFamily(
            "mq_django_promotion_lag_seconds",
            "How long after the due time of the first delayed message it was made ready.",
            labels=["queue"],
        )
        outages = core.CounterMetricFamily(
            "mq_django_redis_outages", "How often a Redis server could not be reached any more."
        )
        with self._lock:
            for queue, (counts, total) in sorted(self._promotions.items()):
                lags.add_metric([queue], list(zip(LIMITS, accumulate(counts), strict=True)), total)
            outages.add_metric([], self._outages)
        yield lags
        yield outages


#: The variable in which prometheus_client finds the folder for its files.
VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
#: The begin of the names of our folders.
PREFIX = "mq_django-metrics-"
#: Seconds between two checks for files of ended processes.
EVERY = 2.0

NO_FOLDER = "The consumers are not measured, because there can be no folder for their metrics: %s"


class ProcessMetrics(Service):
    """Serves the metrics of a supervisor and its consumers, and merges the files of ended ones.

    Args:
        folder: where consumers write; None: they are not measured.
    """

    name = "metrics files"

    def __init__(self, folder: Path | None) -> None:
        super().__init__()
        self._folder = folder
        self._lock = threading.Lock()
        self.supervisor = SupervisorMetrics()
        self._registry = prometheus_client.CollectorRegistry()
        self._registry.register(self.supervisor)
        if folder is not None:
            multiprocess.MultiProcessCollector(self._registry, str(folder))

    @property
    def module(self) -> str:
        """Return the module that runs the command line of a consumer."""
        return "django" if self._folder is None else "mq_django.observability.measured_process"

    @property
    def environment(self) -> Mapping[str, str]:
        """Return what is added to the environment of a consumer."""
        return {} if self._folder is None else {VARIABLE: str(self._folder)}

    def routes(self) -> dict[str, Route]:
        """Return the function that answers for each path."""
        return {"/metrics": self.answer}

    def answer(self) -> Answer:
        """Return the metrics in the text format of Prometheus."""
        with self._lock:
            return Answer(200, prometheus_client.CONTENT_TYPE_LATEST, prometheus_client.generate_latest(self._registry))

    def run_once(self) -> float:
        """Merge the files of ended processes, so that they do not pile up."""
        if self._folder is not None:
            with self._lock:
                merge_ended(self._folder)
        return EVERY


@contextmanager
def measuring() -> Iterator[ProcessMetrics]:
    """Measure this supervisor, and the consumers that it starts inside."""
    with ExitStack() as stack:
        metrics = ProcessMetrics(_folder(stack))
        Measurers.supervisor = metrics.supervisor
        metrics.start()
        try:
            yield metrics
        finally:
            Measurers.supervisor = None
            metrics.stop()
            metrics.join(EVERY)
            _end_own_gauges()


def _end_own_gauges() -> None:
    """End the live gauges of this process in the project's folder, if there is one: other programs may serve it."""
    folder = os.environ.get(VARIABLE)
    if folder:
        with suppress(OSError):
            multiprocess.mark_process_dead(os.getpid(), folder)


def _folder(stack: ExitStack) -> Path | None:
    # Inside the project's own folder, whose files belong to other processes.
    own = os.environ.get(VARIABLE)
    try:
        return stack.enter_context(private_folder(PREFIX, Path(own) if own else None))
    except OSError as error:
        logger.error(NO_FOLDER, error)  # noqa: TRY400 - the reason is enough
        return None
