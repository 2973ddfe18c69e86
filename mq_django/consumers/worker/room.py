"""How many messages a fetcher may take, by what its queue's handlers run in."""

from mq_django.consumers.worker.pools import Pool
from mq_django.registry import kinds

#: Messages that may wait in front of a blocked pool, so that those behind them reach the other one.
MAX_WAITING = 500


class Room:
    """The room for one queue in the pools of its consumer.

    Of messages that are not fetched nobody knows whether a thread or the event loop will run them. So a pool that is
    blocked by slow handlers lets some wait in front of it, as long as the other has room.
    """

    def __init__(self, queue: str, threads: Pool, loop: Pool) -> None:
        self._queue = queue
        self._pools = {False: threads, True: loop}

    def is_blocked(self) -> bool:
        """Tell whether a pool is blocked: part of what is fetched may wait in front of it and be handed back."""
        return any(pool.blocked for pool in self._pools.values())

    def messages(self, seconds: float) -> int:
        """Return how many messages to fetch, if one takes `seconds`; 0 means: you will be woken."""
        pools = [self._pools[is_async] for is_async in kinds(self._queue)] or list(self._pools.values())
        room = [pool.room(seconds) for pool in pools]
        if all(room) or not any(room):
            return min(room)
        full = pools[room.index(0)]
        return max(0, min(max(room), MAX_WAITING - full.waiting())) if full.blocked else 0
