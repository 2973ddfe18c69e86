"""Which partition of a queue a message is for, and which consumers prefer which partitions.

The choice by key is public: programs in other languages make it, too (docs/protocol.md).
"""

import binascii
from collections.abc import Collection, Sequence
from functools import cache
from hashlib import blake2b
from zlib import crc32

#: Hash slots of a Redis Cluster.
SLOTS = 16384


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
    number of partitions by that of consumers, rounded up. Whoever knows the same consumers computes the same, and when
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
