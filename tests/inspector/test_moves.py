"""Dead letters that go to another queue: which queues these can be, and what is told."""

import pytest

from mq_django import inspector, topics
from mq_django.errors import ConnectionLost, NotSupported, UnknownQueue
from mq_django.inspector import dead_letters, jobs, message_lists
from mq_django.inspector.run_check import check_runs
from mq_django.stores.moving import Mover
from tests.seeding import bury, bury_garbage, bury_many, publish, start_run

pytestmark = pytest.mark.usefixtures("mq_settings")


def counts():
    """Return the dead letters of `emails`, and what is ready in `default`."""
    return inspector.queue("emails").dead, inspector.queue("default").ready


def test_what_is_no_target_is_refused_before_anything_is_written(mq_settings, subtests):
    mq_settings(QUEUES={"emails": {}, "default": {}}, TOPICS={"orders": {}})
    message_id = bury("emails")
    entry = dead_letters.find("emails", message_id)
    acts = (
        lambda target: dead_letters.move("emails", target, [entry]),
        lambda target: dead_letters.move_messages("emails", target, [message_id]),
        lambda target: jobs.begin("emails", "move", who="ann", target=target),
    )

    for target, error, sentence in [
        ("emails", NotSupported, "redrive them"),
        ("orders", NotSupported, "'orders' is a topic"),
        ("orders:typo", UnknownQueue, "has no group 'typo'"),
        ("nope", UnknownQueue, "No queue 'nope'"),
        ("", UnknownQueue, "No queue ''"),
        ("mail.out", UnknownQueue, "A dot is for partitions: write 'mail-out'"),
    ]:
        for number, act in enumerate(acts):
            with subtests.test(target=target, act=number), pytest.raises(error, match=sentence):
                act(target)

    assert counts() == (1, 0)
    assert jobs.get_job("emails") is None


def test_some_are_moved_and_each_is_counted(redis_client):
    first, second, third = bury_many("emails", 3)
    bury_garbage(redis_client, "emails", {"x": "y"})
    letters = message_lists.messages("emails", "dead", limit=9).rows
    chosen = [letter.ref for letter in letters if letter.id != third]

    outcome = dead_letters.move("emails", "default", [*chosen, chosen[0], "5-5", "nonsense"])

    assert (outcome.done, outcome.missing, outcome.refused, outcome.error) == (2, 2, 1, None)
    assert sorted(dict(inspector.ids("default"))["ready"]) == sorted([first, second])
    assert dead_letters.find("emails", third)
    assert dead_letters.move_messages("emails", "default", [third, "gone"]).missing == 1
    assert counts() == (1, 3)


def test_what_was_written_is_written_once_however_often_that_is_begun(monkeypatch):
    ids = bury_many("emails", 3)
    remove = Mover.remove

    def gone(self, *args, **more):
        raise ConnectionLost("gone")

    with monkeypatch.context() as broken:
        broken.setattr(Mover, "remove", gone)
        for _ in range(2):
            outcome = dead_letters.move_messages("emails", "default", ids)
            assert (outcome.done, str(outcome.error)) == (0, "gone")
    assert counts() == (3, 3)
    assert Mover.remove is remove

    assert dead_letters.move_messages("emails", "default", ids).done == 3
    assert counts() == (0, 3)


def test_names_without_a_handler_are_told_if_this_project_handles_the_queue(mq_settings):
    mq_settings(QUEUES={"emails": {}, "default": {}, "others": {"EXTERNAL": True}})
    assert dead_letters.without_handler("default", ["nobody.has.this", "nobody.has.this"]) == ["nobody.has.this"]
    assert dead_letters.without_handler("others", ["nobody.has.this"]) == []


def test_messages_whose_dead_letters_are_longer_than_they_are_move_together(monkeypatch):
    """As dead letters they pass in more steps than they become dead letters: none of them stays one."""
    for n in range(40):
        publish("emails", "welcome", f"{n:>48}")
    # Twenty have one byte less.
    monkeypatch.setattr("mq_django.stores.moving.STEP_BYTES", 20 * 50 + 1)
    refs = [view.ref for view in message_lists.messages("emails", "ready", limit=50).rows]

    outcome = jobs.move("emails", "ready", "default", refs)

    assert (outcome.done, outcome.missing, outcome.refused, outcome.error) == (40, 0, 0, None)
    assert counts() == (0, 40)


def test_messages_in_the_log_of_a_topic_are_refused_and_not_missing(mq_settings):
    mq_settings(QUEUES={"emails": {}, "default": {}}, TOPICS={"orders": {}})
    topics["orders"].group("billing").subscribe("beginning")
    topics["orders"].publish("order.paid", 1, on_commit=False)
    own = publish("orders:billing", "again", 1)
    refs = [view.ref for view in message_lists.messages("orders:billing", "ready", limit=5).rows]

    outcome = jobs.move("orders:billing", "ready", "default", [*refs, refs[-1], "ready.5-5"])

    assert (outcome.done, outcome.refused, outcome.missing, outcome.error) == (1, 1, 1, None)
    assert dict(inspector.ids("default"))["ready"] == [own]
    # Of those that wait, the references are their ids.
    waiting = publish("emails", "welcome", 1, message_id="log.1", delay=60)
    assert jobs.move("emails", "delayed", "default", [waiting]).done == 1


def test_steps_of_workflows_stay_in_their_queue():
    """There a run looks for them: it would start them again."""
    run_id = start_run({1: []}, queue="emails")
    other = publish("emails", "welcome", 1)
    step = f"w:{run_id}.1.1"
    outcome = jobs.move_messages("emails", "default", [step, other])
    assert (outcome.done, outcome.refused, outcome.missing, outcome.error) == (1, 1, 0, None)
    assert dict(inspector.ids("emails"))["ready"] == [step]
    assert check_runs(run_id, seconds=9, old_ms=-1000).problems == []
