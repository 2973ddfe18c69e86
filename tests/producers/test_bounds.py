"""What consumers would refuse is refused at the call, whichever way it is published."""

from datetime import timedelta

import pytest

from mq_django.conf import get_config, read
from mq_django.core.messages import Bury
from mq_django.errors import InvalidMessage
from mq_django.inspector import dead_letters
from mq_django.inspector.dead_letters import resubmit
from mq_django.stores.dead_letters import open_dead_letters
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.seeding import publish, settle, take

DEEP = []
for _ in range(501):
    DEEP = [DEEP]


@pytest.fixture(autouse=True)
def configured(mq_settings, namespace):
    jobs = {"STORE": "rsmq", "NAMESPACE": f"{namespace}:r", "MAXSIZE": -1}
    return mq_settings(QUEUES={"default": {}, "emails": {"MAX_SIZE": 1024 * 1000}, "jobs": jobs}, TOPICS={"events": {}})


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
