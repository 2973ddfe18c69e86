"""Nonsense in any place of a queue's keys fails no look of `manage.py mq`, and no line of it is split."""

import pytest

from mq_django.conf import get_config
from tests.hostile_keys import OF_QUEUES, in_few_queues, topic_log
from tests.management.test_mq import mq
from tests.seeding import bury, publish

QUEUES = in_few_queues()
WAITING = ("ready", "delayed", "unhandled", "parked", "dead")

OF_A_QUEUE = (
    *(("find", "{}", "--state", place) for place in WAITING),
    ("find", "{}", "--state", "pending", "--name", "welcome"),
    ("find", "{}", "--state", "dead", "--group", "welcome", "ValueError", "--since", "7d"),
    *(("export", "{}", "--state", place) for place in (*WAITING, "pending")),
    ("redrive", "{}", "--errors"),
    ("jobs", "list", "--queue", "{}"),
    ("status", "{}", "--rates"),
    ("status", "{}", "--rates", "--hours", "48"),
    ("redrive", "{}", "--all", "--dry-run", "--name", "welcome"),
    ("purge", "{}", "--state", "ready", "--dry-run", "--key", "a"),
)
OF_ALL = (
    *(
        ("status",),
        ("status", "--limits"),
        ("status", "--rates"),
        ("jobs",),
        ("consumers",),
        ("topics",),
        ("schedules",),
    ),
    ("topics", "log", "orders"),
)


def get_job(queues):
    """Return the looks that fail, and those that print what is not printable."""
    failed = []
    for words in (*OF_ALL, *(tuple(word.format(queue) for word in each) for each in OF_A_QUEUE for queue in queues)):
        try:
            # An export is JSON in any case.
            told = mq(*words) + ("" if words[0] == "export" else mq(*words, "--json"))
        except Exception as error:  # noqa: BLE001 - any is a failure of this look
            failed.append((words, QUEUES.get(words[1] if len(words) > 1 else ""), repr(error)))
            continue
        failed += [(words, line) for line in told.split("\n") if not line.isprintable()]
    return failed


def test_every_look_answers(redis_client, mq_settings):
    mq_settings(QUEUES={queue: {} for queue in QUEUES}, TOPICS={"orders": {}})
    for queue, places in QUEUES.items():
        for place in places:
            OF_QUEUES[place](redis_client, get_config().queue(queue).keys)
    assert get_job(QUEUES) == []


@pytest.mark.parametrize("queue", ["emails", "orders:billing"])
def test_every_look_answers_with_nonsense_everywhere(redis_client, mq_settings, queue):
    mq_settings(QUEUES={"default": {}, "emails": {}}, TOPICS={"orders": {}})
    publish("emails", "welcome", 1)
    bury("emails", "welcome", {"user": 7})
    for place in OF_QUEUES.values():
        place(redis_client, get_config().queue(queue).keys)
    topic_log(redis_client, get_config().queue("orders:billing").keys)
    assert get_job([queue]) == []
