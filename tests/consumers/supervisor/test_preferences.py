"""Each partition is preferred by one consumer that fetches."""

import pytest

from mq_django.conf import get_config
from mq_django.consumers.supervisor.worker_set import Preferences
from mq_django.core.partitions import preferred
from mq_django.stores.members import Membership

PARTITIONS = 8


class States:
    """Notes which consumer prefers which queue."""

    def __init__(self):
        self.noted = {}

    def prefer(self, number, consumer):
        self.noted[number] = consumer


@pytest.fixture
def seen(mq_settings):
    """Return a function that tells all partitions of their members, and returns who prefers each."""
    mq_settings(QUEUES={"emails": {}, "default": {"PARTITIONS": PARTITIONS}})
    queues = dict(enumerate([get_config().queue("emails"), *get_config().queue("default").parts]))
    states = States()
    preferences = Preferences(queues, states)

    def tell(**consumers):
        described = {name: {"threads": 4, "state": "running", **description} for name, description in consumers.items()}
        for number in queues:
            preferences.seen(number, Membership(beats={}, seen_ms={}, supervisors={}, consumers=described))
        return states.noted

    return tell


def test_each_partition_is_preferred_by_the_consumer_that_all_supervisors_choose(seen):
    noted = seen(b={}, a={})
    chosen = preferred(PARTITIONS, ["a", "b"])
    assert noted == {part + 1: name for name, parts in chosen.items() for part in parts}
    assert sorted(noted.values()) == ["a"] * 4 + ["b"] * 4


def test_consumers_that_fetch_nothing_are_left_out(seen):
    seen(a={}, b={})
    noted = seen(a={}, b={"state": "quiet"}, c={"quarantine": True}, d={"threads": 0}, e={"state": "stopping"})
    assert set(noted.values()) == {"a"}
    assert set(seen().values()) == {""}
