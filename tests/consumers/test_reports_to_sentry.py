"""What the processes of `runconsumer` report to Sentry, with all default integrations of its SDK."""

import json
import signal

import pytest

from tests.optional import needs_sentry
from tests.waiting import wait_until

pytestmark = needs_sentry

MIDDLEWARE = [f"mq_django.observability.sentry.{name}" for name in ("report_burials", "trace_publishing")]


@pytest.fixture
def reported(tmp_path, monkeypatch):
    """Return the events that were sent so far: the transport sends them only when it is flushed."""
    path = tmp_path / "events"
    monkeypatch.setenv("MQ_TEST_SENTRY", str(path))
    monkeypatch.setenv("MQ_TEST_APPS", "tests.observability.reporting")

    def read():
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    return read


def test_each_burial_is_one_event(trees, publish, store, reported):
    tree = trees(QUEUES={"default": {"MAX_ATTEMPTS": 1}}, MIDDLEWARE=MIDDLEWARE)
    sent = {publish(["raise", "in a thread"]): "act", publish(["raise", "on the loop"], name="aact"): "act_async"}
    wait_until(lambda: store.depths().dead == 2, timeout=20)
    assert tree.stop() == 0
    found = [(event["tags"]["mq.message_id"], event["transaction"].rpartition(".")[2]) for event in reported()]
    assert sorted(found) == sorted(sent.items())
    assert {event["exception"]["values"][0]["type"] for event in reported()} == {"ValueError"}


def test_the_supervisor_reports_what_killed_its_process(trees, publish, store, reported):
    tree = trees(QUEUES={"default": {"MAX_ATTEMPTS": 1}}, MIDDLEWARE=MIDDLEWARE)
    sent = publish(["exit", 3])
    wait_until(lambda: store.depths().dead == 1, timeout=20)
    assert tree.stop() == 0
    (buried,) = [event for event in reported() if "mq.message_id" in event.get("tags", {})]
    assert (buried["tags"]["mq.message_id"], buried["tags"]["mq.reason"]) == (sent, "crashed")
    assert (buried["tags"]["mq.message"], buried["transaction"]) == ("act", "tests.consumers.project.handlers.act")
    others = {event["logentry"]["message"] for event in reported() if event != buried}
    assert others <= {"Consumer %s exited with code %d; starting another"}


@pytest.mark.parametrize("how", ["max-messages", "a hangup"])
def test_events_are_sent_before_a_consumer_is_replaced(trees, publish, store, reported, how):
    arguments = ("--max-messages", "1") if how == "max-messages" else ()
    tree = trees(*arguments, QUEUES={"default": {"MAX_ATTEMPTS": 1}}, MIDDLEWARE=MIDDLEWARE)
    sent = publish(["raise", "on purpose"])
    wait_until(lambda: store.depths().dead == 1, timeout=20)
    if how == "a hangup":
        tree.signal(signal.SIGHUP)
    wait_until(reported, timeout=20)
    assert [event["tags"]["mq.message_id"] for event in reported()] == [sent]
    assert tree.process.poll() is None
