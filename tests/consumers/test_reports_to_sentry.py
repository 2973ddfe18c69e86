"""What the processes of `runconsumer` report to Sentry, with all default integrations of its SDK."""

import json
import signal

from tests.optional import needs_sentry
from tests.waiting import wait_until

pytestmark = needs_sentry

MIDDLEWARE = [f"mq_django.observability.sentry.{name}" for name in ("report_burials", "trace_publishing")]


def test_each_burial_is_one_event_of_the_consumer_or_of_the_supervisor_of_a_dead_one(
    trees, publish, store, tmp_path, monkeypatch
):
    path = tmp_path / "events"
    monkeypatch.setenv("MQ_TEST_SENTRY", str(path))
    monkeypatch.setenv("MQ_TEST_APPS", "tests.observability.reporting")

    def reported():
        """Return the events that were sent so far: the transport sends them only when it is flushed."""
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    tree = trees(QUEUES={"default": {"MAX_ATTEMPTS": 1}}, MIDDLEWARE=MIDDLEWARE)
    sent = {publish(["raise", "in a thread"]): "act", publish(["raise", "on the loop"], name="aact"): "act_async"}
    wait_until(lambda: store.depths().dead == 2, timeout=20)
    # Events are sent before a consumer is replaced.
    tree.signal(signal.SIGHUP)
    wait_until(lambda: len(reported()) >= 2, timeout=20)
    found = [(event["tags"]["mq.message_id"], event["transaction"].rpartition(".")[2]) for event in reported()]
    assert sorted(found) == sorted(sent.items())
    assert {event["exception"]["values"][0]["type"] for event in reported()} == {"ValueError"}
    killer = publish(["exit", 3])
    wait_until(lambda: store.depths().dead == 3, timeout=20)
    assert tree.stop() == 0
    later = reported()[2:]
    (buried,) = [event for event in later if "mq.message_id" in event.get("tags", {})]
    assert (buried["tags"]["mq.message_id"], buried["tags"]["mq.reason"]) == (killer, "crashed")
    assert (buried["tags"]["mq.message"], buried["transaction"]) == ("act", "tests.consumers.project.handlers.act")
    others = {event["logentry"]["message"] for event in later if event != buried}
    # The killer may have been given to the new one before it had said that it is ready.
    assert others <= {
        "Consumer %s exited with code %d; starting another",
        "The new consumer failed to start; keeping the old ones",
    }
