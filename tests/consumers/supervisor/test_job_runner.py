"""Jobs about dead letters are worked off by supervisors, whoever comes first."""

from types import SimpleNamespace

from mq_django import inspector
from mq_django.conf import get_config
from mq_django.consumers.supervisor import chores as runner
from mq_django.consumers.supervisor.chores import JobRunner
from mq_django.inspector import jobs
from mq_django.transport.private_server import PrivateServer
from tests.seeding import bury_many, publish
from tests.waiting import wait_until


def job_runner(*queues, worker="s1"):
    return JobRunner(dict(enumerate(map(get_config().queue, queues))), worker)


def test_a_job_is_worked_off_step_by_step(mq_settings):
    bury_many("emails", 1100)
    jobs.begin("emails", "redrive", who="ann")
    service = job_runner("default", "emails")

    service.run_once()
    assert inspector.queue("emails").ready == 100
    wait_until(lambda: service.run_once() > 1 and jobs.get_job("emails").state == "finished")
    assert inspector.queue("emails").ready == 1100


def test_a_queue_on_a_server_that_is_away_holds_up_no_job_but_those_that_move_there(mq_settings):
    with PrivateServer() as server:
        mq_settings(QUEUES={"default": {}, "emails": {}, "bulk": {"CONNECTION": server.url}})
        for queue in ("default", "emails"):
            bury_many(queue, 1)
        publish("default", "welcome", 1, delay=60)
        jobs.begin("default", "move", who="ann", target="bulk")
        jobs.begin("default", "delete", "delayed", who="ann")
        jobs.begin("emails", "redrive", who="ann")
        server.kill()

        job_runner("default", "emails").run_once()

    view = inspector.queue("default")
    assert (jobs.get_job("default").state, view.dead, view.delayed) == ("running", 1, 0)
    assert inspector.queue("emails").ready == 1


def test_what_is_heard_is_looked_at_at_once(mq_settings):
    bury_many("emails", 1)
    service = job_runner("emails")
    assert service.run_once() > 1
    jobs.begin("emails", "redrive", who="ann")

    service.run_once()
    assert inspector.queue("emails").ready == 0
    service.expect(0)
    service.run_once()
    assert inspector.queue("emails").ready == 1


def test_a_look_at_a_queue_makes_no_step_before_its_time(mq_settings, monkeypatch):
    bury_many("emails", 100)
    service = job_runner("emails")
    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    jobs.begin("emails", "redrive", who="ann", rate=1)
    service.run_once()
    done = jobs.get_job("emails").done
    service.expect(0)
    service.run_once()
    assert jobs.get_job("emails").done == done > 0
