"""What a message costs the server: one core executes all commands of a node, so its capacity is one by that."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median

from benchmarks import workloads
from benchmarks.contenders import RAW, TASKS, Contender
from benchmarks.keyed_queues import publish_keyed, random_keys, with_options
from benchmarks.messages import NAP, NOOP
from benchmarks.scaling.recorder import Recorder
from benchmarks.scaling.replay import Replayed, replay
from benchmarks.scaling.server_use import ServerUse
from benchmarks.trees import wait_until
from benchmarks.trial import START, Drained, Failed, Trial
from benchmarks.workloads import SECONDS, Figures

#: Rounds, whose medians count.
ROUNDS = 3
#: Publishes that are recorded, and how many of the last of them are sent again. The first ones load scripts.
RECORDED, REPLAYED = 700, 500
#: Keys of an ordered queue, chosen at random; messages of it; messages of a queue with one key only.
KEYS, KEYED, ONE_KEY = 1000, 60_000, 6000
#: Messages whose handlers sleep.
SLOW_COUNT = 6000
#: Messages that are published at a low rate, and that rate: about that at which 16 threads handle them in 10 ms each.
PACED_COUNT, PACE = 3000, 1500

#: Kinds of queues, as in names of figures.
BARE, PLAIN, TASK, ORDERED, FAIR = "bare redis-py", "queue", "task", "ordered", "fair"
#: The same on a server with an append-only file, as it should be where messages must survive a restart.
PLAIN_AOF, ORDERED_AOF = "queue, AOF", "ordered, AOF"
#: Settings of that server.
AOF = {"appendonly": "yes", "appendfsync": "everysec"}
#: What is measured of each.
ONE_BY_ONE, BULK, HANDLED = "published one by one", "published in bulk", "handled"
#: Handled by threads that are busy for 10 ms with each, so that messages are fetched and settled in small batches.
HANDLED_SLOWLY = "handled by slow handlers"
#: Published one by one, so seldom that the server waits after each. Then each costs more, as do those that are handled.
PACED = "published one by one at a low rate"
CORE, FULL_RATE = "core of Redis in use, %", "one by one, Redis's core full, /s"
#: Bytes over the network a message, published one by one and handled: to the server, and from it.
RECEIVED, SENT = "bytes to Redis", "bytes from Redis"
#: The consumer's own processor time.
CONSUMER = "consumer"
#: Messages a second of one key of an ordered queue, whose handler does nothing.
HOT_KEY = "node: ordered: one key /s"
#: The server's time of a message, published one by one and handled, by that of the bare client; for bulk, too.
LIFE, BULK_LIFE = "node: queue: one by one and handled, by bare", "node: queue: in bulk and handled, by bare"
ORDERED_LIFE = "node: ordered: one by one and handled, by bare"


def figure(kind: str, what: str) -> str:
    """Return the name of a figure: microseconds a message, if it is no other unit by its name."""
    unit = "" if what in {CORE, FULL_RATE, RECEIVED, SENT} else " us"
    return f"node: {kind}: {what}{unit}"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of queue, and who works on it."""

    name: str
    contender: Contender
    #: Fills the queue with messages to be handled.
    fill: Callable[[Trial], object]
    #: Fills it with so many messages whose handlers sleep; None: that is not measured.
    fill_slow: Callable[[Trial, int], object] | None = None
    has_bulk: bool = True
    #: Settings of the server.
    settings: Mapping[str, str] = field(default_factory=dict)

    def configure(self, trial: Trial) -> None:
        """Change the settings of the trial's server."""
        for name, value in self.settings.items():
            trial.client.config_set(name, value)


def kinds(ours: Contender) -> list[Kind]:
    """Return what is measured in turn."""
    keyed = replace(ours, variables={**ours.variables, "BENCH_KEYS": str(KEYS)})
    ordered, fair = (with_options(keyed, {option: True}) for option in ("ORDERED", "FAIR"))
    return [
        Kind(BARE, RAW, _fill),
        Kind(PLAIN, ours, _fill, _fill_slow),
        Kind(PLAIN_AOF, ours, _fill, _fill_slow, settings=AOF),
        Kind(TASK, TASKS, _fill, has_bulk=False),
        Kind(ORDERED, ordered, _fill_keyed, _fill_keyed_slow, has_bulk=False),
        Kind(ORDERED_AOF, ordered, _fill_keyed, _fill_keyed_slow, has_bulk=False, settings=AOF),
        Kind(FAIR, fair, _fill_keyed, _fill_keyed_slow, has_bulk=False),
    ]


def _fill(trial: Trial) -> object:
    return workloads.fill(trial, trial.contender.handled)


def _fill_keyed(trial: Trial) -> object:
    return publish_keyed(trial.client, NOOP, random_keys(KEYED, KEYS))


def _fill_slow(trial: Trial, count: int) -> object:
    return trial.do("publish", kind=NAP, count=count, bulk=True)


def _fill_keyed_slow(trial: Trial, count: int) -> object:
    return publish_keyed(trial.client, NAP, random_keys(count, KEYS))


def costs(contender: Contender) -> Figures:
    """Measure each kind of queue in turn, and return medians and ratios."""
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(ROUNDS):
        for kind in kinds(contender):
            for name, value in _of_kind(kind).items():
                found[figure(kind.name, name)].append(value)
        found[HOT_KEY].append(_one_key(contender))
    figures = {name: median(values) for name, values in found.items()}
    return {**figures, **ratios(figures)}


def ratios(figures: Figures) -> dict[str, float]:
    """Return the costs of a whole message by those of the bare client in the same run."""

    def whole(kind: str, publish: str) -> float:
        return figures[figure(kind, publish)] + figures[figure(kind, HANDLED)]

    return {
        LIFE: whole(PLAIN, ONE_BY_ONE) / whole(BARE, ONE_BY_ONE),
        BULK_LIFE: whole(PLAIN, BULK) / whole(BARE, BULK),
        ORDERED_LIFE: whole(ORDERED, ONE_BY_ONE) / whole(BARE, ONE_BY_ONE),
    }


def _of_kind(kind: Kind) -> Mapping[str, float]:
    single = _one_by_one(kind)
    found = {ONE_BY_ONE: single.micros, FULL_RATE: single.rate, CORE: single.share * 100}
    with Trial(kind.contender) as trial:
        kind.configure(trial)
        empty = ServerUse.of(trial.client)
        kind.fill(trial)
        full, count = ServerUse.of(trial.client), trial.remaining()
        if kind.has_bulk:
            found[BULK] = full.since(empty).cpu / count * 1e6
        drained = _drain(trial, count)
        handled = ServerUse.of(trial.client).since(full)
    if kind.fill_slow is not None:
        found |= {PACED: _paced(kind), HANDLED_SLOWLY: _handled_slowly(kind, kind.fill_slow)}
    return {
        **found,
        HANDLED: drained.server_micros,
        CONSUMER: drained.micros,
        RECEIVED: single.received + handled.received / count,
        SENT: single.sent + handled.sent / count,
    }


def _one_by_one(kind: Kind) -> Replayed:
    """Record some publishes, and send them again until the server's core is full."""
    contender = kind.contender
    with Trial(contender) as trial, Recorder(trial.url) as recorder:
        kind.configure(trial)
        recording = replace(contender, variables={**contender.variables, "BENCH_REDIS_URL": recorder.url})
        trial.contender = recording
        trial.do("publish", count=RECORDED)
        requests = [request for request in recorder.requests() if request][-REPLAYED:]
        if len(requests) < REPLAYED:
            raise Failed(f"{contender.name}: {len(requests)} requests were recorded")
        return replay(trial.url, requests)


def _drain(trial: Trial, count: int) -> Drained:
    """Let a consumer of one process empty the queue."""
    with trial.consumer() as tree:
        drained = trial.drain(tree, seconds=4 * SECONDS)
    if left := trial.remaining():
        raise Failed(f"{trial.contender.name}: {left} of {count} messages were not handled in time")
    return drained


def _paced(kind: Kind) -> float:
    """Return the microseconds of the server a message, at the rate at which slow handlers are measured."""
    with Trial(kind.contender) as trial:
        kind.configure(trial)
        trial.do("publish", count=100)
        before = ServerUse.of(trial.client)
        trial.do("pace", kind=NOOP, count=PACED_COUNT, rate=PACE)
        return ServerUse.of(trial.client).since(before).cpu / PACED_COUNT * 1e6


def _handled_slowly(kind: Kind, fill: Callable[[Trial, int], object]) -> float:
    """Return the microseconds of the server a message of two processes of eight threads."""
    with Trial(kind.contender) as trial:
        kind.configure(trial)
        fill(trial, SLOW_COUNT)
        with trial.consumer(processes=2):
            looks = []
            # From the first fifth on, when both processes have started. Looks are rare, because each costs the server.
            for left in (SLOW_COUNT * 4 // 5, SLOW_COUNT // 10):
                if not wait_until(lambda left=left: trial.remaining() <= left, timeout=START, step=0.2):
                    raise Failed(f"{kind.name}: {trial.remaining()} of {SLOW_COUNT} messages were left")
                looks.append((ServerUse.of(trial.client), trial.remaining()))
    (earlier, before), (later, after) = looks
    return later.since(earlier).cpu / (before - after) * 1e6


def _one_key(contender: Contender) -> float:
    """Return the messages a second of a key of an ordered queue."""
    with Trial(with_options(contender, {"ORDERED": True})) as trial:
        publish_keyed(trial.client, NOOP, random_keys(ONE_KEY, 1))
        with trial.consumer() as tree:
            return trial.drain(tree, seconds=SECONDS).rate
