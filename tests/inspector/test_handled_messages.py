"""What became of messages, as people see it."""

from datetime import timedelta

import pytest

from mq_django.conf import get_config
from mq_django.core.filters import NOTHING, Filter
from mq_django.core.outcomes import Bury
from mq_django.inspector.handled_messages import find_handled, get_handled, keeps_handled, look_among_handled
from tests.seeding import handle

pytestmark = pytest.mark.usefixtures("mq_settings")


def rows(where=NOTHING, **options):
    return look_among_handled("emails", where, **{"limit": 10, **options})


def test_whether_a_queue_keeps_it_is_its_option(mq_settings):
    assert not keeps_handled("emails")
    mq_settings(QUEUES={"emails": {"KEEP_HANDLED": timedelta(days=3)}})
    assert keeps_handled("emails")
    assert get_config().queue("emails").keep_handled_count == 100_000


def test_the_newest_is_first_with_all_that_is_known():
    handle("emails", "welcome", {"user": 7, "token": "x"}, message_id="m1", key="user:7")
    handle("emails", "remind", None, message_id="m2", outcome=Bury("no"))
    second, first = rows().rows
    assert (second.message.id, second.ending) == ("m2", "buried")
    assert (first.message.id, first.message.name, first.message.key, first.ending) == (
        *("m1", "welcome", "user:7", "handled"),
    )
    assert first.message.data == {"user": 7, "token": "[redacted]"}
    assert first.seconds == 0.0015
    assert first.finished_ms - first.started_ms == 1
    assert find_handled("emails", "m1") == get_handled("emails", first.entry, "m1") == first


def test_it_is_filtered_like_other_lists():
    for number in range(5):
        handle("emails", "welcome" if number % 2 else "remind", number, message_id=f"m{number}", key=f"k{number}")
    assert [row.message.id for row in rows(Filter(name="WELC")).rows] == ["m3", "m1"]
    assert [row.message.id for row in rows(Filter(id="m2")).rows] == ["m2"]
    assert [row.message.id for row in rows(Filter(key="k4")).rows] == ["m4"]
    assert rows(Filter(until_ms=1)).rows == []
    assert len(rows(Filter(since_ms=1)).rows) == 5


def test_it_is_read_page_by_page():
    for number in range(5):
        handle("emails", "welcome", number, message_id=f"m{number}")
    first = rows(limit=2)
    assert [row.message.id for row in first.rows] == ["m4", "m3"]
    last = rows(limit=3, after=first.after)
    assert [row.message.id for row in last.rows] == ["m2", "m1", "m0"]
    assert last.after == ""


def test_a_key_of_another_program_has_no_message(redis_client):
    redis_client.set(get_config().queue("emails").keys.handled_ids, "x")
    assert find_handled("emails", "m1") is None
