"""Which partitions the consumers of this supervisor prefer: those that they look at first, and more often.

Every supervisor computes it from the members of each partition, for the same consumers with the same result. Nothing
depends on it but the order in which partitions are looked at: whoever has a free lane takes from any of them.
"""

from collections.abc import Mapping

from mq_django.conf import QueueConfig
from mq_django.consumers.by_server import ServerQueues
from mq_django.consumers.supervisor.worker_states import WorkerStates
from mq_django.core.partitions import preferred
from mq_django.stores.members import Membership


class Preferences:
    """Tells consumers which partitions they prefer.

    Args:
        queues: the queues on one server, of which some are partitions.
        states: the consumers of this supervisor.
    """

    def __init__(self, queues: ServerQueues, states: WorkerStates) -> None:
        self._parts: Mapping[int, QueueConfig] = {
            number: config for number, config in queues.items() if config.is_partition
        }
        self._states = states
        #: Consumers that fetch, and the number of partitions -> the consumer that prefers each partition.
        self._known: tuple[tuple[tuple[str, ...], int], Mapping[int, str]] = (((), 0), {})

    def seen(self, number: int, membership: Membership) -> None:
        """Set whether the consumers of this supervisor prefer a queue, if it is a partition, by its members."""
        config = self._parts.get(number)
        if config is None:
            return
        fetching = tuple(
            sorted(
                name
                for name, announced in membership.consumers.items()
                if announced.get("state") not in ("quiet", "stopping")
                and not announced.get("ward")
                and announced.get("threads")
            )
        )
        key = (fetching, config.partitions)
        if self._known[0] != key:
            choice = preferred(config.partitions, fetching)
            self._known = key, {part: name for name, parts in choice.items() for part in parts}
        self._states.prefer(number, self._known[1].get(config.number, ""))
