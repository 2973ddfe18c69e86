"""What is ready and what is pending, as people see it."""

import pytest

from mq_django.conf import get_config
from mq_django.core.filters import NOTHING, Filter
from mq_django.inspector import dead_letters, entries, messages
from mq_django.inspector import scan as scanning
from tests.seeding import CONSUMER, bury, publish, publish_many, take

pytestmark = pytest.mark.usefixtures("mq_settings")


def ids(some):
    return [view.message.id for view in some.rows]


def test_ready_and_pending_messages_are_told_apart():
    first, second = publish_many("emails", [("welcome", 1), ("welcome", {"password": "hunter2"})])
    take("emails", 1)

    (held,) = entries.pending("emails", NOTHING, limit=10).rows
    (ready,) = entries.ready("emails", NOTHING, limit=10).rows

    assert (held.message.id, held.consumer, ready.message.id) == (first, CONSUMER, second)
    assert 0 <= held.held_ms < 10_000
    assert ready.message.data == {"password": "[redacted]"}
    assert ready.consumer == ""
    assert entries.get("emails", ready.source, ready.entry) == ready


def test_pages_follow_one_another_over_all_places():
    """The urgent first, then by priority, then as they came; each once, and none that consumers hold."""
    publish("emails", "welcome", 0, message_id="held", priority=1)
    (held,) = take("emails", 1)
    plain = publish_many("emails", [("welcome", n) for n in range(5)])
    ranked = [publish("emails", "welcome", n, priority=n) for n in (1, 9, 5)]

    seen, after = [], ""
    while True:
        some = entries.ready("emails", NOTHING, after=after, limit=2)
        seen += ids(some)
        after = some.after
        if not after:
            break

    assert seen == [ranked[1], ranked[2], ranked[0], *plain]
    assert held.message.id not in seen


def test_a_page_goes_on_where_consumers_have_come_to():
    found = publish_many("emails", [("welcome", n) for n in range(6)])
    some = entries.ready("emails", NOTHING, limit=2)
    take("emails", 4)

    assert ids(entries.ready("emails", NOTHING, after=some.after, limit=10)) == found[4:]


def test_pending_messages_have_pages():
    found = publish_many("emails", [("welcome", n) for n in range(5)])
    take("emails", 5)

    first = entries.pending("emails", NOTHING, limit=3)
    second = entries.pending("emails", NOTHING, after=first.after, limit=3)

    assert [*ids(first), *ids(second)] == found
    assert second.after == ""


def test_a_cursor_that_makes_no_sense_is_the_beginning():
    publish("emails", "welcome", 1)

    cursors = ["nonsense", "ready.", "priority.x", "urgent.1-1-1", "ready.99999999999999999999-1"]
    found = [len(entries.ready("emails", NOTHING, after=cursor, limit=5).rows) for cursor in cursors]
    assert found == [1] * len(cursors)


def test_a_filter_goes_by_name_key_and_time():
    publish("emails", "welcome", 1, key="user:1")
    publish("emails", "order.paid", 2, key="user:2")

    def found(**wanted):
        return [view.message.data for view in entries.ready("emails", Filter(**wanted), limit=9).rows]

    assert found(name="PAID") == [2]
    assert found(key="user:1") == [1]
    assert found(since_ms=0, until_ms=2**50) == [1, 2]
    assert found(until_ms=1) == []


def test_dead_letters_are_found_by_their_error():
    bury("emails", error="ValueError: no stamp")
    meant = bury("emails", error="SMTPError: refused")

    (letter,) = dead_letters.look_among("emails", Filter(error="smtp"), limit=9).rows

    assert letter.message.id == meant


def test_what_waits_is_found_by_its_name():
    publish("emails", "welcome", 1, delay=60)
    meant = publish("emails", "remind", 1, delay=60)

    some = messages.look_among_waiting("emails", "delayed", Filter(name="remind"), limit=9)

    assert [view.message.id for view in some.rows] == [meant]
    assert some.scanned == 2


def test_a_look_ends_after_so_many_and_goes_on_from_there(monkeypatch):
    monkeypatch.setattr(scanning, "MAX_SCANNED", 7)
    monkeypatch.setattr(scanning, "BATCH", 3)
    publish_many("emails", [("welcome", n) for n in range(9)])
    meant = publish("emails", "remind", 1)

    first = entries.ready("emails", Filter(name="remind"), limit=5)
    second = entries.ready("emails", Filter(name="remind"), after=first.after, limit=5)

    assert (first.rows, first.scanned) == ([], 7)
    assert (ids(second), second.scanned, second.after) == ([meant], 3, "")


def test_a_look_ends_when_its_time_is_over_and_goes_on_from_there(monkeypatch):
    monkeypatch.setattr(scanning, "BATCH", 3)
    monkeypatch.setattr(scanning, "SECONDS", -1.0)
    publish_many("emails", [("welcome", n) for n in range(4)])

    first = entries.ready("emails", Filter(name="remind"), limit=5)
    second = entries.ready("emails", Filter(name="remind"), after=first.after, limit=5)

    assert (first.scanned, second.scanned, second.after) == (3, 1, "")


def test_long_data_is_left_out_of_a_page_and_is_on_the_messages_own():
    publish("emails", "welcome", "x" * 50_000)

    (listed,) = entries.ready("emails", NOTHING, limit=5).rows

    assert not listed.message.has_data
    assert listed.message.name == "welcome"
    assert entries.get("emails", listed.source, listed.entry).message.data == "x" * 50_000


def test_what_is_no_message_is_shown_as_such(redis_client):
    redis_client.xadd(get_config().queue("emails").keys.ready, {"x": b"\xff"})

    (view,) = entries.ready("emails", NOTHING, limit=5).rows

    assert view.message.error
