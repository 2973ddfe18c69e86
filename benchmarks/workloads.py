"""What is measured. A workload takes a trial's contender and returns figures by name."""

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

import redis

from benchmarks.contenders import Contender
from benchmarks.messages import NOTE, NOTES, WORK
from benchmarks.trees import Tree, wait_until
from benchmarks.trial import START, Drained, Failed, Note, Trial, percentile

Figures = Mapping[str, float]
Workload = Callable[[Contender], Figures]

#: Seconds that a consumer has for emptying a queue. The slow are judged by what they did until then.
SECONDS = 5.0
#: Of those that are killed at the same time, so many are at work: the others only wait for what they have lost.
AT_WORK = threading.Semaphore(6)
#: Seconds without a handled message after which a backlog is worked off, but for what a kill has taken along.
STILL = 5.0


def one_by_one(contender: Contender) -> Figures:
    """Publish messages with a call each."""
    with Trial(contender) as trial:
        return {"publish /s": contender.one_by_one / trial.do("publish", count=contender.one_by_one)}


def bulk(contender: Contender) -> Figures:
    """Publish messages with a call a thousand."""
    with Trial(contender) as trial:
        return {"bulk /s": contender.bulk / trial.do("publish", count=contender.bulk, bulk=True)}


def fill(trial: Trial, count: int) -> float:
    """Publish no-op messages as fast as the contender can, and return the seconds."""
    return trial.do("publish", count=count, bulk=bool(trial.contender.bulk))


def handle(contender: Contender, *, processes: int = 1, threads: int = 8) -> Drained:
    """Let a consumer empty a queue of no-op messages, or work on it for some seconds."""
    with Trial(contender) as trial:
        fill(trial, contender.handled)
        with trial.consumer(processes=processes, threads=threads) as tree:
            return trial.drain(tree, seconds=SECONDS)


def one_process(contender: Contender) -> Figures:
    """Handle with one process."""
    drained = handle(contender)
    return {"handle /s": drained.rate, "handle cpu us": drained.micros, "handle Redis's cpu us": drained.server_micros}


def two_processes(contender: Contender) -> Figures:
    """Handle with two processes, and see how busy Redis is."""
    drained = handle(contender, processes=2)
    return {"2 processes /s": drained.rate, "2 processes: Redis's core %": drained.server_share * 100}


def warm(trial: Trial) -> None:
    """Have a consumer handle its first messages."""
    trial.do("pace", kind=NOTE, count=20, rate=50)
    if len(trial.wait_for_notes(20, timeout=START)) < 20:
        raise Failed(f"{trial.contender.name}: nothing was handled within {START:g} s")
    trial.client.delete(NOTES)


def _paced(trial: Trial, count: int, **options: object) -> list[Note]:
    trial.do("pace", kind=NOTE, count=count, **options)
    notes = trial.wait_for_notes(count, timeout=90)
    if len(notes) < count:
        raise Failed(f"{trial.contender.name}: {len(notes)} of {count} were handled")
    return notes


def at_rest(contender: Contender) -> Figures:
    """Time from the publish call to the handler, for single messages."""
    with Trial(contender) as trial, trial.consumer():
        warm(trial)
        late = [note.late * 1000 for note in _paced(trial, 300, rate=50)]
    return {"at rest p50 ms": percentile(late, 50), "at rest p99 ms": percentile(late, 99)}


def delays(contender: Contender, *, waiting: int = 0) -> Figures:
    """How late delayed messages are handled, with others waiting for an hour."""
    with Trial(contender) as trial:
        if waiting:
            trial.do("publish", count=waiting, bulk=True, delay=3600.0)
        with trial.consumer():
            warm(trial)
            late = [note.late * 1000 for note in _paced(trial, 200, rate=50, delay=2.0)]
    figures = {"p50": percentile(late, 50), "p99": percentile(late, 99), "early": sum(ms < 0 for ms in late)}
    return {f"delay {name}{f' of {waiting:,}' if waiting else ''}": value for name, value in figures.items()}


def memory(contender: Contender) -> Figures:
    """Bytes in Redis of a message that is ready, and of one that is delayed."""
    figures, count = {}, min(20_000, contender.bulk or contender.one_by_one)
    cases: dict[str, dict[str, object]] = {"ready": {}, "delayed": {"delay": 3600.0}}
    for name, options in cases.items():
        if f"memory {name}" in contender.skips:
            continue
        with Trial(contender) as trial:
            trial.do("publish", count=1, **options)
            before = trial.client.info("memory")["used_memory"]
            is_bulk = contender.is_ours or (bool(contender.bulk) and "delay" not in options)
            trial.do("publish", count=count, bulk=is_bulk, **options)
            after = trial.client.info("memory")["used_memory"]
        figures[f"bytes {name}"] = (after - before) / count
    return figures


def idle(contender: Contender, *, queues: int = 5, seconds: float = 30.0) -> Figures:
    """What a consumer without work costs: commands on the wire, processor, memory of its largest process."""
    with Trial(contender, queues=queues) as trial, trial.consumer() as tree:
        warm(trial)
        # A queue rests after it has been read in vain.
        time.sleep(15.0)
        before, began = tree.cpu_seconds(), time.monotonic()
        sent = _commands(trial.url, seconds)
        cpu = (tree.cpu_seconds() - before) / (time.monotonic() - began)
        largest = max(tree.memory().values())
    return {"idle commands/s": sum(sent.values()) / seconds, "idle cpu %": cpu * 100, "rest MB": largest}


def _commands(url: str, seconds: float) -> Counter[str]:
    """Count the commands that come in over the wire, those of scripts not among them."""
    # Some send nothing for longer than the usual timeout.
    client = redis.Redis.from_url(url, socket_timeout=seconds + 10)
    with client, client.monitor() as monitor:  # type: ignore[no-untyped-call]
        alarm = threading.Timer(seconds, client.echo, ["the end"])
        alarm.start()
        commands = itertools.takewhile(lambda told: told["command"] != "ECHO the end", monitor.listen())
        found = Counter(told["command"].split()[0] for told in commands if told["client_type"] != "lua")
        alarm.join()
    return found


def kill(contender: Contender, *, count: int = 2000, patience: float = 120.0) -> Figures:
    """Kill the consumer's whole tree three times under load, each time starting it again at once."""
    with Trial(contender) as trial:
        trial.do("publish", kind=WORK, count=count)
        tree = _consumer_of_eight(trial)
        try:
            with AT_WORK:
                restarted = _kill_thrice(trial, tree, count)
                _work_off(trial, count)
            wait_until(
                lambda: len({note.number for note in trial.notes()}) >= count,
                timeout=restarted + patience - time.monotonic(),
                step=0.2,
            )
            time.sleep(1.0)
        finally:
            tree.stop()
        notes = trial.notes()
    times_seen = Counter(note.number for note in notes)
    after = sorted(note.handled for note in notes if note.handled > restarted)
    return {
        "kill missing": count - len(times_seen),
        "kill doubled": sum(seen - 1 for seen in times_seen.values()),
        "kill done s": max(after, default=restarted) - restarted,
        "kill pause s": longest_pause(after),
    }


def _consumer_of_eight(trial: Trial) -> Tree:
    """Return a consumer that handles eight messages at a time, to be started."""
    processes = trial.contender.processes_for_eight
    return trial.consumer(processes=processes, threads=8)


def _kill_thrice(trial: Trial, tree: Tree, count: int) -> float:
    """Start a consumer, and kill and start it again three times; return when it was last started."""
    moments = random.Random(7)
    tree.start()
    for times in range(1, 4):
        # Those who lose much have too little left for the third.
        _work_off(trial, times * count // 5)
        time.sleep(moments.uniform(0.0, 0.3))
        tree.kill()
        tree.start()
    return time.monotonic()


def _work_off(trial: Trial, count: int) -> None:
    """Wait until so many are handled, or nothing more is."""
    seen = trial.client.llen(NOTES)
    give_up = time.monotonic() + START / 2  # the restart takes its time
    while seen < count and time.monotonic() < give_up:
        time.sleep(0.1)
        now = trial.client.llen(NOTES)
        if now > seen:
            seen, give_up = now, time.monotonic() + STILL


def longest_pause(moments: list[float]) -> float:
    """Return the longest time between two handled messages: when only the lost sheep are left."""
    return max((later - earlier for earlier, later in itertools.pairwise(moments)), default=0.0)


def share(contender: Contender, *, consumers: int = 4, threads: int = 8, count: int = 3200) -> Figures:
    """Spread handlers of 50 ms over four consumers."""
    with Trial(contender) as trial, trial.consumer(processes=consumers, threads=threads):
        for _ in range(consumers):
            warm(trial)
        trial.do("publish", kind=WORK, count=count)
        notes = trial.wait_for_notes(count, timeout=120)
    by_process = Counter(note.pid for note in notes)
    # From when the first message was there: all that is not handling counts against it.
    took = max(note.handled for note in notes) - min(note.sent for note in notes)
    ideal = count * 0.05 / (consumers * threads)
    return {"share of ideal %": ideal / took * 100, "share max/mean": max(by_process.values()) * consumers / len(notes)}


def slow(contender: Contender) -> Figures:
    """The latency of fast messages at 200/s: alone, and among one in a hundred that takes a second."""
    found = {}
    for name, every in {"alone": 0, "among slow": 100}.items():
        with Trial(contender) as trial, trial.consumer():
            warm(trial)
            notes = _paced(trial, 2000, rate=200, slow_every=every)
        fast = [note.late * 1000 for note in notes if not every or note.number % every != 50]
        found[f"200/s p99 ms {name}"] = percentile(fast, 99)
    return {**found, "200/s ratio": found["200/s p99 ms among slow"] / found["200/s p99 ms alone"]}
