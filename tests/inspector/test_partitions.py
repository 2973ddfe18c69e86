"""A queue with partitions is shown as one, with the sums over them."""

import pytest

from mq_django import inspector, subscriber
from mq_django.conf import get_config
from mq_django.consumers.supervisor.chores import work_here
from mq_django.core.filters import Filter
from mq_django.core.messages import Bury
from mq_django.core.partitions import partition_of
from mq_django.errors import NotSupported
from mq_django.inspector import actions, dead_letters, jobs, message_lists, plans
from mq_django.producers import queues
from mq_django.stores.background_jobs import IDLE, BackgroundJobs
from mq_django.transport.connections import open_transport
from mq_django.transport.sessions import Session
from tests.seeding import beat, settle, take

pytestmark = pytest.mark.cluster

PARTITIONS = 4


@pytest.fixture(autouse=True)
def payments(mq_settings):
    """Configure the queue `payments`, and one without partitions."""
    mq_settings(QUEUES={"payments": {"PARTITIONS": PARTITIONS}, "emails": {}})


def publish_each(count=1):
    return [queues["payments"].publish("pay", {}) for _ in range(count * PARTITIONS)]


def test_a_problem_of_a_partition_is_one_of_the_queue_and_names_it():
    for part in get_config().queue("payments").parts:
        beat(part.name, "s1", consumers=1)
    actions.pause("payments.1", reason="no disk")
    view = inspector.queue("payments")

    assert not view.paused
    assert view.paused_parts == 1
    assert view.problems() == ["paused"]
    (problem,) = inspector.problems("payments")
    assert problem.sentence.startswith("payments has a problem in 1 of 4 partitions: payments.1 is paused.")


def bury_each(count=1):
    """Bury messages in each partition, and return their ids in the order of the partitions."""
    publish_each(count)
    ids = []
    for part in get_config().queue("payments").parts:
        deliveries = take(part.name, count)
        settle(part.name, deliveries, Bury(error="ValueError: no", reason="attempts"))
        ids += [delivery.message.id for delivery in deliveries]
    return ids


def test_a_job_on_a_queue_is_one_in_each_partition_that_has_messages():
    bury_each(2)
    dead_letters.delete_messages("payments", [found.id for found in dead_letters.every("payments.3")])

    assert jobs.begin("payments", "redrive", who="ann") == jobs.Begun("begun", 6)
    assert jobs.begin("payments", "redrive", who="ann").word == "busy"
    assert [job.total for job in inspector.queue("payments").jobs] == [2, 2, 2]
    while work_here("payments", "w") < 1:
        pass
    found = jobs.get_job("payments")
    assert (found.state, found.total, found.looked, found.done) == ("finished", 6, 6, 6)
    assert inspector.queue("payments").ready == 6
    assert jobs.begin("payments", "delete", who="ann").word == "nothing"
    assert not jobs.cancel("payments")


def bury_in(counts):
    """Bury that many messages in each partition, by its number."""
    for number, count in counts.items():
        key = next(key for key in map(str, range(1000)) if partition_of(key, PARTITIONS) == number)
        queues["payments"].publish_many([("pay", {})] * count, key=key)
        settle(f"payments.{number}", take(f"payments.{number}", count), Bury(error="ValueError: no", reason="attempts"))


def test_a_job_over_partitions_accounts_for_every_message_that_it_counted(subtests):
    def redrive(**criteria):
        begun = jobs.begin("payments", "redrive", who="ann", criteria=Filter(**criteria))
        assert jobs.get_job("payments").total == begun.total

    def work_off():
        while work_here("payments", "w") < 1:
            pass
        found = jobs.get_job("payments")
        return found.state, found.total, found.looked, found.done, found.missing

    bury_in({0: 30, 1: 15, 3: 5})
    with subtests.test("some are deleted, and others buried, while it runs"):
        redrive()
        gone = [letter.id for letter in dead_letters.every("payments.0")][:7]
        dead_letters.delete_messages("payments", gone)
        bury_in({1: 2, 2: 3})
        assert work_off() == ("finished", 50, 50, 43, 7)
    with subtests.test("it was cancelled when some partitions were empty, and is repeated"):
        jobs.begin("payments", "redrive", who="ann", rate=4)
        for part in get_config().queue("payments").parts[:2]:
            while BackgroundJobs(part, open_transport("inspect", part.connection)).work("w") != IDLE:
                pass
        assert jobs.cancel("payments")
        found = jobs.get_job("payments")
        assert (found.state, found.total, found.looked, found.done) == ("cancelled", 5, 2, 2)
        redrive()
        assert work_off() == ("finished", 3, 3, 3, 0)
    with subtests.test("no message matches"):
        bury_in({0: 4, 3: 1})
        redrive(name="other")
        assert work_off() == ("finished", 5, 5, 0, 0)


def test_a_queue_has_one_job_though_only_a_partition_has_it():
    bury_in({0: 3, 1: 2})
    assert jobs.begin("payments.1", "redrive", who="bob", rate=1).total == 2

    assert jobs.begin("payments", "redrive", who="ann") == jobs.Begun("busy")

    assert jobs.cancel("payments")
    begun = jobs.begin("payments", "redrive", who="ann")
    bury_in({2: 1})
    jobs.begin("payments.2", "redrive", who="bob", rate=1)
    found = jobs.get_job("payments", token=begun.token)
    assert (found.order.who, found.total) == ("ann", begun.total)


def test_waiting_messages_of_all_partitions_are_deleted_by_a_job():
    for _ in range(PARTITIONS):
        queues["payments"].publish("pay", {}, delay=60)

    assert jobs.begin("payments", "delete", "delayed", who="ann", rate=100).total == PARTITIONS
    assert jobs.get_job("payments", "delayed").rate == 100
    assert jobs.cancel("payments", "delayed")
    assert jobs.get_job("payments", "delayed").state == "cancelled"


def test_dead_letters_are_moved_from_partitions_and_not_to_them():
    ids = bury_each()

    assert dead_letters.move_messages("payments", "emails", ids[:2]).done == 2
    assert inspector.queue("emails").ready == 2
    assert dead_letters.targets("emails") == []
    for target in ("payments", "payments.1"):
        with pytest.raises(NotSupported, match="has or is a partition"):
            dead_letters.check_target("emails", target)


def test_a_group_with_partitions_is_not_offered_for_dead_letters(mq_settings, handlers):
    mq_settings(QUEUES={"emails": {}}, TOPICS={"orders": {"PARTITIONS": 2}, "events": {}})
    for topic in ("orders", "events"):
        subscriber(topic, group="billing")(print)
    assert dead_letters.targets("emails") == ["events:billing"]


def test_what_is_about_one_message_needs_a_partition(subtests):
    for ask in [
        lambda: message_lists.get_message("payments", "delayed", "m1"),
        lambda: message_lists.find_handled("payments", "m1") or message_lists.find_entry("payments", "m1"),
        lambda: dead_letters.move("payments", "emails", ["1-0"]),
    ]:
        with (
            subtests.test(ask=ask),
            pytest.raises(NotSupported, match=r"name one of them, 'payments.0' to 'payments.3'"),
        ):
            ask()


@pytest.mark.single_server(why="it counts round trips, and each node of a cluster needs its own")
def test_64_partitions_take_as_many_round_trips_as_2(mq_settings, monkeypatch):
    sent, send = [], Session.send
    monkeypatch.setattr(Session, "send", lambda session, commands: sent.append(commands) or send(session, commands))

    def counted(partitions):
        name = f"of{partitions}"
        mq_settings(QUEUES={name: {"PARTITIONS": partitions, "CONCURRENCY": {"key": 1}}})
        queues[name].publish_many([("pay", {}) for _ in range(partitions)])
        sent.clear()
        inspector.overview()
        inspector.queue(name)
        inspector.activity(name, hours=24)
        plans.limits(name, count=10)
        dead_letters.groups(name)
        return len(sent)

    assert counted(2) == counted(64)
