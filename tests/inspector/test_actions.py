"""What people do to messages: counted, bounded, and safe to do again."""

import pytest

from mq_django import inspector, topics
from mq_django.conf import get_config
from mq_django.errors import WrongKeyType
from mq_django.inspector import actions, dead_letters, message_lists
from mq_django.inspector.queue_view import Pause
from tests.seeding import bury_garbage, bury_many

pytestmark = pytest.mark.usefixtures("mq_settings")


def entries() -> list[str]:
    return [letter.ref for letter in message_lists.messages("emails", "dead", limit=500).rows]


def test_redriving_some_counts_what_went_and_what_did_not(redis_client):
    bury_many("emails", 2)
    garbage = bury_garbage(redis_client, "emails", {"x": "y"})
    found = entries()

    outcome = dead_letters.redrive("emails", [*found, found[-1], "1-1", "nonsense"])

    assert (outcome.done, outcome.missing, outcome.refused) == (2, 2, 1)
    assert outcome.error is None
    assert dead_letters.find("emails", garbage) == entries()[0]
    assert inspector.queue("emails").ready == 2


def test_a_queue_that_another_version_paused_is_paused_without_details(redis_client):
    redis_client.hset(get_config().queue("emails").keys.control, "paused", "1")

    assert inspector.queue("emails").pause == Pause()


def test_all_queues_are_paused_and_resumed_even_if_one_cannot_be(redis_client, mq_settings, namespace):
    jobs = {"STORE": "rsmq", "NAMESPACE": f"{namespace}:r"}
    mq_settings(TOPICS={"orders": {}}, QUEUES={"emails": {}, "default": {}, "broken": {}, "jobs": jobs})
    topics["orders"].group("billing").subscribe()
    redis_client.set(get_config().queue("broken").keys.control, "text")
    actions.pause("emails", who="bob", reason="earlier")

    found = actions.pause_all(who="ann", reason="maintenance")

    assert {"default", "jobs", "orders:billing"} <= {*found.changed}
    assert found.unchanged == ["emails"]
    assert [type(error) for error in found.errors.values()] == [WrongKeyType]
    pauses = {view.name: view.pause for view in inspector.overview() if view.pause}
    assert {name: pause.reason for name, pause in pauses.items()} == {
        "emails": "earlier",
        **dict.fromkeys(found.changed, "maintenance"),
    }
    assert actions.resume_all().changed == sorted(pauses)
    assert not any(view.paused for view in inspector.overview())
