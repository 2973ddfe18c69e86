"""What publishing writes, for whoever reads it: `keys/publish-*.txt`."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.core.management import call_command

from mq_django import queues, topics
from mq_django.rsmq import RSMQ
from tests.golden import files
from tests.golden.keyspace import dump, heard
from tests.golden.project import tasks

KEYS = Path(__file__).parent / "keys"

HOUR = timedelta(hours=1)


def plain():
    """Publish every kind of data, and everything a message may have besides."""
    emails = queues["emails"]
    for data in (None, True, 0, -7, 2**53, 1.5, "", 'déjà vu "\\\n\x1f', [], {}, {"b": [1, {"a": None}], "a": "x"}):
        emails.publish("welcome", data)
    emails.publish("welcome", 1, key="user:7", headers={"tenant": "a", "trace": "é"}, message_id="my-own")


def many():
    """Publish several in one call."""
    queues["emails"].publish_many([("welcome", {"n": 1}), ("bye", None)], key="user:7")
    queues["emails"].publish_many([("later", 1), ("later", 2)], delay=HOUR, priority=-5)


def delayed():
    """Publish for later."""
    emails = queues["emails"]
    emails.publish("welcome", {"n": 1}, delay=3600, key="user:7", headers={"tenant": "a"})
    emails.publish("welcome", {"n": 2}, deliver_at=datetime.now(UTC) + 2 * HOUR, message_id="my-own")
    emails.publish("welcome", {"n": 3}, delay=HOUR, priority=7)
    # The id of one that waits is taken.
    emails.publish("welcome", {"n": 4}, delay=HOUR, message_id="my-own")
    assert emails.cancel(emails.publish("gone", 1, delay=HOUR))
    assert emails.reschedule(emails.publish("moved", 1, delay=HOUR), delay=3 * HOUR)


def expiring():
    """Publish what is not handled after some time."""
    emails = queues["emails"]
    emails.publish("welcome", 1, expires=HOUR)
    emails.publish("welcome", 2, expires=datetime.now(UTC) + 2 * HOUR)
    emails.publish("welcome", 3, expires=3 * HOUR, delay=HOUR)


def prioritised():
    """Publish what goes first, and what goes last."""
    emails = queues["emails"]
    for priority in (5, 0, -5, 100, 5):
        emails.publish("welcome", {"priority": priority}, priority=priority)


def unique():
    """Publish under unique keys: replaced, kept, and taken for a while."""
    emails = queues["emails"]
    emails.publish("welcome", "replaced", unique="cart-1", delay=HOUR)
    emails.publish("welcome", "replaces", unique="cart-1", delay=2 * HOUR)
    emails.publish("welcome", "kept", unique="cart-2", delay=HOUR)
    emails.publish("welcome", "not there", unique="cart-2", delay=HOUR, on_conflict="keep")
    emails.publish("welcome", "moved", unique="cart-3", delay=2 * HOUR)
    emails.publish("welcome", "earlier", unique="cart-3", delay=HOUR, on_conflict="earliest")
    emails.publish("welcome", "limited", unique="cart-7", delay=HOUR, at_most=2 * HOUR)
    emails.publish("welcome", "until handled", unique="cart-4", unique_for="handled")
    emails.publish("welcome", "for a while", unique="cart-5", unique_for=HOUR)
    emails.publish("welcome", "later, for a while", unique="cart-6", unique_for=HOUR, delay=2 * HOUR)


def topic():
    """Publish to a topic that has two groups."""
    news = topics["news"]
    assert news.group("late").subscribe("end")
    news.publish("paid", {"order": 7}, key="order:7", headers={"tenant": "a"}, expires=HOUR)
    news.publish("paid", 2, message_id="my-own")
    news.publish("paid", 2, message_id="my-own")
    news.publish_many([("sent", 3), ("sent", 4)])
    assert news.group("all").subscribe("beginning")


def rsmq_queue():
    """Publish to a queue in RSMQ's format."""
    jobs = queues["jobs"]
    jobs.publish("welcome", {"n": 1})
    jobs.publish("welcome", {"n": 2}, delay=HOUR, key="user:7", headers={"tenant": "a"})
    jobs.publish_many([("welcome", 3), ("welcome", 4)])


def rsmq_api(namespace):
    """Send and receive as RSMQ does."""
    rsmq = RSMQ(namespace)
    rsmq.create_queue("letters", vt=600, delay=0, maxsize=2048)
    rsmq.send("letters", "received")
    rsmq.send("letters", "waits ä", delay=3600)
    assert rsmq.receive("letters").message == "received"
    rsmq.send("letters", "gone")
    assert rsmq.pop("letters").message == "gone"


def task():
    """Enqueue tasks, whose results wait for them."""
    tasks.note.enqueue(1, [2], name="x")
    tasks.receipt.enqueue(7, copies=2)
    tasks.note.using(run_after=datetime.now(UTC) + HOUR, priority=3).enqueue("later")


def paused():
    """Pause one queue, and another for a while."""
    call_command("mq", "pause", "emails", verbosity=0)
    call_command("mq", "pause", "default")
    call_command("mq", "resume", "default")


FEATURES: list[Callable[..., None]] = [
    *(plain, many, delayed, expiring, prioritised, unique),
    *(topic, rsmq_queue, rsmq_api, task, paused),
]


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.__name__)
def test_what_publishing_writes(feature, mq_settings, settings, namespace, redis_client, capsys, monkeypatch):
    monkeypatch.setenv("LOGNAME", "somebody")
    mq_settings(
        QUEUES={"default": {}, "emails": {}, "jobs": {"STORE": "rsmq", "NAMESPACE": namespace}}, TOPICS={"news": {}}
    )
    settings.TASKS = {"default": {"BACKEND": "mq_django.task_backend.MQBackend", "QUEUES": []}}
    with heard(redis_client, namespace) as said:
        feature(namespace) if feature is rsmq_api else feature()
    told = f"# {feature.__doc__}\n\n{dump(redis_client, namespace)}{''.join(said)}"
    files.check(KEYS, {f"publish-{feature.__name__.replace('_', '-')}": told})
