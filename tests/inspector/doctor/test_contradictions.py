"""What is said about settings that contradict each other."""

from datetime import timedelta

import pytest

from tests.inspector.doctor.conftest import levels

pytestmark = pytest.mark.usefixtures("mq_settings")


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
