"""A simulation of a cluster, message by message: what the model computes, and how long messages wait."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.scaling.model import Costs, Keys, node_of, shares_of_keys
from mq_django.core.partitions import partition_of


@dataclass(frozen=True, slots=True)
class Simulated:
    """What became of the messages, in seconds."""

    #: From the first message to the end of the last.
    took: float
    #: How long each waited from its publish to the start of its handler, in order of publishing.
    waits: tuple[float, ...]
    #: How long the core of each node was busy.
    busy: tuple[float, ...]


def simulate(
    costs: Costs, keys: Keys, *, partitions: int, nodes: int, count: int, offered: float = 0.0, seed: int = 1
) -> Simulated:
    """Publish messages, and let them be handled.

    Each occupies the core of its node, after those that came before it, and with order then the line of its key.

    Args:
        costs: those of a message.
        keys: those of the queue.
        partitions, nodes: their numbers.
        count: the number of messages.
        offered: messages a second, at random moments; 0: all are there at the beginning.
        seed: another one gives other moments and keys.
    """
    chosen = random.Random(seed)
    cores, lines = [0.0] * nodes, [0.0] * max(1, keys.count)
    busy, waits, ends = [0.0] * nodes, [], []
    now = 0.0
    for key, partition in itertools.islice(_messages(chosen, keys, partitions), count):
        now += chosen.expovariate(offered) if offered else 0.0
        node = node_of(partition, partitions, nodes)
        cores[node] = start = max(now, cores[node]) + costs.server / 1e6
        busy[node] += costs.server / 1e6
        if costs.gap is not None:
            start = max(start, lines[key])
            lines[key] = start + costs.handler + costs.gap
        waits.append(start - now)
        ends.append(start + costs.handler)
    return Simulated(max(ends, default=0.0), tuple(waits), tuple(busy))


def _messages(chosen: random.Random, keys: Keys, partitions: int) -> Iterator[tuple[int, int]]:
    """Yield keys, by their number, and partitions without end."""
    if not keys.count:
        yield from zip(itertools.repeat(0), itertools.cycle(range(partitions)))
    shares = list(itertools.accumulate(shares_of_keys(keys)))
    numbers = range(keys.count)
    places = [partition_of(f"customer:0-{number}", partitions) for number in numbers]
    while True:
        for key in chosen.choices(numbers, cum_weights=shares, k=1000):
            yield key, places[key]
