"""A crowded waiting room, and many messages due at one instant: mq_django's promises about delays at scale."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import redis

from benchmarks import messages
from benchmarks.contenders import Contender
from benchmarks.messages import NOTE
from benchmarks.trial import Note, Trial, percentile
from benchmarks.workloads import Figures, warm
from mq_django.transport import scripts

#: Messages that wait for an hour beside those that are measured.
CROWD = 1_000_000
SUPERVISORS = 4
RATE = 1000
SECONDS = 20
BURST = 100_000
CHUNK = 5000
#: Seconds in which a promoter looks at least once, whatever it heard.
SETTLE = 6.0
DUE, WAITING, WAKE = (f"mq:{{bench0}}:{kind}" for kind in ("due", "waiting", "wake"))


def _now_us(client: redis.Redis) -> int:
    seconds, micros = client.time()
    return int(seconds) * 1_000_000 + int(micros)


def _now_ms(client: redis.Redis) -> int:
    return _now_us(client) // 1000


def _fill(client: redis.Redis, count: int, due_ms: Callable[[int], int], *, first: int) -> None:
    """Let messages wait as the smallest producer does: a body in a hash, a due time in a sorted set."""
    ahead_ns = -_now_us(client) * 1000 + time.monotonic_ns()
    for start in range(first, first + count, CHUNK):
        numbers = range(start, min(start + CHUNK, first + count))
        scores = {f"m{n}": due_ms(n - first) for n in numbers}
        data = [{**messages.make(n), "due_ns": scores[f"m{n}"] * 1_000_000 + ahead_ns} for n in numbers]
        bodies: dict[Any, Any] = {f"m{one['n']}": json.dumps({"type": NOTE, "data": one}) for one in data}
        pipeline = client.pipeline(transaction=False)
        pipeline.hset(WAITING, mapping=bodies)
        pipeline.zadd(DUE, scores)
        pipeline.execute()


@contextmanager
def _crowded(contender: Contender) -> Iterator[Trial]:
    """Yield a trial with a million messages waiting, and four supervisors that promote."""
    with Trial(contender) as trial, ExitStack() as trees:
        later = _now_ms(trial.client) + 3_600_000
        _fill(trial.client, CROWD, lambda _: later, first=10_000_000)
        for _ in range(SUPERVISORS):
            trees.enter_context(trial.consumer())
            warm(trial)
        trial.client.config_set("slowlog-log-slower-than", 1000)
        trial.client.config_set("slowlog-max-len", 10_000)
        trial.client.slowlog_reset()
        trial.client.config_resetstat()
        yield trial


def _longest(client: redis.Redis) -> Figures:
    """Return the milliseconds of the scripts that held Redis the longest, from a millisecond on.

    By the clock: on a machine that runs other work, Redis waits for its processor in the middle of a script, too. Of a
    thousand scripts the longest says what the machine did, and the others what the scripts do.
    """
    took = [entry for entry in client.slowlog_get(10_000) if entry["command"].startswith(b"EVAL")]
    promotions = [entry for entry in took if scripts.load("waiting_promote").sha.encode() in entry["command"]]
    cases = {"longest script ms": took, "longest promotion ms": promotions}
    longest = {name: max((entry["duration"] for entry in found), default=0) / 1000 for name, found in cases.items()}
    stats = client.info("latencystats").get("latency_percentiles_usec_evalsha", {})
    return {**longest, **{f"scripts {name} ms": stats[name] / 1000 for name in ("p99", "p99.9") if name in stats}}


def _wrong(notes: list[Note], count: int) -> Figures:
    seen = Counter(note.number for note in notes)
    return {"early": sum(note.late < 0 for note in notes), "lost": count - len(seen), "doubled": len(notes) - len(seen)}


def beside_a_crowd(contender: Contender) -> Figures:
    """What a consumer's largest process and Redis need for a million messages that wait."""
    with Trial(contender) as trial, trial.consumer() as tree:
        warm(trial)
        time.sleep(SETTLE)
        before, used = max(tree.memory().values()), trial.client.info("memory")["used_memory"]
        later = _now_ms(trial.client) + 3_600_000
        _fill(trial.client, CROWD, lambda _: later, first=0)
        trial.client.publish(WAKE, f"due {later}")
        time.sleep(SETTLE)
        after, now_used = max(tree.memory().values()), trial.client.info("memory")["used_memory"]
    return {
        "consumer grown MB by 1,000,000 waiting": after - before,
        "bytes of Redis a waiting message of 1,000,000": (now_used - used) / CROWD,
    }


def steady(contender: Contender) -> Figures:
    """A thousand due a second, four promoting, among a million that wait."""
    count = RATE * SECONDS
    with _crowded(contender) as trial:
        start = _now_ms(trial.client) + 5000
        _fill(trial.client, count, lambda n: start + n * 1000 // RATE, first=0)
        trial.client.publish(WAKE, f"due {start}")
        notes = trial.wait_for_notes(count, timeout=SECONDS + 60)
        longest = _longest(trial.client)
    late = [note.late * 1000 for note in notes]
    figures = {"p50 ms": percentile(late, 50), "p99 ms": percentile(late, 99), **longest}
    return {f"1,000 due/s of 1,000,000 {name}": n for name, n in {**figures, **_wrong(notes, count)}.items()}


def burst(contender: Contender) -> Figures:
    """A hundred thousand due at one instant, four promoting, among a million that wait."""
    with _crowded(contender) as trial:
        at = _now_ms(trial.client) + 15_000
        _fill(trial.client, BURST, lambda _: at, first=0)
        trial.client.publish(WAKE, f"due {at}")
        while trial.client.zcount(DUE, at, at) == BURST:
            time.sleep(0.001)
        began = time.monotonic()
        while trial.client.zcount(DUE, at, at):
            time.sleep(0.01)
        took = time.monotonic() - began
        notes = trial.wait_for_notes(BURST, timeout=120)
        longest = _longest(trial.client)
    shares = Counter(note.pid for note in notes)
    figures = {
        "promotions/s": BURST / took,
        **longest,
        "share max/mean": max(shares.values()) * SUPERVISORS / len(notes),
        **_wrong(notes, BURST),
    }
    return {f"burst of 100,000 {name}": value for name, value in figures.items()}
