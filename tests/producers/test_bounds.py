"""What consumers would refuse is refused at the call, whichever way it is published."""

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from mq_django import queues, topics
from mq_django.conf import get_config, read
from mq_django.core.outcomes import Bury
from mq_django.errors import InvalidMessage
from mq_django.inspector import dead_letters
from mq_django.inspector.dead_letters import resubmit
from mq_django.stores.dead_letters import open_dead_letters
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.seeding import publish, settle, take
from tests.testapp import tasks

DEEP = []
for _ in range(501):
    DEEP = [DEEP]


@pytest.fixture(autouse=True)
def configured(mq_settings, namespace):
    jobs = {"STORE": "rsmq", "NAMESPACE": f"{namespace}:r", "MAXSIZE": -1}
    return mq_settings(QUEUES={"default": {}, "emails": {"MAX_SIZE": 1024 * 1000}, "jobs": jobs}, TOPICS={"events": {}})


def written(redis_client):
    """Return the keys of this test that hold anything."""
    return set(redis_client.scan_iter(match=f"*{get_config().namespace}*"))


HEADERS = {
    "many": {f"h{n}": "x" for n in range(600)},
    "long": {"h": "x" * 2_000_000},
    "longer as JSON": {"h": "\x00" * 180_000},
}


def test_headers(redis_client, subtests):
    for (where, options), (label, headers) in product(
        [
            (queues, {}),
            (queues, {"delay": 60}),
            (queues, {"priority": 5}),
            (queues, {"unique": "u", "delay": 1}),
            (queues, {"unique": "u", "unique_for": "handled"}),
            (topics, {}),
        ],
        HEADERS.items(),
    ):
        with subtests.test(label, where=where, options=options):
            before = written(redis_client)
            to = where["emails" if where is queues else "events"]

            with pytest.raises(InvalidMessage):
                to.publish("welcome", 1, headers=headers, **options)

            assert written(redis_client) == before


def test_headers_of_rsmq(redis_client, subtests):
    for label, headers in HEADERS.items():
        with subtests.test(label), pytest.raises(InvalidMessage):
            queues["jobs"].publish("welcome", 1, headers=headers)


def test_data_that_is_nested_too_deep(redis_client, subtests):
    for call in [
        lambda: queues["emails"].publish("welcome", DEEP),
        lambda: queues["emails"].publish("welcome", DEEP, delay=60),
        lambda: queues["jobs"].publish("welcome", DEEP),
        lambda: queues["emails"].publish_many([("welcome", 1), ("welcome", DEEP)]),
        lambda: topics["events"].publish("welcome", DEEP),
        lambda: topics["events"].publish_many([("welcome", DEEP)]),
        lambda: tasks.note.enqueue(DEEP),
    ]:
        with subtests.test(call=call):
            before = written(redis_client)
            with pytest.raises(InvalidMessage, match="nested deeper"):
                call()
            assert written(redis_client) == before


def test_a_moment_that_has_no_timestamp(subtests):
    for expires in [
        *(timedelta.max, datetime(1960, 1, 1, tzinfo=UTC)),
        datetime.max.replace(tzinfo=UTC),
    ]:
        with subtests.test(expires=expires), pytest.raises(InvalidMessage, match="between 1970 and 9999"):
            queues["emails"].publish("welcome", 1, expires=expires)


def test_a_schedule_that_could_not_be_published_is_a_problem_of_the_settings(subtests):
    for entry in [{"data": "x" * 300_000}, {"data": DEEP}, {"data": {1, 2}}, {"data": 1, "expires": timedelta.max}]:
        with subtests.test(entry=entry):
            schedule = {"every": 60, "message": "welcome", **entry}

            _config, problems = read({"QUEUES": {"default": {}}, "SCHEDULES": {"nightly": schedule}})

            assert len(problems) == 1
            assert "nightly" in problems[0].message


def test_what_is_accepted_can_be_buried_and_redriven(subtests):
    for headers in [{f"h{n}": "x" for n in range(480)}, {"h": "\x00" * 100_000}]:
        with subtests.test(headers=headers):
            message_id = publish("emails", "welcome", {"n": 1}, headers=headers)
            settle("emails", take("emails", 10), Bury(error="ValueError: no", traceback="\x01" * 5000))
            entry = dead_letters.find("emails", message_id)

            assert not dead_letters.get("emails", entry).problem
            letters = open_dead_letters(get_config().queue("emails"), Pooled(get_client("inspect")))
            assert letters.redrive([entry]) == ["REDRIVEN"]
            (delivery,) = take("emails", 10)
            assert (delivery.message.id, delivery.message.headers) == (message_id, headers)


def test_other_data_that_is_too_long_beside_its_headers_is_not_resubmitted():
    message_id = publish("emails", "welcome", 1, headers={"h": "\x00" * 100_000})
    settle("emails", take("emails", 10), Bury(error="ValueError: no"))
    entry = dead_letters.find("emails", message_id)

    with pytest.raises(InvalidMessage, match="data and headers"):
        resubmit("emails", entry, '"' + "x" * 500_000 + '"')

    assert dead_letters.get("emails", entry) is not None
