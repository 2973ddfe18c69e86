"""Dead letters that go to another queue: which queues these can be, and what is told."""

import pytest

from mq_django import inspector, registry
from mq_django.conf import get_config
from mq_django.consumers.supervisor.redriver import work_here
from mq_django.core.filters import FailureGroup, Filter
from mq_django.errors import ConnectionLost, InvalidFilter, NotSupported, QueueFull, UnknownQueue
from mq_django.inspector import actions, dead_letters, jobs, moves
from mq_django.stores.background_jobs import IDLE
from mq_django.stores.moving import Mover
from tests.seeding import bury, bury_garbage, bury_many, publish

pytestmark = pytest.mark.usefixtures("mq_settings")


def counts():
    """Return the dead letters of `emails`, and what is ready in `default`."""
    return inspector.queue("emails").dead, inspector.queue("default").ready


def work_off():
    while work_here("emails", "w1") != IDLE:
        pass
    return jobs.look("emails")


def test_queues_and_groups_are_targets_and_topics_are_not(mq_settings):
    mq_settings(QUEUES={"emails": {}, "bulk": {}, "old": {"STORE": "rsmq"}}, TOPICS={"orders": {}})
    groups = registry.groups("orders")
    assert moves.targets("emails") == ["bulk", "old", *groups]
    assert moves.targets(groups[0]) == ["bulk", "emails", "old", *groups[1:]]
    mq_settings(QUEUES={"emails": {}})
    assert moves.targets("emails") == []


def test_what_is_no_target_is_refused_before_anything_is_written(mq_settings, subtests):
    mq_settings(QUEUES={"emails": {}, "default": {}}, TOPICS={"orders": {}})
    message_id = bury("emails")
    entry = dead_letters.find("emails", message_id)
    acts = (
        lambda target: moves.move("emails", target, [entry]),
        lambda target: moves.move_messages("emails", target, [message_id]),
        lambda target: jobs.begin("emails", "move", who="ann", target=target),
    )

    for target, error, sentence in [
        ("emails", NotSupported, "redrive them"),
        ("orders", NotSupported, "'orders' is a topic"),
        ("orders:typo", UnknownQueue, "has no group 'typo'"),
        ("nope", UnknownQueue, "No queue 'nope'"),
        ("", UnknownQueue, "No queue ''"),
    ]:
        for number, act in enumerate(acts):
            with subtests.test(target=target, act=number), pytest.raises(error, match=sentence):
                act(target)

    assert counts() == (1, 0)
    assert jobs.look("emails") is None


def test_a_topic_has_no_dead_letters_and_its_groups_have(mq_settings):
    mq_settings(QUEUES={"default": {}}, TOPICS={"orders": {}})
    with pytest.raises(UnknownQueue):
        moves.move("orders", "default", ["1-1"])
    assert moves.move("orders:billing", "default", ["1-1"]).missing == 1


def test_some_are_moved_and_each_is_counted(redis_client):
    first, second, third = bury_many("emails", 3)
    bury_garbage(redis_client, "emails", {"x": "y"})
    letters = dead_letters.page("emails", limit=9).letters
    chosen = [letter.entry for letter in letters if letter.message.id != third]

    outcome = moves.move("emails", "default", [*chosen, chosen[0], "5-5", "nonsense"])

    assert (outcome.done, outcome.missing, outcome.refused, outcome.error) == (2, 2, 1, None)
    assert sorted(dict(inspector.ids("default"))["ready"]) == sorted([first, second])
    assert dead_letters.find("emails", third)
    assert moves.move_messages("emails", "default", [third, "gone"]).missing == 1
    assert counts() == (1, 3)


def test_counters_stay_as_after_a_redrive():
    bury_many("emails", 3)
    before = inspector.totals().published
    moves.move_messages("emails", "default", dict(inspector.ids("emails"))["dead"])
    assert inspector.totals().published == before
    assert dead_letters.groups("emails") == []


def test_a_full_queue_is_an_error_after_the_others_were_moved(mq_settings):
    mq_settings(QUEUES={"emails": {}, "default": {"MAX_DEPTH": 2}})
    ids = bury_many("emails", 3)

    outcome = moves.move_messages("emails", "default", ids)

    assert (outcome.done, counts()) == (2, (1, 2))
    assert isinstance(outcome.error, QueueFull)
    assert str(outcome.error) == "Queue 'default' is at its MAX_DEPTH of 2"


def test_what_was_written_is_written_once_however_often_that_is_begun(monkeypatch):
    ids = bury_many("emails", 3)
    remove = Mover.remove

    def gone(self, *args, **more):
        raise ConnectionLost("gone")

    with monkeypatch.context() as broken:
        broken.setattr(Mover, "remove", gone)
        for _ in range(2):
            outcome = moves.move_messages("emails", "default", ids)
            assert (outcome.done, str(outcome.error)) == (0, "gone")
    assert counts() == (3, 3)
    assert Mover.remove is remove

    assert moves.move_messages("emails", "default", ids).done == 3
    assert counts() == (0, 3)


def test_a_queue_may_be_paused():
    ids = bury_many("emails", 2)
    actions.pause("default")
    assert moves.move_messages("emails", "default", ids).done == 2


def test_a_job_moves_those_that_match():
    bury_many("emails", 150)
    kept = bury("emails", "remind", error="SMTPError: refused")
    group = Filter(group=FailureGroup("welcome", "ValueError"))
    assert jobs.begin("emails", "move", who="ann", criteria=group, target="default") == jobs.Begun("begun", 151)
    later = bury("emails")

    found = work_off()

    assert (found.what, found.target, found.done, found.looked, found.state) == (
        "move",
        "default",
        150,
        151,
        "finished",
    )
    assert sorted(dict(inspector.ids("emails"))["dead"]) == sorted([kept, later])
    assert counts() == (2, 150)


def test_a_rate_limits_a_job():
    bury_many("emails", 30)
    jobs.begin("emails", "move", who="ann", rate=50, target="default")
    assert work_here("emails", "w1") == pytest.approx(0.2)
    assert counts() == (20, 10)
    assert jobs.cancel("emails")
    assert work_off().state == "cancelled"
    assert counts() == (20, 10)


def test_what_selects_nothing_that_is_known_is_refused():
    bury("emails")
    with pytest.raises(InvalidFilter):
        jobs.begin("emails", "move", who="ann", target="default", until="nonsense")
    assert jobs.begin("default", "move", who="ann", target="emails") == jobs.Begun("nothing")


def test_names_without_a_handler_are_told_if_this_project_handles_the_queue(mq_settings):
    mq_settings(QUEUES={"emails": {}, "default": {}, "others": {"CONSUME": False}})
    assert moves.without_handler("default", ["nobody.has.this", "nobody.has.this"]) == ["nobody.has.this"]
    assert moves.without_handler("others", ["nobody.has.this"]) == []


def test_a_moved_message_is_no_longer_a_message_of_its_old_queue():
    message_id = bury("emails", "welcome", {"n": 1}, key="user:7")
    publish("default", "other")
    moves.move_messages("emails", "default", [message_id])
    assert dict(inspector.ids("emails")) == {}
    assert message_id in dict(inspector.ids("default"))["ready"]
    assert get_config().queue("default").keys.moved != get_config().queue("emails").keys.moved
