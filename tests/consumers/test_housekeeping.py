"""Queues that other programs handle: `runconsumer` does their housekeeping, and fetches nothing."""

import signal

import pytest
from django.core.management import CommandError, call_command

from mq_django.conf import get_config
from mq_django.core.messages import SetAside
from mq_django.producers import queues, topics
from mq_django.stores import open_members
from mq_django.stores.base import Settlement
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.seeding import opened
from tests.waiting import wait_until

#: The first queue of the settings is the one that other programs handle.
FOREIGN = {"a": {"EXTERNAL": True, "VISIBILITY_TIMEOUT": 1}, "default": {}}


def membership(name):
    """Return who is registered in a queue."""
    transport = Pooled(get_client("chores"))
    (reply,) = transport.pipeline([("HGETALL", get_config().queue(name).keys.consumers)])
    return {field.decode().partition(":")[0] for field in reply[::2]}


def beat(queue, names=()):
    """Send one heartbeat of a consumer in another language."""
    members = open_members(get_config().queue(queue), Pooled(get_client("chores")))
    members.beat("node", {}, {"node": {"names": list(names)}})


def test_a_queue_that_others_handle_is_kept_and_not_fetched_and_one_without_handlers_is_named(trees, publish, history):
    limits = {"mq_django.consumers.supervisor.promoter:POLL": 0.5}
    config = {**FOREIGN, "b": {"EXTERNAL": True, "VISIBILITY_TIMEOUT": 60}, "partners": {}}
    tree = trees("--processes", "1", limits=limits, QUEUES=config, TOPICS={"news": {}})
    delayed, ours = publish(queue="a", delay=0.1), publish()
    history.wait_for("effect")
    a = opened("a")
    wait_until(lambda: a.depths().ready == 1)
    assert history.counts() == {ours: 1}
    assert queues["a"].find(delayed).state.name == "NOT_WAITING"
    assert membership("a") == {"beat", "seen", "supervisor"}
    assert "consumer" in membership("default")
    wait_until(lambda: "Handling default, partners, news:readers. Housekeeping only for a, b." in tree.logged())
    # Only what has no handler at all is named.
    assert "no handler for any message of partners:" in tree.logged()

    # The messages of a dead consumer of another program are ready again.
    beat("a")
    assert len(a.take("node", count=5)) == 1
    wait_until(lambda: a.depths().ready == 1)
    wait_until(lambda: "consumer" not in membership("a"))

    # And so are unhandled ones of names that somebody announces.
    publish(queue="b", name="theirs")
    publish(queue="b", name="nobodys")
    b = opened("b")
    b.settle("old", [Settlement(item, SetAside()) for item in b.take("old", count=5)])
    beat("b", ["theirs"])
    wait_until(lambda: b.depths().ready == 1)
    assert b.depths().unhandled == 1
    assert tree.stop() == 0
    assert membership("a") == set()


def test_with_the_option_no_queue_is_fetched_and_no_process_started(trees, publish):
    tree = trees("--housekeeping")
    publish(delay=0.1)
    store = opened("default")
    wait_until(lambda: store.depths().ready == 1)
    assert (tree.children(), tree.templates()) == ([], [])
    # A reload finds the same queues, with the same option.
    tree.signal(signal.SIGHUP)
    wait_until(lambda: "replaces its consumers" in tree.logged(), timeout=30)
    assert tree.process.poll() is None
    assert "Housekeeping only for default, emails." in tree.logged()
    members = open_members(get_config().queue("default"), Pooled(get_client("chores")))
    wait_until(lambda: "supervisor" in membership("default"))
    (who,) = members.beat("me", {}, {}).supervisors.keys() - {"me"}
    assert members.ask(who, "stop") == "ASKED"
    assert tree.wait(20) == 0


def test_a_group_of_a_topic_that_others_handle_is_promoted_and_not_fetched(trees, publish):
    tree = trees("orders:theirs", "--housekeeping", TOPICS={"orders": {"VISIBILITY_TIMEOUT": 1}})
    assert tree.wait(20) == 1
    assert "Topic 'orders' has no group 'theirs'" in tree.logged()

    theirs = opened("orders:theirs")
    tree = trees("orders:theirs", "--housekeeping", TOPICS={"orders": {"VISIBILITY_TIMEOUT": 1}})
    topics["orders"].publish("paid", 1)
    queues["orders:theirs"].publish("paid", 2, delay=0.1)
    wait_until(lambda: theirs.depths().ready == 2)
    assert len(theirs.take("killed", count=5)) == 2
    members = open_members(get_config().queue("orders:theirs"), Pooled(get_client("chores")))
    members.beat("killed", {}, {"killed": {}})
    wait_until(lambda: theirs.depths().ready == 2)
    assert "Housekeeping only for orders:theirs." in tree.logged()
    assert tree.stop() == 0


def test_nothing_to_consume_cannot_be_drained(mq_settings, caplog):
    mq_settings(QUEUES=FOREIGN)
    for arguments in (["--housekeeping"], ["a"]):
        with pytest.raises(CommandError, match="--drain needs a queue to consume") as raised:
            call_command("runconsumer", "--drain", *arguments)
        assert raised.value.returncode == 2
