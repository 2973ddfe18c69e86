"""A queue with partitions is one queue for those who publish and handle, and many for Redis."""

from itertools import chain

import pytest

from mq_django import get_progress
from mq_django.conf import get_config
from mq_django.consumers.supervisor.preflight import with_known_partitions
from mq_django.core.partitions import number_in, partition_of
from mq_django.errors import QueueClosed
from mq_django.inspector.message_lists import find_everywhere, find_handled
from mq_django.producers import queues
from mq_django.stores import open_store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.waiting import wait_until

PARTITIONS = 8


def partitioned(**options):
    return {"default": {"PARTITIONS": PARTITIONS, **options}}


def parts():
    return get_config().queue("default").parts


def each_depth():
    for part in parts():
        yield open_store(part, Pooled(get_client("produce", part.connection, key=part.keys.wake))).depths()


def depths():
    """Return the messages of each partition that are ready, in lines, or run."""
    return [depth.ready + depth.parked + depth.pending for depth in each_depth()]


def delayed():
    return [depth.delayed for depth in each_depth()]


def test_all_partitions_are_handled_under_the_name_of_the_queue(trees, history, mq_settings, tmp_path):
    options = partitioned(HISTORY=3600)
    mq_settings(QUEUES=options)
    queue, go = queues["default"], str(tmp_path / "go")
    ids = queue.publish_many([("act", {}) for _ in range(100)])
    ids += [queue.publish("act", {}, key=f"k{number}") for number in range(100)]
    assert {number_in(found) for found in ids} == set(range(PARTITIONS))
    trees("--processes", "2", QUEUES=options)
    # Progress is reported in the partition of the message.
    sent = [queue.publish("act", {"do": [["report", [number, 10, "", go]]]}, key=f"k{number}") for number in range(3)]
    own = queue.publish("act", {"do": [["report", [7, 10, "", go]]]}, message_id="order-7")
    for number, message_id in enumerate(sent):
        wait_until(lambda message_id=message_id: queue.progress(message_id), timeout=20)
        assert get_progress(message_id).done == number
    assert wait_until(lambda: queue.progress(own), timeout=20).done == 7
    (tmp_path / "go").touch()
    wait_until(lambda: len(history.counts()) == 204)
    assert history.counts() == dict.fromkeys([*ids, *sent, own], 1)
    assert {event["queue"] for event in history.lines("effect")} == {"default"}
    wait_until(lambda: sum(depths()) == 0)
    # And what became of a message is found by its id.
    for message_id in [*sent, own]:
        found = wait_until(lambda message_id=message_id: find_handled("default", message_id))
        assert (found.id, found.ending) == (message_id, "handled")
        assert [place.state for place in find_everywhere(message_id, seconds=5).found] == ["handled"]
    assert find_handled("default", "nowhere") is None


def test_a_message_is_in_the_partition_of_its_key_and_can_be_cancelled_there(mq_settings):
    mq_settings(QUEUES=partitioned())
    queue = queues["default"]
    found = {key: queue.publish("act", {}, key=key, delay=60) for key in ("a", "b", "c")}
    for key, message_id in found.items():
        assert number_in(message_id) == partition_of(key, PARTITIONS)
    assert [count for count in delayed() if count] == [1, 1, 1]
    assert all(queue.find(message_id).message.id == message_id for message_id in found.values())
    assert queue.cancel(found["a"]).name == "CANCELLED"
    assert queue.cancel(found["b"], key="b").name == "CANCELLED"
    assert sum(delayed()) == 1
    own = queue.publish("act", {}, key="d", delay=60, message_id="order.3")
    assert own == "order.3"
    assert queue.cancel("order.3").name == "CANCELLED"
    unique = queue.publish("act", {}, unique="once", delay=60)
    assert queue.publish("act", {}, unique="once", delay=60, on_conflict="keep") == unique
    assert queue.find(unique="once").message.id == unique
    assert queue.reschedule(unique="once", delay=90)
    assert queue.cancel("nowhere").name == "NOT_WAITING"


def test_delayed_messages_and_those_with_order_and_of_a_dead_tree_are_handled(trees, history, tmp_path, mq_settings):
    mq_settings(QUEUES=partitioned(ORDERED=True, VISIBILITY_TIMEOUT=5))
    dead = trees(QUEUES=partitioned(ORDERED=True, VISIBILITY_TIMEOUT=5))
    queue = queues["default"]
    first = queue.publish("act", {"do": [["wait", str(tmp_path / "go")]]}, key="stuck")
    history.wait_for("start")
    sent = [
        queue.publish("act", {}, key=f"k{number % 10}", delay=0.1 if number % 20 < 10 else None) for number in range(60)
    ]
    trees()
    dead.kill_all()
    (tmp_path / "go").touch()
    wait_until(lambda: history.counts().keys() == {first, *sent})
    wait_until(lambda: sum(depths()) == 0)


@pytest.mark.parametrize(("here", "said"), [(4, "PARTITIONS is 4 here"), (1, "PARTITIONS is 1 here")])
def test_another_number_of_partitions_is_refused(mq_settings, here, said):
    mq_settings(QUEUES=partitioned())
    queues["default"].publish("act", {})
    mq_settings(QUEUES={"default": {"PARTITIONS": here}})
    with pytest.raises(QueueClosed, match=f"has 8 partitions in Redis, and {said}"):
        with_known_partitions(get_config().queue("default").each_part, all_of_them=True)


def test_a_queue_with_another_number_of_partitions_does_not_stop_the_others(
    mq_settings, redis_client, caplog, subtests
):
    mq_settings(QUEUES={"default": {"PARTITIONS": 4}, "others": {"PARTITIONS": 2}, "emails": {}})
    config = get_config().queues
    places = list(chain.from_iterable(each.each_part for each in config.values()))
    for recorded in ("8", "1", "closed", "9" * 5000, "\0"):
        with subtests.test(recorded=recorded):
            redis_client.hset(config["default"].keys.control, "partitions", recorded)
            left = with_known_partitions(places)
            assert [each.name for each in left] == ["others.0", "others.1", "emails"]
            assert "Queue 'default'" in caplog.text
            assert "not handled until the next start" in caplog.text
            caplog.clear()
            with pytest.raises(QueueClosed):
                with_known_partitions(places, all_of_them=True)
            with pytest.raises(QueueClosed):
                with_known_partitions(config["default"].each_part)


def test_a_queue_with_messages_gets_no_partitions(mq_settings):
    mq_settings(QUEUES={"default": {}})
    queues["default"].publish("act", {})
    mq_settings(QUEUES=partitioned())
    with pytest.raises(QueueClosed, match="has no partitions in Redis"):
        queues["default"].publish("act", {})


def most_at_once(history):
    """Return how many handlers ran at the same time at most."""
    times = [(event["t"], 1) for event in history.lines("start")] + [
        (event["t"], -1) for event in history.lines("effect")
    ]
    running = most = 0
    # What ends at the time at which another one begins has ended before.
    for _, change in sorted(times):
        running += change
        most = max(most, running)
    return most


def test_all_partitions_have_one_limit_which_goes_on_when_a_machine_is_gone(trees, history, mq_settings, tmp_path):
    config = partitioned(CONCURRENCY=2, VISIBILITY_TIMEOUT=3.5)
    go = tmp_path / "go"
    dead = trees("--threads", "4", QUEUES=config)
    ids = [queues["default"].publish("act", {"do": [["wait", str(go)]]}) for _ in range(20)]
    wait_until(lambda: len(history.lines("start")) == 2)
    dead.kill_all()
    lost = {event["id"] for event in history.lines("start")}
    history.path.write_text("")
    trees("--processes", "2", "--threads", "4")
    history.wait_for("start", 2)
    go.touch()
    wait_until(lambda: history.counts().keys() == set(ids))
    assert history.counts() == dict.fromkeys(ids, 1)
    assert lost < set(ids)
    assert most_at_once(history) == 2


def test_all_partitions_have_one_rate(trees, history, mq_settings):
    mq_settings(QUEUES=partitioned(RATE_LIMIT="30/h"))
    ids = queues["default"].publish_many([("act", {})] * 60, message_ids=map(str, range(60)))
    tree = trees("--processes", "2")
    wait_until(lambda: len(history.counts()) == 30)
    assert set(history.counts()) < set(ids)
    assert tree.stop() == 0
    assert len(history.lines("start")) == 30
