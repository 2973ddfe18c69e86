"""`manage.py mq jobs`: show, watch and cancel background jobs."""

import threading

import pytest
from django.core.management import CommandError

from mq_django import inspector
from mq_django.consumers.supervisor.chores import work_here
from mq_django.inspector import jobs
from mq_django.management import job_verbs
from mq_django.stores.background_jobs import IDLE
from tests.management.test_mq import mq, mq_json
from tests.seeding import bury_many, publish
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("mq_settings")


def test_running_jobs_are_listed_with_what_they_do():
    assert mq("jobs") == "No jobs.\n"
    bury_many("emails", 3)
    publish("emails", "welcome", 1, delay=60)
    started = mq("redrive", "emails", "--all", "--name", "welc", "--rate", "5", "--background")
    assert started == "started, 3 dead letters that match\n"
    mq("purge", "emails", "--state", "delayed", "--background", "--yes")
    dead, waiting = mq_json("jobs")
    assert (dead["messages"], dead["what"], dead["filter"], dead["rate"]) == ("dead", "redrive", {"name": "welc"}, 5)
    assert (dead["state"], dead["scanned"], dead["total"]) == ("running", 0, 3)
    assert (waiting["messages"], waiting["what"]) == ("delayed", "delete")
    headings, *rows = mq("jobs").splitlines()
    assert headings.split()[:4] == ["queue", "messages", "what", "state"]
    assert [row.split()[1] for row in rows] == ["dead", "delayed"]


def test_a_job_is_cancelled_and_remains_in_the_list_of_its_queue():
    bury_many("emails", 3)
    mq("redrive", "emails", "--all", "--background")
    assert mq("jobs", "cancel", "emails") == "cancelled\n"
    assert mq_json("jobs") == []
    assert [row["state"] for row in mq_json("jobs", "list", "--queue", "emails")] == ["cancelled"]
    with pytest.raises(CommandError, match="No job is running"):
        mq("jobs", "cancel", "emails")
    with pytest.raises(SystemExit) as ended:
        mq("jobs", "watch", "emails")
    assert ended.value.code == 1


def test_a_job_is_watched_until_it_ends(monkeypatch):
    monkeypatch.setattr(job_verbs, "INTERVAL", 0.01)
    bury_many("emails", 3)
    mq("redrive", "emails", "--all", "--background")

    def work():
        wait_until(lambda: work_here("emails", "w1") == IDLE)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        assert mq("jobs", "watch", "emails") == "finished: 3 redriven, 3 of 3 scanned\n"
    finally:
        worker.join()
    assert inspector.queue("emails").ready == 3
    assert jobs.get_job("emails").state == "finished"


def test_what_was_gone_before_the_job_came_to_it_is_told():
    first, *_ = bury_many("emails", 3)
    mq("redrive", "emails", "--all", "--background")
    mq("purge", "emails", first, "--state", "dead", "--yes")
    while work_here("emails", "w1") != IDLE:
        pass
    assert mq("jobs", "watch", "emails") == "finished: 2 redriven, 3 of 3 scanned, 1 missing\n"


def test_without_a_job_there_is_nothing_to_watch():
    with pytest.raises(CommandError, match="There is no job"):
        mq("jobs", "watch", "emails", "ready")
    with pytest.raises(CommandError, match="No queue 'nope'"):
        mq("jobs", "list", "--queue", "nope")
