"""Names of partitions, which partition of a queue a message is for, and which consumers prefer which partitions.

The choice by key is public: programs in other languages make it, too (docs/protocol.md).
"""

import binascii
import itertools
import os
import re
import secrets
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import cache, lru_cache
from hashlib import blake2b
from zlib import crc32

#: Hash slots of a Redis Cluster.
SLOTS = 16384

#: Between the name of a queue and the number of a partition in the partition's name, and before that number in ids.
SEPARATOR = "."
_NUMBER = re.compile(r"\.(0|[1-9][0-9]{0,4})\Z", re.ASCII)
#: The form of `mq_django.core.ids.new_id()`.
_GENERATED = re.compile(r"[0-9a-z]{13}[0-9a-f]+\.", re.ASCII)
_IN_NAME = re.compile(r"\.[0-9]+", re.ASCII)
_turns: Iterator[int] = itertools.count()


def partition_name(queue: str, number: int) -> str:
    """Return the name of a partition, such as `payments.3`."""
    return f"{queue}{SEPARATOR}{number}"


@lru_cache(maxsize=4096)
def public_name(name: str) -> str:
    """Return the name of a queue or group for those who publish and handle: of a partition that of the whole."""
    return _IN_NAME.sub("", name)


def listed(names: Collection[str]) -> list[str]:
    """Return names to show: for the partitions of a queue that name once, with their number."""
    counts = Counter(map(public_name, names))
    own = set(names)
    return [name if name in own else f"{name} ({count} partitions)" for name, count in counts.items()]


def number_in(name: str) -> int | None:
    """Return the number that the name of a partition ends with, if it does."""
    found = _NUMBER.search(name)
    return None if found is None else int(found[1])


def number_in_id(message_id: str) -> int | None:
    """Return the number of the partition that a generated id names; None of ids that were given."""
    return number_in(message_id) if _GENERATED.match(message_id) else None


def in_turn(partitions: int) -> int:
    """Return the next partition for messages without a key. Each process starts with another one."""
    return next(_turns) % partitions


def partition_of(key: str, partitions: int) -> int:
    """Return the partition of a key: CRC-32 (as in gzip) of its UTF-8 bytes, modulo the number of partitions."""
    return crc32(key.encode("utf-8", "surrogatepass")) % partitions


def slot_of(tag: str) -> int:
    """Return the hash slot of a hash tag, by CRC-16 in the form XMODEM as the cluster specification of Redis says."""
    return binascii.crc_hqx(tag.encode(), 0) % SLOTS


@cache
def tag_of(name: str, partition: int, partitions: int) -> str:
    """Return the hash tag of a partition, without braces: `name.partition.x`.

    x is the smallest number that puts the tag into the range of slots that is the partition's: the p-th of n equal
    ranges. So partitions are spread evenly over the nodes of a cluster, each of which has a range of slots. Plain
    numbers are not: of 64 on three nodes, one has 1.17 times as many as the mean.
    """
    x = 0
    while slot_of(tag := f"{name}.{partition}.{x}") * partitions // SLOTS != partition:
        x += 1
    return tag


def preferred(partitions: int, consumers: Collection[str]) -> dict[str, list[int]]:
    """Return which partitions each consumer prefers: rendezvous hashing with bounded load.

    Each partition goes to the consumer with the highest hash of both names that has not got its share yet, which is the
    number of partitions by that of consumers, rounded up. All who know the same consumers compute the same, and when
    one comes or goes, most partitions stay where they are.

    Sources: Thaler and Ravishankar, "Using Name-Based Mappings to Increase Hit Rates" (1998), for rendezvous hashing;
    Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded Loads" (2018), for the bound.
    """
    found: dict[str, list[int]] = {consumer: [] for consumer in sorted(consumers)}
    if not found:
        return found
    share = -(-partitions // len(found))
    for partition in range(partitions):
        for consumer in _ranked(partition, found):
            if len(found[consumer]) < share:
                found[consumer].append(partition)
                break
    return found


def _ranked(partition: int, consumers: Collection[str]) -> Sequence[str]:
    return sorted(consumers, key=lambda consumer: (_weight(partition, consumer), consumer), reverse=True)


def _weight(partition: int, consumer: str) -> bytes:
    return blake2b(f"{partition}:{consumer}".encode(), digest_size=8).digest()


def begin_turns() -> None:
    """Let this process begin with another partition than other processes."""
    global _turns  # noqa: PLW0603 - the state of this process, and the reason for this function
    _turns = itertools.count(secrets.randbits(32))


def likely_first(queues: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return the positions of each queue's first partition, and of the others: see QueueConfig.partitions_for_id().

    Args:
        queues: the names of their queues.
    """
    seen: set[str] = set()
    likely, others = list[int](), list[int]()
    for at, name in enumerate(queues):
        (others if name in seen else likely).append(at)
        seen.add(name)
    return likely, others


def end_turns() -> None:
    """Let all messages without a key go to the first partition, until begin_turns(): tests see them in their order."""
    global _turns  # noqa: PLW0603 - the state of this process, and the reason for this function
    _turns = itertools.repeat(0)


begin_turns()
# Forked children would all go on with the same partition.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=begin_turns)
