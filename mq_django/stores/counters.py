"""What happened a minute and an hour, by handler."""

import time
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from mq_django.core.keys import QueueKeys, TopicKeys
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command

#: Buckets of handling time: bucket n holds what took less than 100 * 2**n microseconds, the last what took longer.
BUCKETS = 16

#: What is counted by name, and also under no name in all: pages of many queues read nothing else.
WHAT = ("published", "handled", "retried", "buried", "expired")


class Slot(NamedTuple):
    """Where the counters of a moment are."""

    #: Key of the minutes, key of the hours.
    keys: tuple[str, str]
    minute: int
    hour: int


def slot(keys: QueueKeys | TopicKeys, now: float | None = None) -> Slot:
    """Return where to count what happens now (seconds since 1970)."""
    minutes = int(time.time() if now is None else now) // 60
    hours = minutes // 60
    return Slot((keys.minutes(hours), keys.hours(hours // 24)), minutes % 60, hours % 24)


class Slots:
    """Where to count what happens now: told by each message that is published, and made anew each minute."""

    def __init__(self, keys: QueueKeys | TopicKeys) -> None:
        self._keys = keys
        self._latest = (-1, Slot(("", ""), 0, 0))

    def now(self) -> Slot:
        """Return the slot of this minute."""
        now = time.time()
        minutes = int(now) // 60
        if self._latest[0] != minutes:
            self._latest = (minutes, slot(self._keys, now))
        return self._latest[1]


def bucket(micros: int) -> int:
    """Return the bucket of a handling time in microseconds."""
    return min(BUCKETS - 1, (micros // 100).bit_length())


def add_command(keys: QueueKeys, tally: Mapping[tuple[str, str], int]) -> Command:
    """Return the command that adds counts by (what, name), and under no name in all."""
    where = slot(keys)
    args: list[Argument] = [where.minute, where.hour]
    totals: Counter[str] = Counter()
    for (what, name), count in tally.items():
        args += (f"|{what}|{name}", count)
        if what in WHAT:
            totals[what] += count
    for what, count in totals.items():
        args += (f"|{what}|", count)
    return scripts.command("counters_add", keys=where.keys, args=args)
