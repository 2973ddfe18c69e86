"""How many messages a fetcher may take, by the pools in which its queue's handlers run."""

from mq_django.consumers.worker.batches import Batches
from mq_django.consumers.worker.pools import MAX_PREFETCH, Pool
from mq_django.registry import batches, kinds

#: Messages that may wait for a blocked pool, so that later ones reach the other pool.
MAX_WAITING = 500


class Room:
    """The free capacity for one queue in the pools of its consumer.

    Before a message is fetched it is not known whether a thread or the event loop will run it. So some messages may
    wait for a pool that is blocked by slow handlers, as long as the other pool has room.
    """

    def __init__(self, queue: str, threads: Pool, loop: Pool, batches: Batches) -> None:
        self._queue = queue
        self._pools = {False: threads, True: loop}
        self._batches = batches

    def is_blocked(self) -> bool:
        """Return whether a pool is blocked: fetched messages may wait for it and be handed back."""
        return any(pool.blocked for pool in self._pools.values())

    def messages(self, seconds: float, in_hand: int, ahead: int = MAX_PREFETCH) -> int:
        """Return how many messages to fetch, if one takes `seconds`; with 0 the fetcher will be woken.

        `in_hand`: how many messages of the queue this process has fetched and not yet settled.
        `ahead`: see Pool.room().
        """
        if of_queue := batches(self._queue):
            waiting = self._batches.waiting(self._queue)
            room = [self._pools[kind].room_for_batches(batch, waiting, in_hand) for kind, batch in of_queue.items()]
            return max(room)
        pools = [self._pools[is_async] for is_async in kinds(self._queue)] or list(self._pools.values())
        room = [pool.room(seconds, ahead) for pool in pools]
        if all(room) or not any(room):
            return min(room)
        full = pools[room.index(0)]
        return max(0, min(max(room), MAX_WAITING - full.waiting())) if full.blocked else 0
