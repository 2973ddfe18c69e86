"""Limits that are changed at run time, with real consumers, which are not restarted."""

import pytest

from mq_django import inspect, queues
from tests.waiting import wait_until

pytestmark = [pytest.mark.versions, pytest.mark.cluster]


@pytest.mark.parametrize("form", [{}, {"PARTITIONS": 2}], ids=["plain", "partitions"])
def test_running_consumers_obey_at_once(trees, history, form):
    trees("--processes", "2", "--threads", "4", QUEUES={"a": {"RATE_LIMIT": "2/h", "CONCURRENCY": 6, **form}})
    queues["a"].publish_many([("act", {"do": [["sleep", 0.05]]})] * 40)

    def starts():
        return len(history.lines("start"))

    wait_until(lambda: starts() == 2)
    inspect.set_limits("a", rate="20/h", reason="they have more")
    wait_until(lambda: starts() == 20)
    inspect.set_limits("a", rate="none", concurrency=1)
    wait_until(lambda: len(history.lines("effect")) == 40, timeout=30)
