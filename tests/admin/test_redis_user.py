"""The commands that the documentation has for a web process with the admin suffice, and each is needed."""

import pytest

from mq_django.admin import consumer_pages
from mq_django.inspector import actions
from tests.admin.conftest import BASE
from tests.admin.pages import LOOKS, POSTS, VIEW, Visit, is_answered, world
from tests.seeding import publish, take
from tests.users import granted_to, line_of, noting_commands, user

pytestmark = [
    pytest.mark.django_db(databases="__all__"),
    pytest.mark.single_server(why="a user is made on one server"),
]

SETTINGS = {
    "QUEUES": {
        "default": {},
        "emails": {},
        "ordered": {"ORDERED": True},
        "full": {"MAX_DEPTH": 9, "RESULT_TTL": 0},
        "payments": {"PARTITIONS": 3},
    },
    "TOPICS": {"orders": {}, "events": {"PARTITIONS": 3}},
}


WORLDS = 6


def entry_pages(operator):
    """Return the pages of a message that is ready, of one with a priority, and of one that is pending."""
    for name in ("held", "first", "last"):
        publish("emails", name, priority=5 * (name == "first"))
        if name == "held":
            take("emails", 500)
    rows = [row for place in ("ready", "pending") for row in operator.get(f"{BASE}emails/{place}/").context["rows"]]
    assert len(rows) >= 3
    return [Visit("entry", row["url"].removeprefix(BASE), VIEW) for row in rows]


def test_the_commands_of_the_admin_suffice_and_each_is_needed(
    operator, mq_settings, redis_client, redis_url, namespace, monkeypatch
):
    monkeypatch.setattr(consumer_pages, "WAIT", 0.0)
    mq_settings(**SETTINGS)
    world()
    # What changes something gets a new world, with few others beside it.
    confirmed = [visit for visit in POSTS if "confirmed" in visit.fields]
    changing = [confirmed[first::WORLDS] for first in range(WORLDS)]
    others = [visit for visit in POSTS if "confirmed" not in visit.fields]
    needed, failed = set(), []
    with user(redis_client, redis_url, [*line_of("admin"), f"~{namespace}:*", f"&{namespace}:*"]) as url:
        for visits in ([*entry_pages(operator), *LOOKS, *others], *changing):
            mq_settings(CONNECTION=url, **SETTINGS)
            with noting_commands(redis_client, needed):
                answers = [(visit, visit.send(operator)) for visit in visits]
                assert all(b"".join(answer.streaming_content) for _, answer in answers if answer.streaming)
            failed += [(str(visit), answer.status_code) for visit, answer in answers if not is_answered(visit, answer)]
            mq_settings(**SETTINGS)
            actions.resume_all()
            world()
    assert failed == []
    assert sorted(granted_to("admin")) == sorted(needed | granted_to("web"))
