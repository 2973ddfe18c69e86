"""What order per key and fairness between keys cost, and what they promise, each beside the same without."""

import itertools
import json
import random
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from statistics import median

import redis

from benchmarks import messages
from benchmarks.contenders import Contender, total
from benchmarks.messages import NOOP, NOTE, WORK
from benchmarks.trial import Failed, Trial, percentile
from benchmarks.workloads import SECONDS, Figures, warm

PLAIN, ORDERED, FAIR = "no keys /s", "ordered /s", "fair /s"
IDEAL = "ordered: share of ideal %"
INVERSIONS = "ordered: inversions"
#: The p99 of the wait of a quiet key beside a key with many waiting, by the same while others keep the threads busy.
QUIET = "fair: wait of a quiet key, p99, by that without a crowd"
#: Measurements of each rate, whose median counts.
ROUNDS = 3
#: Keys of no-op messages, chosen at random; messages; messages that wait for one key.
KEYS, COUNT, CROWD = 1000, 60_000, 100_000
#: Messages of a quiet key that are measured, and how many a second.
QUIET_COUNT, QUIET_RATE = 400, 8.0


def costs(contender: Contender) -> Figures:
    """Handle messages with random keys, with and without order and turns; and see what these promise."""
    rates: dict[str, list[float]] = {PLAIN: [], ORDERED: [], FAIR: []}
    options: dict[str, Mapping[str, object]] = {PLAIN: {}, ORDERED: {"ORDERED": True}, FAIR: {"FAIR": True}}
    for _ in range(ROUNDS):
        for name, found in options.items():
            rates[name].append(_rate(with_options(contender, found)))
    share, inversions = _ideal(with_options(contender, options[ORDERED]))
    alone, beside = (_quiet_wait(with_options(contender, options[FAIR]), crowd=crowd) for crowd in (False, True))
    figures = {name: median(found) for name, found in rates.items()}
    return {**figures, IDEAL: share, INVERSIONS: inversions, QUIET: beside / alone}


def with_options(contender: Contender, options: Mapping[str, object]) -> Contender:
    """Return the contender with options of its queue, whose messages are counted in all places."""
    places = total("XLEN mq:{bench0}:ready", "XLEN mq:{bench0}:front", "ZCARD mq:{bench0}:parked")
    variables = {**contender.variables, "BENCH_OPTIONS": json.dumps(options)}
    return replace(contender, remaining=places, variables=variables)


def publish_keyed(client: redis.Redis, kind: str, keys: Iterable[str]) -> None:
    """Publish a message for each key, as other programs do."""
    for some in _batches(enumerate(keys)):
        pipeline = client.pipeline(transaction=False)
        for number, key in some:
            data = messages.encode(messages.make(number))
            pipeline.xadd("mq:{bench0}:ready", {"type": kind, "data": data, "partitionkey": key})
        pipeline.execute()


def _batches(items: Iterable[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    found = iter(items)
    while some := list(itertools.islice(found, 1000)):
        yield some


def random_keys(count: int, of: int) -> Iterator[str]:
    chosen = random.Random(7)
    return (f"key-{chosen.randrange(of)}" for _ in range(count))


def _rate(contender: Contender) -> float:
    with Trial(contender) as trial:
        publish_keyed(trial.client, NOOP, random_keys(COUNT, KEYS))
        with trial.consumer() as tree:
            return trial.drain(tree, seconds=4 * SECONDS).rate


def _ideal(contender: Contender, *, consumers: int = 4, threads: int = 8, count: int = 3200) -> tuple[float, int]:
    """Spread handlers of 50 ms over four processes; return the share of the ideal, and the inversions."""
    keys = list(random_keys(count, 10_000))
    with Trial(contender) as trial, trial.consumer(processes=consumers, threads=threads):
        for _ in range(consumers):
            warm(trial)
        publish_keyed(trial.client, WORK, keys)
        notes = trial.wait_for_notes(count, timeout=120)
    took = max(note.handled for note in notes) - min(note.sent for note in notes)
    last: dict[str, int] = {}
    inversions = 0
    for note in sorted(notes, key=lambda note: note.handled):
        inversions += note.number < last.get(keys[note.number], -1)
        last[keys[note.number]] = max(note.number, last.get(keys[note.number], -1))
    return count * 0.05 / (consumers * threads) / took * 100, inversions


def _quiet_wait(contender: Contender, *, crowd: bool) -> float:
    """Return the p99 of the ms that messages of quiet keys wait while 8 threads are busy.

    They are busy with a key that has a crowd of messages waiting, or else with messages of single keys.
    """
    with Trial(contender) as trial, trial.consumer():
        warm(trial)
        stop = threading.Event()
        if crowd:
            publish_keyed(trial.client, WORK, itertools.repeat("noisy", CROWD))
        busy = threading.Thread(target=lambda: None if crowd else _stream(trial, stop))
        busy.start()
        try:
            _pace(trial.client)
            found = _quiet(trial)
        finally:
            stop.set()
            busy.join()
    return percentile(found, 99)


#: Numbers of the messages of quiet keys begin here.
_QUIET_FROM = 1_000_000


def _stream(trial: Trial, stop: threading.Event) -> None:
    """Publish messages of single keys, so that each of eight threads runs one and as many wait."""
    number = 0
    with redis.Redis.from_url(trial.url) as client:
        while not stop.wait(0.002):
            for _ in range(16 - trial.contender.remaining(client)):
                data = messages.encode(messages.make(number))
                client.xadd("mq:{bench0}:ready", {"type": WORK, "data": data, "partitionkey": f"single-{number}"})
                number += 1


def _pace(client: redis.Redis) -> None:
    pause = threading.Event()
    for number in range(QUIET_COUNT):
        data = messages.encode(messages.make(_QUIET_FROM + number))
        client.xadd("mq:{bench0}:ready", {"type": NOTE, "data": data, "partitionkey": f"quiet-{number}"})
        pause.wait(1 / QUIET_RATE)


def _quiet(trial: Trial) -> list[float]:
    pause = threading.Event()
    for _ in range(600):
        late = [note.late * 1000 for note in trial.notes() if note.number >= _QUIET_FROM]
        if len(late) >= QUIET_COUNT:
            return late
        pause.wait(0.1)
    raise Failed(f"{len(late)} of {QUIET_COUNT} messages of quiet keys were handled")
