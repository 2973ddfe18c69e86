"""`manage.py mq doctor --health`: whether a runconsumer of this machine is ready."""

import json
import os
import socket
import threading
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from mq_django.conf import get_config
from mq_django.consumers.processes import Machine, here, started
from mq_django.inspector.consumers import ALIVE_MS
from mq_django.management import process_verbs
from mq_django.stores.members import Members
from mq_django.transport.connections import TIMEOUTS, close_clients, open_transport
from tests.slow_wire import SlowWire

pytestmark = pytest.mark.usefixtures("mq_settings")


@pytest.fixture(autouse=True)
def _identified():
    if here() is None:
        pytest.skip("this system does not identify its machine")


def beat(queue, *states, supervisor="s1", **described):
    """Send the heartbeat of a supervisor that is this process, with a consumer in each state."""
    machine = here()
    process = {"host": "web1", "pid": os.getpid(), "started": started(os.getpid()), "boot": machine.boot}
    described = {**process, "pids": machine.pids, "housekeeping": True, **described}
    consumers = {f"{supervisor}-c{n}": {"threads": 8, **state} for n, state in enumerate(states)}
    Members(get_config().queue(queue), open_transport("produce")).beat(supervisor, described, consumers)


def health(*args):
    """Return the exit code and the sentence."""
    out = StringIO()
    try:
        call_command("mq", "doctor", "--health", *args, stdout=out)
    except SystemExit as end:
        return end.code, out.getvalue().strip()
    return 0, out.getvalue().strip()


READY, STARTING, STOPPING = {"state": "running"}, {"state": "running", "starting": True}, {"state": "stopping"}


def test_a_ready_consumer_of_this_machine_is_enough():
    beat("emails", STARTING, READY)
    assert health() == (0, "Served by s1: emails.")
    assert health("emails") == (0, "Served by s1: emails.")
    assert json.loads(health("--json")[1]) == {"healthy": True, "sentence": "Served by s1: emails."}


def test_each_queue_that_is_named_must_be_served():
    beat("emails", READY)
    assert health("emails", "default") == (1, "No live runconsumer of this machine serves queue default.")
    beat("default", READY, supervisor="s2")
    assert health("emails", "default") == (0, "Served by s1, s2: emails, default.")


def test_a_consumer_that_is_not_ready_is_not_enough():
    for state, why in (
        (STARTING, "The consumers of queue emails are starting."),
        (STOPPING, "The consumers of queue emails are stopping, or were asked to go quiet."),
    ):
        beat("emails", state)
        assert health("emails") == (1, why)
        assert health()[0] == 1


def test_another_machine_another_container_and_an_ended_process_do_not_count():
    for elsewhere in ({"boot": "another"}, {"pids": "pid:[1]"}, {"started": "1"}, {"boot": None, "pids": None}):
        beat("emails", READY, **elsewhere)
        assert health() == (1, "No runconsumer of this machine has a ready consumer."), elsewhere


def test_a_supervisor_that_is_silent_does_not_count(redis_client):
    beat("emails", READY)
    now, _ = redis_client.time()
    redis_client.hset(get_config().queue("emails").keys.consumers, "seen:s1", now * 1000 - ALIVE_MS - 1)
    assert health("emails") == (1, "No live runconsumer of this machine serves queue emails.")


def test_housekeeping_counts_if_it_is_asked_for_or_others_handle_the_queue(mq_settings):
    beat("emails")
    assert health("emails")[0] == 1
    assert health("emails", "--housekeeping") == (0, "Served by s1: emails.")
    mq_settings(QUEUES={"emails": {"EXTERNAL": True}, "default": {}})
    assert health("emails")[0] == 0
    beat("default", STARTING)
    assert health() == (1, "No runconsumer of this machine has a ready consumer.")


def test_where_machines_have_no_identity_the_host_counts(monkeypatch):
    beat("emails", READY, host=socket.gethostname())
    monkeypatch.setattr(process_verbs, "here", lambda: None)
    assert health("emails")[0] == 0
    beat("emails", READY, host="another")
    assert health("emails")[0] == 1
    monkeypatch.setattr(process_verbs, "here", lambda: Machine("b", "p"))
    assert health("emails")[0] == 1


@pytest.mark.single_server(why="on a cluster, each node is waited for")
def test_a_server_that_does_not_answer_is_an_answer_in_time(monkeypatch):
    beat("emails", READY)
    assert health("emails")[0] == 0
    close_clients()
    with monkeypatch.context() as patches:
        transport = SlowWire(patches)
        assert health("emails", "--timeout", "0.4")[0] == 1
    assert transport.timeouts == 1
    assert transport.seconds <= sum(TIMEOUTS["inspect"])


def test_what_never_answers_is_not_waited_for(monkeypatch):
    released = threading.Event()
    monkeypatch.setattr("mq_django.inspect.queues", lambda *_, **__: released.wait(30) and [])
    assert health("--timeout", "0.1") == (1, "Redis has not answered within 0.1 s.")
    released.set()


def test_an_error_of_the_program_itself_is_not_hidden_in_a_thread(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("a defect")

    monkeypatch.setattr("mq_django.inspect.queues", fail)
    with pytest.raises(RuntimeError, match="a defect"):
        health()


def test_an_unknown_queue_is_an_error():
    with pytest.raises(CommandError, match="nope"):
        health("nope")
