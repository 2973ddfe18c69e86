"""Publish messages of every kind in the version that this process runs."""

import random
import time
from collections.abc import Callable
from itertools import count

from mq_django import queues, topics
from mq_django.errors import AlreadyPublished
from tests.compat.history import LABEL, note
from tests.compat.project.handlers import add

#: Messages a second of one producer, of all kinds together.
RATE = 250.0
OTHER = {"old": "new", "new": "old"}[LABEL]
#: Seconds until a message that may be cancelled is due.
TO_CANCEL = 6.0

_numbers = count()
_rng = random.Random(LABEL)


def _named(kind: str, number: int = 1) -> list[dict[str, object]]:
    return [{"kind": kind, "id": f"{kind}-{LABEL}-{next(_numbers)}", "ms": _rng.randint(0, 4)} for _ in range(number)]


def _accepted(kind: str, data: list[dict[str, object]]) -> None:
    note("ok", kind, ids=[item["id"] for item in data])


def ready(number: int) -> None:
    """Publish a batch; every fifth message fails at its first attempt."""
    data = _named("ready", 10)
    data[0]["fails"] = number % 2
    queues["plain"].publish_many([("job", item) for item in data])
    _accepted("ready", data)


def delayed(_: int) -> None:
    """Publish what is due within three seconds, some of it with a priority."""
    data = _named("delayed", 5)
    queues["plain"].publish_many(
        [("job", item) for item in data], delay=_rng.uniform(0.1, 3), priority=_rng.choice([0, 0, 5, -5])
    )
    _accepted("delayed", data)


def prioritised(_: int) -> None:
    """Publish what goes first."""
    data = _named("priority", 3)
    queues["plain"].publish_many([("job", item) for item in data], priority=_rng.randint(-50, 50))
    _accepted("priority", data)


def limited(_: int) -> None:
    """Publish to the queue with limits, under few keys."""
    data = _named("limited", 6)
    queues["limited"].publish_many([("job", item) for item in data], key=f"key-{_rng.randint(0, 9)}")
    _accepted("limited", data)


def legacy(number: int) -> None:
    """Publish to the queue in RSMQ's format."""
    data = _named("legacy", 3)
    data[0]["fails"] = number % 2
    queues["legacy"].publish_many([("job", item) for item in data])
    _accepted("legacy", data)


def logged(number: int) -> None:
    """Publish to the topic; both groups read it."""
    data = _named("topic", 4)
    data[0]["fails"] = number % 2
    topics["log"].publish_many([("event", item) for item in data])
    _accepted("topic-first", data)
    _accepted("topic-second", data)


def unknown_to_the_other(_: int) -> None:
    """Publish what only one of the versions has a handler for, whichever publishes it."""
    for where in ("old", "new"):
        data = _named(f"only-{where}")
        queues["plain"].publish(f"only-{where}", data[0])
        _accepted(f"only-{where}", data)


def unique(_: int) -> None:
    """Claim one of a few keys, which the other version claims as well."""
    (item,) = _named("unique")
    try:
        queues["plain"].publish("job", item, unique=f"unique-{_rng.randint(0, 40)}", unique_for="handled")
    except AlreadyPublished:
        return
    _accepted("unique", [item])


def task(number: int) -> None:
    """Enqueue a task, whose result both versions read at the end."""
    name = f"task-{LABEL}-{next(_numbers)}"
    result = add.enqueue(number, name)
    note("ok", "task", ids=[name])
    note("result", "task", id=result.id, value=number + 1)


def dying(_: int) -> None:
    """Publish what fails until it is a dead letter."""
    (item,) = _named("dead")
    item["fails"] = 99
    queues["plain"].publish("job", item)
    note("dies", "dead", ids=[item["id"]])


def cancellable(number: int) -> None:
    """Publish what the other version may cancel by its id, and cancel something of the other's."""
    (item,) = _named("cancel")
    queues["plain"].publish("job", item, delay=TO_CANCEL, message_id=f"cancel-{LABEL}-{number}")
    _accepted("cancel", [item])
    note("named", "cancel", id=item["id"], message_id=f"cancel-{LABEL}-{number}")
    # Odd ones stay, so that both endings are seen.
    theirs = f"cancel-{OTHER}-{number // 2 * 2}"
    if queues["plain"].cancel(theirs):
        note("cancels", "cancel", message_id=theirs)


#: What is done, and how often by comparison.
KINDS: list[tuple[Callable[[int], None], int]] = [
    (ready, 6),
    (delayed, 4),
    (prioritised, 3),
    (limited, 4),
    (legacy, 4),
    (logged, 4),
    (unknown_to_the_other, 2),
    (unique, 8),
    (task, 8),
    (dying, 1),
    (cancellable, 2),
]


def main(seconds: float) -> None:
    """Publish for so many seconds, at a steady rate."""
    round_of = [kind for kind, times in KINDS for _ in range(times)]
    numbers = {kind: count() for kind, _ in KINDS}
    end = due = time.monotonic() + seconds
    due -= seconds
    while time.monotonic() < end:
        _rng.shuffle(round_of)
        for kind in round_of:
            kind(next(numbers[kind]))
            due += 4 / RATE
            time.sleep(max(0.0, due - time.monotonic()))
