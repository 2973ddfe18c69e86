"""Nonsense in any place of a queue's keys fails no look of `manage.py mq`, and no line of it is split."""

from io import StringIO

import pytest
from django.core.management import call_command

from mq_django.conf import get_config
from tests.hostile_keys import LAST_ENTRIES, OF_STREAMS, topic_log
from tests.seeding import bury, publish


@pytest.fixture(autouse=True)
def _configured(mq_settings):
    mq_settings(QUEUES={"default": {}, "emails": {}}, TOPICS={"orders": {}})


PLACES = OF_STREAMS | LAST_ENTRIES
LOOKS = (
    ("status",),
    *(("peek", "emails", place) for place in ("ready", "delayed", "unhandled", "parked", "dead")),
    ("peek", "emails", "pending", "--name", "welcome"),
    ("peek", "emails", "dead", "--group", "welcome", "ValueError", "--since", "7d"),
    *(("export", "emails", place) for place in ("ready", "pending", "delayed", "unhandled", "parked", "dead")),
    ("errors", "emails"),
    ("jobs",),
    ("jobs", "list", "--queue", "emails"),
    ("limits",),
    ("rates",),
    ("rates", "emails"),
    ("rates", "emails", "--hours", "48"),
    ("redrive", "emails", "--all", "--dry-run", "--name", "welcome"),
    ("purge", "emails", "ready", "--dry-run", "--key", "a"),
    ("top", "--once"),
    ("consumers",),
    ("topics",),
    ("schedules",),
    ("log", "orders"),
)


def mq(*args):
    out = StringIO()
    call_command("mq", *args, stdout=out)
    return out.getvalue()


@pytest.mark.parametrize("place", PLACES)
def test_every_look_answers(redis_client, place):
    PLACES[place](redis_client, get_config().queue("emails").keys)
    for look in LOOKS:
        assert mq(*look) is not None
        assert mq(*look, "--json") is not None


def test_every_look_answers_with_nonsense_everywhere(redis_client):
    publish("emails", "welcome", 1)
    bury("emails", "welcome", {"user": 7})
    for queue in ("emails", "orders:billing"):
        for place in PLACES.values():
            place(redis_client, get_config().queue(queue).keys)
    topic_log(redis_client, get_config().queue("orders:billing").keys)
    for look in LOOKS:
        told = mq(*look)
        assert all(line.isprintable() for line in told.split("\n"))
        mq(*look, "--json")
