"""Totals of counters that never decrease, for monitoring software."""

from collections.abc import Mapping, Sequence
from typing import Any

from mq_django.core.keys import QueueKeys, TopicKeys
from mq_django.core.numbers import whole
from mq_django.errors import StoreError
from mq_django.stores.counters import RECOVERED, TOOK, WAITED, WHAT
from mq_django.transport import scripts
from mq_django.transport.failures import readable
from mq_django.transport.fan_out import fan_out
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Wire, reply_or_raise

#: What has totals: kinds of counters.
KINDS = (*WHAT, RECOVERED, *TOOK, *WAITED)

#: Days that one script call adds up, so that it is short.
DAYS = 3
#: The counters of an hour are kept for 35 days.
KEPT = 36

#: The total of each kind.
Totals = Mapping[str, int]


def read_totals(
    keys: Sequence[QueueKeys | TopicKeys], wires: Sequence[Wire], *, now_ms: int
) -> list[Totals | StoreError]:
    """Return the totals of queues and topics since their counters are kept; an error for one that cannot be read.

    The counters of hours that are over are added to a hash, in the same script, so that they survive their expiry. If
    nobody has read the totals for 35 days, they start again from the counters that are left. Counts of a program whose
    clock is more than an hour late may be missing.

    Args:
        keys: their keys, each with its wire.
        now_ms: the time of the servers, in ms since 1970.
    """
    today = now_ms // 86_400_000
    found: list[Totals | StoreError] = [{}] * len(keys)
    # The days before the current one are needed only after a pause: then some script calls catch up.
    days = dict.fromkeys(range(len(keys)), today - 1)
    for _ in range(2 * KEPT // DAYS):
        if not days:
            break
        trips = [[_command(keys[place], day, today - KEPT)] for place, day in days.items()]
        replies = fan_out([wires[place] for place in days], trips)
        behind = {}
        for place, (reply,) in zip(days, replies, strict=True):
            read = _read(reply)
            if isinstance(read, int):
                behind[place] = read // 24
            else:
                found[place] = read
        days = behind
    return found


def _command(keys: QueueKeys | TopicKeys, day: int, oldest: int) -> Command:
    names = [keys.totals, *(keys.hours(day + after) for after in range(DAYS))]
    return scripts.command("counters_totals", keys=names, args=[day, oldest * 24, *KINDS])


@readable
def _read(reply: Any) -> Totals | int:
    """Return the totals, or the hour at which the next call must begin."""
    hour, *sums = reply_or_raise(reply)
    if not sums:
        return whole(hour) or 0
    return {kind: whole(count) or 0 for kind, count in zip(KINDS, sums, strict=True)}
