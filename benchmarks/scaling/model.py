"""How much a cluster does: a model, because more nodes than there are cores cannot be measured.

The inputs are costs that were measured on one node. What is computed rests on these assumptions:

1. A node executes all commands on one core. A message costs it the same whatever else the node does.
2. Only publishing and handling cost anything. What is idle, such as heartbeats, is left out.
3. Each node has an equal range of hash slots. Partitions are in the slots of `tag_of`, keys in those of `partition_of`.
4. The i-th key of a queue has a share of its messages proportional to 1 / i ** skew (Zipf); with 0 all are equal.
5. There are enough consumers, and they handle the messages of any partition. So the handlers limit only single keys.
6. With order, the messages of a key run one after another: each lasts as long as its handler and a gap, in which it is
   settled and the next one is fetched.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, inf
from statistics import median

from redis.crc import key_slot

from mq_django.core.partitions import SLOTS, partition_of, tag_of

#: The most partitions that a plan has: each has heartbeats of its own.
MOST_PARTITIONS = 256
#: Sets of names of keys whose median counts: where keys are is a matter of their names. Fewer for many keys.
NAMINGS, KEYS_OF_ALL_NAMINGS = 101, 150_000


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a queue.

    Args:
        count: how many; 0: messages have no key, and go to the partitions in turn.
        skew: the exponent of their shares.
    """

    count: int = 0
    skew: float = 0.0

    @property
    def hottest(self) -> float:
        """The share of the messages that the hottest key has."""
        return max(shares_of_keys(self), default=0.0)


@dataclass(frozen=True, slots=True)
class Costs:
    """What a message costs.

    Args:
        server: microseconds of the core of the node.
        handler: seconds that a handler runs.
        gap: seconds between two messages of a key with order; None: the queue has no order.
    """

    server: float
    handler: float = 0.0
    gap: float | None = None


@dataclass(frozen=True, slots=True)
class Rate:
    """What a queue does at most, in messages a second."""

    #: As far as the node with the most to do allows it.
    by_nodes: float
    #: As far as the hottest key allows it.
    by_hottest_key: float

    @property
    def value(self) -> float:
        """The lower of both."""
        return min(self.by_nodes, self.by_hottest_key)


@cache
def shares_of_keys(keys: Keys) -> tuple[float, ...]:
    """Return the share of the messages that each key has, the hottest first."""
    weights = [number**-keys.skew for number in range(1, keys.count + 1)]
    whole = sum(weights)
    return tuple(weight / whole for weight in weights)


@cache
def shares_of_partitions(keys: Keys, partitions: int, naming: int = 0) -> tuple[float, ...]:
    """Return the share of the messages that each partition has.

    Args:
        keys: those of the queue.
        partitions: their number.
        naming: the keys have other names for each number.
    """
    if not keys.count:
        return (1 / partitions,) * partitions
    found = [0.0] * partitions
    for number, share in enumerate(shares_of_keys(keys)):
        found[partition_of(f"customer:{naming}-{number}", partitions)] += share
    return tuple(found)


@cache
def node_of(partition: int, partitions: int, nodes: int) -> int:
    """Return the node that has a partition, of nodes with equal ranges of slots."""
    return key_slot(tag_of("clicks", partition, partitions).encode()) * nodes // SLOTS


def shares_of_nodes(keys: Keys, partitions: int, nodes: int, naming: int = 0) -> tuple[float, ...]:
    """Return the share of the messages that each node has."""
    found = [0.0] * nodes
    for partition, share in enumerate(shares_of_partitions(keys, partitions, naming)):
        found[node_of(partition, partitions, nodes)] += share
    return tuple(found)


def spread(shares: Sequence[float]) -> float:
    """Return the largest share by the mean of all."""
    return max(shares) * len(shares)


def namings(keys: Keys) -> int:
    """Return how many sets of names are tried."""
    return min(NAMINGS, max(1, KEYS_OF_ALL_NAMINGS // keys.count)) if keys.count else 1


@cache
def spread_of_nodes(keys: Keys, partitions: int, nodes: int) -> float:
    """Return the load of the node with the most, by the mean of all nodes: the median of several sets of names."""
    tried = range(namings(keys))
    return median(spread(shares_of_nodes(keys, partitions, nodes, naming)) for naming in tried)


@cache
def spread_of_partitions(keys: Keys, partitions: int) -> float:
    """Return the load of the partition with the most, by the mean of all: the median of several sets of names."""
    return median(spread(shares_of_partitions(keys, partitions, naming)) for naming in range(namings(keys)))


def rate(costs: Costs, keys: Keys, *, partitions: int, nodes: int, use: float = 1.0) -> Rate:
    """Return what a queue does at most.

    Args:
        costs: those of a message.
        keys: those of the queue.
        partitions: their number; 1 is a queue without the option.
        nodes: the number of nodes.
        use: how much of the core of the node with the most to do is used, from 0 to 1.
    """
    of_one = use / costs.server * 1e6
    by_nodes = of_one * nodes / spread_of_nodes(keys, partitions, nodes)
    return Rate(by_nodes, inf if costs.gap is None else keys_rate(costs, keys))


def keys_rate(costs: Costs, keys: Keys) -> float:
    """Return the messages a second of a queue with order at which its hottest key is always busy."""
    busy = keys.hottest * (costs.handler + (costs.gap or 0.0))
    return 1 / busy if busy else inf


def nodes_for(wished: float, costs: Costs, keys: Keys, *, use: float) -> tuple[int, int]:
    """Return the nodes for so many messages a second, and the partitions: 1 if a node has room for all of them.

    Args:
        wished: messages a second.
        costs, keys, use: as for `rate()`. Keys are spread as evenly as their skew allows.

    Raises:
        ValueError: one partition for each node is not enough.
    """
    if rate(costs, keys, partitions=1, nodes=1, use=use).by_nodes >= wished:
        return 1, 1
    # A cluster has at least three masters.
    for nodes in range(max(3, ceil(wished * costs.server / 1e6 / use)), MOST_PARTITIONS + 1):
        partitions = partitions_for(nodes)
        if rate(costs, keys, partitions=partitions, nodes=nodes, use=use).by_nodes >= wished:
            return nodes, partitions
    raise ValueError(f"{wished:,.0f} messages a second are more than {MOST_PARTITIONS} nodes have room for")


def partitions_for(nodes: int) -> int:
    """Return the partitions for some nodes: a power of two, at least 16 and, up to the most, 8 a node."""
    return min(MOST_PARTITIONS, max(16, 1 << (8 * nodes - 1).bit_length())) if nodes > 1 else 1
