"""Keys are spread over partitions, partitions over slots, and both over consumers."""

from collections import Counter

from mq_django.core.partitions import SLOTS, partition_of, preferred, tag_of
from mq_django.transport.cluster_topology import hash_slot


def test_programs_in_other_languages_choose_the_same_partition(subtests):
    for key, partition in [("user:7", 55), ("", 0), ("käse", 55)]:
        with subtests.test(key=key):
            # python3 -c "import zlib; print(zlib.crc32('user:7'.encode()) % 64)"
            assert partition_of(key, 64) == partition


def test_keys_are_spread_evenly():
    counts = Counter(partition_of(f"user:{n}", 64) for n in range(100_000))
    assert len(counts) == 64
    assert max(counts.values()) < 1.15 * 100_000 / 64


def test_each_partition_has_a_tag_in_a_range_of_slots_of_its_own(subtests):
    for partitions in [1, 2, 16, 64, 100]:
        with subtests.test(partitions=partitions):
            slots = [hash_slot(f"mq:{{{tag_of('payments', p, partitions)}}}:ready") for p in range(partitions)]
            assert [slot * partitions // SLOTS for slot in slots] == list(range(partitions))


def test_each_partition_is_preferred_by_one_consumer_and_none_has_more_than_its_share(subtests):
    for partitions, consumers in [(64, 1), (64, 3), (64, 7), (4, 10), (16, 16)]:
        with subtests.test(partitions=partitions):
            names = [f"c{n}" for n in range(consumers)]
            found = preferred(partitions, names)
            assert sorted(p for mine in found.values() for p in mine) == list(range(partitions))
            assert max(len(mine) for mine in found.values()) == -(-partitions // consumers)
            assert preferred(partitions, reversed(names)) == found


def test_nobody_prefers_anything_when_there_is_nobody():
    assert preferred(4, []) == {}


def test_most_partitions_stay_when_a_consumer_leaves():
    before, after = preferred(128, "abcdefgh"), preferred(128, "abcdefg")
    moved = sum(p not in after[consumer] for consumer in "abcdefg" for p in before[consumer])
    assert moved < 0.25 * 128
