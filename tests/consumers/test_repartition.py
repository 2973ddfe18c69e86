"""The number of partitions is changed while consumers run and producers publish."""

import signal
from collections import defaultdict

from mq_django.conf import get_config
from mq_django.producers import queues
from mq_django.stores.repartitioning import Repartitioning
from mq_django.transport.connections import open_transport
from tests.management.test_mq import mq
from tests.stores.repartition_seeds import contents_of
from tests.waiting import wait_until


def ordered(partitions):
    return {"default": {"PARTITIONS": partitions, "ORDERED": True, "VISIBILITY_TIMEOUT": 5}}


def test_messages_of_running_consumers_are_handled_once_and_in_order_by_the_next_ones(
    trees, history, mq_settings, tmp_path
):
    mq_settings(QUEUES=ordered(2))
    sent = defaultdict(list)
    queue = queues["default"]
    first = queue.publish("act", {"do": [["wait", str(tmp_path / "go")]]}, key="k0")
    sent["k0"].append(first)
    old = trees(QUEUES=ordered(2))
    history.wait_for("start")
    for number in range(60):
        key = f"k{number % 12}"
        sent[key].append(queue.publish("act", {}, key=key, delay=3600 if number % 10 == 9 else None))
    (tmp_path / "go").touch()
    mq("repartition", "default", "5", "--yes")
    mq_settings(QUEUES=ordered(5))
    for number in range(12):
        sent[f"k{number}"].append(queues["default"].publish("act", {}, key=f"k{number}"))
    # The old consumers may handle what is in their first partition, which is the same.
    old.signal(signal.SIGTERM)
    assert old.wait() == 0
    trees(QUEUES=ordered(5))
    now = {each for ids in sent.values() for each in ids} - delayed_ids()
    wait_until(lambda: set(history.counts()) == now)
    assert set(history.counts().values()) == {1}
    began = [event["id"] for event in history.lines("start")]
    for ids in sent.values():
        places = [began.index(each) for each in ids if each in now]
        assert places == sorted(places)


def delayed_ids():
    return {
        message_id.decode()
        for part in get_config().queue("default").each_part
        for place, message_id in contents_of(part)
        if place == "due"
    }


def test_a_consumer_that_starts_meanwhile_says_so(trees, mq_settings):
    mq_settings(QUEUES=ordered(2))
    queues["default"].publish("act", {})
    change = Repartitioning(get_config().queue("default"), open_transport("chores"))
    change.begin(4)
    change.close("me")
    tree = trees(QUEUES=ordered(4))
    assert tree.wait() == 1
    assert "while its number of partitions is changed" in tree.logged()
