"""A pause, with real consumers, in every store."""

import pytest

from mq_django import queues, topics
from mq_django.conf import get_config
from mq_django.inspector import actions
from mq_django.stores import open_store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests import on_cluster
from tests.waiting import wait_until

pytestmark = [pytest.mark.versions, pytest.mark.cluster]


def test_while_a_queue_is_paused_no_handler_starts(trees, mq_settings, history, namespace):
    config = {
        "QUEUES": {
            "a": {},
            "b": {"CONCURRENCY": {"queue": 50, "key": 50}},
            "c": {"STORE": "rsmq", "NAMESPACE": on_cluster.tag(f"{namespace}:r")},
        },
        "TOPICS": {"news": {}},
    }
    names = ["a", "b", "c", "news:readers"]
    trees("--processes", "2", "--threads", "2", **config)
    stores = [open_store(get_config().queue(name), Pooled(get_client("produce"))) for name in names]
    work = [("act", {"do": [["sleep", 0.01]]})] * 35
    wait_until(topics["news"].groups)

    def starts():
        return len(history.lines("start"))

    for number in range(1, 4):
        seen = starts()
        for name in names[:3]:
            queues[name].publish_many(work)
        topics["news"].publish_many(work)
        wait_until(lambda seen=seen: starts() > seen + 20)
        for name in names:
            assert actions.pause(name)
        # What runs ends, and what was fetched goes back.
        wait_until(lambda: all(store.depths().pending == 0 for store in stores))
        seen = starts()
        assert len(history.lines("effect")) == seen
        left = [store.depths().ready for store in stores]
        assert sum(left) == 140 * number - seen
        for name in names:
            assert actions.resume(name)
    wait_until(lambda: len(history.lines("effect")) == 420, timeout=30)
