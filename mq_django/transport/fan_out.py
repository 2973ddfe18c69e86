"""Send trips to several servers at the same time."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from mq_django.errors import ConnectionLost, ConnectionRejected
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Wire


def fan_out(wires: Sequence[Wire], trips: Sequence[Sequence[Command]]) -> list[list[Any]]:
    """Send each trip over its wire, and return the replies of each trip: one round trip per wire, all at once.

    A server that cannot be reached has an error in the place of each reply, as long as another one can be reached.

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
    with ThreadPoolExecutor(len(shares)) as pool:
        # The context has the budgets of a page.
        asked = [
            (share, pool.submit(copy_context().run, wires[share[0]].trips, [trips[number] for number in share]))
            for share in shares.values()
        ]
        for share, reply in asked:
            try:
                found = reply.result()
            except (ConnectionLost, ConnectionRejected) as error:
                lost.append(error)
                found = [[error for _ in trips[number]] for number in share]
            for number, one in zip(share, found, strict=True):
                replies[number] = one
    if len(lost) == len(shares):
        raise lost[0]
    return replies
