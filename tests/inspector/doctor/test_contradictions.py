"""What is said about settings that contradict each other."""

from datetime import timedelta

import pytest
import redis

from tests.inspector.doctor.conftest import levels

pytestmark = pytest.mark.usefixtures("mq_settings")


def test_limits_of_keys_that_have_no_effect(mq_settings, found, subtests):
    for options, seen in [
        ({"CONCURRENCY": {"queue": 5, "key": 20}}, "CONCURRENCY of emails"),
        ({"CONCURRENCY": {"queue": 5, "key": 1}}, ""),
        ({"CONCURRENCY": 5}, ""),
        ({"RATE_LIMIT": {"queue": "10/s", "key": "10/s"}}, "RATE_LIMIT of emails"),
        ({"RATE_LIMIT": {"queue": "100/m", "key": "200/s"}}, "RATE_LIMIT of emails"),
        # More in a minute than the queue may have, but it limits a burst.
        ({"RATE_LIMIT": {"queue": "100/m", "key": "10/s"}}, ""),
        ({"RATE_LIMIT": {"key": "10/s"}}, ""),
    ]:
        with subtests.test(options=options, seen=seen):
            mq_settings(QUEUES={"emails": options})
            findings = found("D206")
            assert levels(findings) == ([("D206", "note")] if seen else [])
            assert all(seen in finding.seen for finding in findings)


def schedule(seconds, **options):
    return {"every": timedelta(seconds=seconds), "message": "tick", "queue": "emails", **options}


def test_schedules_that_publish_more_than_may_be_handled(mq_settings, found, subtests):
    for limit, schedules, codes in [
        ("1/m", {"a": schedule(30)}, [("D207", "warning")]),
        ("1/m", {"a": schedule(100), "b": schedule(100)}, [("D207", "warning")]),
        ("1/m", {"a": schedule(60)}, []),
        # Half of these are discarded, as it says.
        ("1/m", {"a": schedule(30, expires=60)}, []),
        ("1/m", {"a": schedule(30, queue="default")}, []),
        (None, {"a": schedule(1)}, []),
    ]:
        with subtests.test(limit=limit, schedules=schedules, codes=codes):
            mq_settings(QUEUES={"default": {}, "emails": {"RATE_LIMIT": limit} if limit else {}}, SCHEDULES=schedules)
            findings = found("D207")
            assert levels(findings) == codes
            assert all("RATE_LIMIT allows 60" in finding.seen for finding in findings)


def test_logs_that_may_be_larger_than_the_memory(server_with, mq_settings, found):
    server = server_with()
    mebibytes = {"RETENTION_BYTES": 600 * 2**20}
    mq_settings(CONNECTION=server.url, QUEUES={}, TOPICS={"orders": mebibytes, "events": mebibytes, "other": {}})
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory", "1300mb")
        assert found("D2") == []
        client.config_set("maxmemory", "1200mb")
    (finding,) = found("D2")
    assert (finding.code, finding.level) == ("D208", "warning")
    assert "1,200.0 MiB (orders, events), and Redis has 1,200.0 MiB of maxmemory" in finding.seen
