"""Every public way to publish makes its message with the factory and sends it through the sink."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from asgiref.sync import async_to_sync
from django.core.management import CommandError, call_command
from django.db import transaction
from django.dispatch import Signal

import mq_django
from mq_django import queues, topics
from mq_django.core.publication import Publication
from mq_django.errors import MQError
from mq_django.producers.sinks import RedisSink
from mq_django.transport import connections
from tests.syntax_trees import nodes_of
from tests.testapp import tasks

PACKAGE = Path(mq_django.__file__).parent

happened = Signal()


@pytest.fixture(autouse=True)
def configured(mq_settings):
    mq_settings(
        CONNECTION="redis://127.0.0.1:1",  # nothing may get there
        QUEUES={"default": {}, "emails": {}, "jobs": {"STORE": "rsmq"}},
        TOPICS={"orders": {}},
        SIGNALS=[{"signal": f"{__name__}.happened", "queue": "emails", "name": "welcome", "data": "{word}"}],
    )


@pytest.fixture
def sent(monkeypatch):
    """Take the place of Redis, in one line."""
    found = []

    def send(sink, publications):
        found.extend(publications)
        return [message.id for message, _, _ in publications]

    monkeypatch.setattr(RedisSink, "send", send)
    return found


#: Each publishes one message named "welcome" or a task, with the data 1 or the arguments of a task.
WAYS = {
    "publish": lambda: queues["emails"].publish("welcome", 1),
    "publish_many": lambda: queues["emails"].publish_many([("welcome", 1)]),
    "apublish": lambda: async_to_sync(queues["emails"].apublish)("welcome", 1),
    "apublish_many": lambda: async_to_sync(queues["emails"].apublish_many)([("welcome", 1)]),
    "delayed": lambda: queues["emails"].publish("welcome", 1, delay=5),
    "prioritised": lambda: queues["emails"].publish("welcome", 1, priority=5),
    "claimed": lambda: queues["emails"].publish("welcome", 1, unique="u", unique_for=5),
    "to RSMQ": lambda: queues["jobs"].publish("welcome", 1),
    "to a group": lambda: queues["orders:billing"].publish("welcome", 1),
    "to a topic": lambda: topics["orders"].publish("welcome", 1),
    "many to a topic": lambda: topics["orders"].publish_many([("welcome", 1)]),
    "apublish to a topic": lambda: async_to_sync(topics["orders"].apublish)("welcome", 1),
    "apublish_many to a topic": lambda: async_to_sync(topics["orders"].apublish_many)([("welcome", 1)]),
    "a task": lambda: tasks.note.enqueue(1),
    "a task from a coroutine": lambda: async_to_sync(tasks.note.aenqueue)(1),
    "many tasks": lambda: tasks.note.enqueue_many([[1]]),
    "many tasks from a coroutine": lambda: async_to_sync(tasks.note.aenqueue_many)([[1]]),
    "a signal": lambda: happened.send(None, word="1"),
    "a command": lambda: call_command("mq", "publish", "emails", "welcome", "1"),
}


def test_every_way_ends_in_the_sink(sent, capsys, subtests):
    for label, way in WAYS.items():
        with subtests.test(label):
            sent.clear()
            way()
            (made,) = sent
            assert type(made) is Publication
            assert made.message.name in ("welcome", tasks.note.module_path)
            assert made.message.queue == made.options.destination.name


@pytest.mark.django_db(transaction=True)
def test_every_way_waits_for_the_commit(sent, capsys, subtests):
    for label, way in WAYS.items():
        with subtests.test(label):
            sent.clear()
            with transaction.atomic():
                way()
                assert sent == []
                transaction.set_rollback(True)
            with transaction.atomic():
                way()
                assert sent == []
            assert len(sent) == 1


#: Calls with something that cannot be sent.
REFUSED = {
    "publish": lambda: queues["emails"].publish("welcome", {1}),
    "publish_many": lambda: queues["emails"].publish_many([("welcome", 1), ("", 1)]),
    "to RSMQ": lambda: queues["jobs"].publish("welcome", 1, priority=5),
    "many to RSMQ": lambda: queues["jobs"].publish_many([("welcome", 1)], priority=5),
    "to a group": lambda: queues["orders:billing"].publish("welcome", 1, priority=5),
    "to a topic": lambda: topics["orders"].publish("welcome", 1, message_id="u:x"),
    "many to a topic": lambda: topics["orders"].publish_many([("welcome", {1})]),
    "a task": lambda: tasks.note.using(key="two\nlines").enqueue(1),
    "a command": lambda: call_command("mq", "publish", "emails", "two\nlines", "1"),
    "a cancellation": lambda: queues["emails"].cancel("two\nlines"),
}


def test_what_is_refused_asks_for_no_connection(monkeypatch, subtests):
    connections.close_clients()
    monkeypatch.setattr(connections, "make_pool", None)
    for label, way in REFUSED.items():
        with subtests.test(label), pytest.raises((MQError, CommandError)):
            way()


#: What is called below. Modules without any of it need not be parsed.
CALLED = re.compile(r"ublication|PublishOptions|resubmission|publish\(|message_published|\bMessage\b")


@cache
def every_call():
    paths = [path for path in sorted(PACKAGE.rglob("*.py")) if CALLED.search(path.read_text(encoding="utf-8"))]
    return [(str(path.relative_to(PACKAGE).with_suffix("")), call) for path, call in nodes_of(paths, ast.Call)]


def calls(*names, given=False):
    """Return the calls of what has one of these names, as they are written, by module.

    With `given` also calls that are given it first, such as `tuple.__new__(Publication, ...)`.
    """
    found = defaultdict(set)
    for module, call in every_call():
        for called in (call.func, *call.args[:given]):
            if getattr(called, "attr", getattr(called, "id", "")) in names:
                found[module].add(ast.unparse(called))
    return dict(found)


def test_each_part_of_a_publish_is_in_one_place(subtests):
    """One test: the whole package is parsed once."""
    with subtests.test("publications are made in one module"):
        made = calls("Publication", "PublishOptions", given=True)
        assert made == {"core/publication": {"Publication", "PublishOptions"}}
    with subtests.test("messages are made by the factory and by what reads them from redis"):
        assert set(calls("Message", given=True)) == {
            "core/publication",
            "core/message_format",
            "core/rsmq_format",
        }
    with subtests.test("only the sink gives publications to a store"):
        assert calls("publish") == {
            "producers/sinks": {"self.store.publish", "store.publish"},
            # What a transaction has written before.
            "outbox/relay": {"self._store.publish"},
            # The store of what has partitions, and then those of the partitions.
            "stores/partitioned_store": {
                "self._stores[name].publish",
                "self._stores[publications[0].options.destination.name].publish",
            },
            # What these call is Queue.publish, or ends there.
            "triggers/declarations": {"queues[self.queue].publish", "target.publish"},
            "management/message_verbs": {"queues[queue].publish"},
            "admin/publish_page": {"queues[queue].publish"},
            "admin/bulk_pages": {"queue.publish"},
            # The kit repeats a message with its id and time, which no producer could.
            "testing/published": {
                "open_publisher(destination, open_transport('produce', destination.connection)).publish",
            },
            "testing/idempotence": {"self.subject.publish"},
            # Middleware: this is the next one.
            **{f"observability/{name}": {"publish"} for name in ("correlation", "opentelemetry", "sentry")},
        }
    with subtests.test("message published is sent at one place"):
        assert calls("message_published", given=True) == {"producers/sinks": {"message_published"}}
