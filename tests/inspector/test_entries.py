"""What is ready and what is pending, as people see it."""

import pytest

from mq_django.conf import get_config
from mq_django.core.filters import Filter
from mq_django.inspector import message_lists
from mq_django.inspector import stream_reader as scanning
from tests.commands import script_calls
from tests.seeding import publish, publish_many, take

pytestmark = pytest.mark.usefixtures("mq_settings")


def ids(some):
    return [view.id for view in some.rows]


def test_pages_follow_one_another_over_all_places():
    """The urgent first, then by priority, then as they came; each once, and none that consumers hold."""
    publish("emails", "welcome", 0, message_id="held", priority=1)
    (held,) = take("emails", 1)
    plain = publish_many("emails", [("welcome", n) for n in range(5)])
    ranked = [publish("emails", "welcome", n, priority=n) for n in (1, 9, 5)]

    seen, after = [], ""
    while True:
        some = message_lists.messages("emails", "ready", after=after, limit=2)
        seen += ids(some)
        after = some.after
        if not after:
            break

    assert seen == [ranked[1], ranked[2], ranked[0], *plain]
    assert held.message.id not in seen


def test_a_page_goes_on_where_consumers_have_come_to():
    found = publish_many("emails", [("welcome", n) for n in range(6)])
    some = message_lists.messages("emails", "ready", limit=2)
    take("emails", 4)

    assert ids(message_lists.messages("emails", "ready", after=some.after, limit=10)) == found[4:]


def test_one_call_reads_a_bounded_number_of_bytes(redis_client):
    """A megabyte takes 10 ms, in which nobody else is served."""
    key = get_config().queue("emails").keys.ready
    entries = [redis_client.xadd(key, {"id": f"m{n}", "type": "n", "data": '"' + "x" * 2**20 + '"'}) for n in range(12)]
    before = script_calls(redis_client)
    some = message_lists.messages("emails", "ready", limit=11)
    assert [view.ref for view in some.rows] == [f"ready.{entry.decode()}" for entry in entries[:11]]
    # Five messages, five and one; and one call for each of the other places.
    assert script_calls(redis_client) == before + 3 + 2


def test_a_cursor_that_makes_no_sense_is_the_beginning():
    publish("emails", "welcome", 1)

    cursors = ["nonsense", "ready.", "priority.x", "front.1-1-1", "ready.99999999999999999999-1"]
    found = [len(message_lists.messages("emails", "ready", after=cursor, limit=5).rows) for cursor in cursors]
    assert found == [1] * len(cursors)


def test_a_look_ends_after_so_many_and_goes_on_from_there(monkeypatch):
    monkeypatch.setattr(scanning, "MAX_SCANNED", 7)
    monkeypatch.setattr(scanning, "BATCH", 3)
    publish_many("emails", [("welcome", n) for n in range(9)])
    meant = publish("emails", "remind", 1)

    first = message_lists.messages("emails", "ready", Filter(name="remind"), limit=5)
    second = message_lists.messages("emails", "ready", Filter(name="remind"), after=first.after, limit=5)

    assert (first.rows, first.scanned) == ([], 7)
    assert (ids(second), second.scanned, second.after) == ([meant], 3, "")


def test_a_look_ends_when_its_time_is_over_and_goes_on_from_there(monkeypatch):
    monkeypatch.setattr(scanning, "BATCH", 3)
    monkeypatch.setattr(scanning, "SECONDS", -1.0)
    publish_many("emails", [("welcome", n) for n in range(4)])

    first = message_lists.messages("emails", "ready", Filter(name="remind"), limit=5)
    second = message_lists.messages("emails", "ready", Filter(name="remind"), after=first.after, limit=5)

    assert (first.scanned, second.scanned, second.after) == (3, 1, "")
