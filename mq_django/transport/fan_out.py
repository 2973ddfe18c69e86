"""Send trips to several servers at the same time."""

import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from mq_django.errors import ConnectionLost, ConnectionRejected
from mq_django.transport.budgets import budget_now, within
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Wire


def fan_out(wires: Sequence[Wire], trips: Sequence[Sequence[Command]]) -> list[list[Any]]:
    """Send each trip over its wire, and return the replies of each trip: one round trip per wire, all at once.

    A server that cannot be reached has an error in the place of each reply, as long as another one can be reached.

    Within a budget they get half of what is left, so that a server that does not answer leaves time for other reads.

    Raises:
        ConnectionRejected: no server can be used.
        ConnectionLost: no server could be reached, or the connection broke. It is unknown which commands ran.
    """
    shares: dict[int, list[int]] = {}
    for number, wire in enumerate(wires):
        shares.setdefault(id(wire), []).append(number)
    if len(shares) < 2:
        return wires[0].trips(trips) if wires else []
    replies: list[list[Any]] = [[] for _ in trips]
    lost: list[ConnectionLost | ConnectionRejected] = []
    budget, began = budget_now(), time.monotonic()
    seconds = budget.left / 2 if budget else math.inf
    with ThreadPoolExecutor(len(shares)) as pool:
        asked = []
        for share in shares.values():
            wire, its_trips = wires[share[0]], [trips[number] for number in share]
            # The context has the budget of a page.
            asked.append(pool.submit(copy_context().run, _ask, wire, its_trips, seconds))
        for share, reply in zip(shares.values(), asked, strict=True):
            try:
                found = reply.result()
            except (ConnectionLost, ConnectionRejected) as error:
                lost.append(error)
                found = [[error for _ in trips[number]] for number in share]
            for number, one in zip(share, found, strict=True):
                replies[number] = one
    if budget:
        budget.left -= time.monotonic() - began
    if len(lost) == len(shares):
        raise lost[0]
    return replies


def _ask(wire: Wire, trips: Sequence[Sequence[Command]], seconds: float) -> list[list[Any]]:
    with within(seconds):
        return wire.trips(trips)
