"""Limits that are changed at run time, with real consumers, which are not restarted."""

import pytest

from mq_django import inspect, queues
from tests.waiting import wait_until

pytestmark = [pytest.mark.versions, pytest.mark.cluster]


def test_running_consumers_obey_at_once(trees, history):
    options = {"RATE_LIMIT": "2/h", "CONCURRENCY": 6, "PARTITIONS": 2}
    trees("--processes", "2", "--threads", "4", QUEUES={"a": options})
    queues["a"].publish_many([("act", {"do": [["sleep", 0.05]]})] * 60)

    def starts():
        return len(history.lines("start"))

    wait_until(lambda: starts() == 2)
    inspect.set_limits("a", rate="20/h", reason="they have more")
    wait_until(lambda: starts() == 20)
    inspect.set_limits("a", rate="none")
    wait_until(lambda: starts() > 26)
    inspect.set_limits("a", concurrency=1)
    # What runs ends.
    wait_until(lambda: inspect.queue("a").pending <= 1)
    seen = []

    def is_done():
        seen.append(inspect.queue("a").pending)
        return len(history.lines("effect")) == 60

    wait_until(is_done, timeout=30)
    assert max(seen) <= 1
    assert starts() == 60
