"""`manage.py mq purge --running`."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from tests.management.test_mq import mq, mq_json, refusal
from tests.seeding import forced_by_id, publish

pytestmark = pytest.mark.usefixtures("mq_settings")


def test_consumers_are_asked_about_what_does_not_wait():
    ready, delayed = publish("emails", "welcome"), publish("emails", "welcome", delay=60)
    assert mq("purge", "emails", ready, delayed, "--running", "--yes") == "1 deleted, 1 asked to stop\n"
    assert forced_by_id("emails") == {ready: False}
    assert mq_json("purge", "emails", ready, "--running", "--force", "--yes")["asked"] == 1
    assert forced_by_id("emails") == {ready: True}


@pytest.mark.parametrize("options", [{"PARTITIONS": 1}, {"PARTITIONS": 4}])
def test_what_neither_waits_nor_runs_is_not_found(mq_settings, options):
    mq_settings(QUEUES={"emails": options})
    ready = publish("emails", "welcome")
    out = StringIO()
    with pytest.raises(CommandError, match="1 of 2 ids were not found"):
        call_command("mq", "purge", "emails", "nobody", ready, "--running", "--yes", stdout=out)
    assert out.getvalue() == "0 deleted, 1 missing, 1 asked to stop\n"


def test_a_unique_key_that_nobody_claims_is_an_error():
    with pytest.raises(CommandError, match="1 of 1 ids were not found"):
        mq("purge", "emails", "u:nobody", "--running", "--yes")


def test_options_that_do_not_fit_are_told():
    assert "--force needs --running" in refusal("purge", "emails", "m1", "--force")[0]
    assert "not allowed with argument --state" in refusal("purge", "emails", "--state", "delayed", "--running")[0]
    assert "Give the ids of messages, or --state" in refusal("purge", "emails", "--running", "--yes")[0]
    assert "With ids, --state is dead" in refusal("purge", "emails", "m1", "--state", "ready", "--yes")[0]


def test_a_queue_that_cannot_says_so(mq_settings, namespace):
    mq_settings(QUEUES={"old": {"STORE": "rsmq", "NAMESPACE": f"{namespace}:r"}})
    with pytest.raises(CommandError, match="has RSMQ's format: only waiting messages can be cancelled"):
        mq("purge", "old", "m1", "--running", "--yes")
