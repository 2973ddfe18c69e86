"""14: what strangers put into a queue, and what they do to its keys."""

import random
import secrets
from collections.abc import Callable, Sequence

import redis

from mq_django.core.keys import GROUP
from tests.chaos import places
from tests.chaos.stage import Stage
from tests.waiting import wait_until

Fields = Sequence[bytes | str]

#: Makers of entries that no producer of ours would write. None of them is a message.
ENTRIES: Sequence[Callable[[random.Random], Fields]] = (
    lambda rng: (b"\xff\xfe", b"\xff" * rng.randint(1, 400)),
    lambda rng: ("type", b"\xc3\x28", "data", "{}"),
    lambda rng: ("", ""),
    lambda rng: ("type", "job", "data_base64", "="),
    lambda rng: ("type", "job", "data", "{}", "Content-Type", "text/plain"),
    lambda rng: ("data", "{}"),
    lambda rng: ("type", "job", "type", "job", "data", "{}", "data", "{"),
    lambda rng: ("type", "job", "data", '{"id": NaN}'),
    lambda rng: ("type", "job", "data", "9" * 5000),
    lambda rng: ("type", "job", "data", "[" * 100_000),
    lambda rng: ("type", "job", "data", '"\\ud8"'),
    lambda rng: ("type", "job", "data", "x" * 3_000_000),
    lambda rng: ("type", "job", "data", "{}", "specversion", "9.9"),
    lambda rng: ("type", "job", "data", "{}", "attempt", "-1"),
    lambda rng: ("type", "job", "data", "{}", "expires", "soon"),
    lambda rng: ("message", "[1, 2"),
    lambda rng: ("message", "{" * rng.randint(1, 5000)),
    lambda rng: tuple(str(n) for n in range(4000)),
    lambda rng: (rng.randbytes(rng.randint(1, 60)), rng.randbytes(rng.randint(0, 600))),
)


def prepare(stage: Stage) -> None:
    """Flush while there is nothing to lose yet, and let failures find no place to wait or be buried in."""
    with stage.client as client:
        stage.heal(stage.strike("flush", lambda: _wipe(client), pids=stage.pids()))
        for key in (stage.keys.due, stage.keys.waiting, stage.keys.dead):
            wait_until(lambda: not places.left(client, stage.keys), timeout=30, message="the queue is empty")
            # Nothing waits, so the keys are not there: what fails now has nowhere to go until they are free.
            _occupy(stage, client, key, "job" if key != stage.keys.dead else "raise")


def play(stage: Stage, rounds: int) -> None:
    """Mix hostile entries in, put wrong types where keys will be, break counts, and delete entries in hand."""
    with stage.client as client:
        for _ in range(rounds):
            stage.pause(0.3, 0.8)
            _pour(stage, client)
            for key in (stage.keys.due, stage.keys.waiting, stage.keys.dead, stage.keys.front):
                _occupy(stage, client, key)
            _break_counts(stage, client)
            _delete_behind_back(stage, client)


def _wipe(client: redis.Redis) -> None:
    for key in list(client.scan_iter(count=1000)):
        client.delete(key)


def _pour(stage: Stage, client: redis.Redis) -> None:
    pipeline = client.pipeline(transaction=False)
    for make in stage.rng.sample(ENTRIES, len(ENTRIES)):
        pipeline.execute_command("XADD", stage.keys.ready, "*", *make(stage.rng))  # type: ignore[no-untyped-call]
    pipeline.execute()


def _occupy(stage: Stage, client: redis.Redis, key: str, fails: str = "") -> None:
    """Put a string where a key of ours will be, while it is not there, and take it away again."""
    if not client.set(key, secrets.token_hex(4), nx=True):
        return
    name = stage.strike("wrong-type", lambda: None, pids=stage.pids())
    if fails:
        stage.producer.publish(fails, 20, fails=1)
        stage.pause(0.5, 1.0)
    stage.pause(0.3, 0.8)
    client.delete(key)
    stage.heal(name)


def _break_counts(stage: Stage, client: redis.Redis) -> None:
    """Break what only counts, and what a stranger may have put beside it: no message waits for that to be mended."""
    junk = stage.rng.choice(("x", "", "9" * 400, "9223372036854775807", "nan"))
    name = stage.strike("broken-counts", lambda: None, pids=stage.pids())
    client.hset(stage.keys.control, mapping=dict.fromkeys(("ranked", "fronts", "turns"), junk))
    client.delete(stage.keys.dead_groups)
    client.set(stage.keys.dead_groups, junk)
    client.zadd(stage.keys.due, {"stranger": "inf"})
    for priority in (3, 0, -3):
        stage.producer.publish("job", 20, delay=0.2, priority=priority)
    stage.pause(0.3, 0.8)
    stage.heal(name)
    client.delete(stage.keys.dead_groups)
    client.zrem(stage.keys.due, "stranger")


def _delete_behind_back(stage: Stage, client: redis.Redis) -> None:
    """Delete the entries of messages that consumers have in hand: these are handled, unless they are handed back."""
    keys = stage.keys
    rows = client.xpending_range(keys.ready, GROUP, "-", "+", 3) if client.exists(keys.ready) else []
    entries = [entry for row in rows for entry in client.xrange(keys.ready, row["message_id"], row["message_id"])]
    name = stage.strike("deleted", lambda: None, pids=stage.pids())
    labels = [places.label(places.attributes(fields)) for _, fields in entries]
    stage.history.note("removed", ids=[label for label in labels if label is not None])
    if entries:
        client.xdel(keys.ready, *[entry for entry, _ in entries])
    stage.heal(name)
