"""What is done to many dead letters: counted, bounded, one at a time, and safe to go on with."""

import pytest

from mq_django import inspector
from mq_django.conf import get_config
from mq_django.consumers.supervisor.chores import work_here
from mq_django.core.filters import FailureGroup, Filter
from mq_django.errors import ConnectionLost
from mq_django.inspector import dead_letters, jobs
from mq_django.stores.background_jobs import IDLE
from mq_django.stores.dead_letters import DeadLetters
from tests.seeding import bury, bury_garbage, bury_many

pytestmark = pytest.mark.usefixtures("mq_settings")


def work_off(worker: str = "w1", queue: str = "emails") -> jobs.BackgroundJob:
    """Make every step of the job, and return what it says in the end."""
    while work_here(queue, worker) != IDLE:
        pass
    found = jobs.get_job(queue)
    assert found is not None
    return found


def counts() -> tuple[int, int]:
    view = inspector.queue("emails")
    return view.ready, view.dead


def test_a_job_whose_filter_is_broken_is_cancelled_and_moves_nothing(redis_client, subtests):
    bury_many("emails", 3)
    key = get_config().queue("emails").keys.jobs
    nonsense = [b"[]", b"5", b'{"name":5}', b'{"group":"ab"}', b'{"since_ms":"1"}', b'{"else":"x"}']
    filters = [*nonsense, None]
    for field, value in [*(("wanted", each) for each in filters), ("rate", b"x")]:
        with subtests.test(field=field, value=value):
            jobs.begin("emails", "delete", who="ann", criteria=Filter(name="welc"))
            redis_client.hdel(key, f"dead:{field}")
            if value is not None:
                redis_client.hset(key, f"dead:{field}", value)

            assert jobs.get_job("emails") is None
            assert work_here("emails", "w1") == IDLE

            assert redis_client.hget(key, "dead:state") == b"cancelled"
            assert counts() == (0, 3)


def test_all_up_to_the_beginning_are_redriven_and_what_is_no_message_stays(redis_client):
    bury_garbage(redis_client, "emails", {"x": "y"})
    bury_many("emails", 1200)
    assert jobs.begin("emails", "redrive", who="ann") == jobs.Begun("begun", 1201)
    bury_garbage(redis_client, "emails", {"later": "y"})

    found = work_off()

    assert (found.state, found.order.what, found.order.who) == ("finished", "redrive", "ann")
    assert (found.done, found.refused, found.missing, found.looked, found.total) == (1200, 1, 0, 1201, 1201)
    assert counts() == (1200, 2)


def test_a_group_is_meant_exactly():
    bury("emails", "order", error="ValueError: 1")
    bury("emails", "order.paid", error="ValueError: 2")
    bury("emails", "order", error="ValueErrors: 3")
    jobs.begin("emails", "redrive", who="ann", criteria=Filter(group=FailureGroup("order", "ValueError")))

    assert work_off().done == 1
    assert [(found.group, found.count) for found in dead_letters.groups("emails")] == [
        (FailureGroup("order", "ValueErrors"), 1),
        (FailureGroup("order.paid", "ValueError"), 1),
    ]


def test_the_largest_groups_are_shown_and_the_others_as_one(monkeypatch):
    monkeypatch.setattr(dead_letters, "MAX_GROUPS", 2)
    for name, count in (("a", 3), ("b", 2), ("c", 1), ("d", 1)):
        for _ in range(count):
            bury("emails", name, error="ValueError: no")
    assert [(found.group and found.group.name, found.count) for found in dead_letters.groups("emails")] == [
        ("a", 3),
        ("b", 2),
        (None, 2),
    ]


def test_a_step_whose_answer_is_lost_is_neither_forgotten_nor_made_twice(monkeypatch):
    bury_many("emails", 1100)
    jobs.begin("emails", "redrive", who="ann")
    redrive = DeadLetters.redrive

    def answers_nothing(self, entries, **more):
        redrive(self, entries, **more)
        raise ConnectionLost("gone")

    with monkeypatch.context() as broken:
        broken.setattr(DeadLetters, "redrive", answers_nothing)
        with pytest.raises(ConnectionLost):
            work_here("emails", "w1")

    found = work_off()
    assert (found.done, found.missing, found.looked) == (1100, 0, 1100)
    assert counts() == (1100, 0)
