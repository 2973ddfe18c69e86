"""What a message streams, on its page."""

import json
import re

import pytest

from mq_django.admin.ui import live
from mq_django.conf import get_config
from tests.admin.conftest import BASE
from tests.admin.pages import main_of
from tests.seeding import add_to_stream, bury, dead_entry, publish, take

pytestmark = [pytest.mark.django_db, pytest.mark.cluster]

END = ("end", '{"outcome":"handled"}')


@pytest.fixture(autouse=True)
def _streaming(mq_settings):
    mq_settings(QUEUES={"default": {}, "emails": {"STREAM": True}})


@pytest.fixture
def message_id():
    """A message that a consumer holds."""
    found = publish("emails", "welcome", 1)
    take("emails", 1)
    return found


def page(client):
    (row,) = client.get(f"{BASE}emails/pending/").context["rows"]
    return main_of(client.get(row["url"]))


def shown(text):
    """Return the stream on a page, as lines without tags."""
    found = re.search(r'data-mq-part="message_stream".*?>(.*?)</div>\s*</div>', text, re.DOTALL)[1]
    lines = re.sub(r'<span class="mq-(?:text|log|json|bytes|restart|end)">', "\n", found)
    return [line for line in re.sub(r"<[^>]+>", "", lines).splitlines() if line]


def poll(client, message_id, have=None):
    headers = {"X-MQ-Have": json.dumps(have or {})}
    return client.get(f"{BASE}emails/message/pending/{message_id}/stream.json", headers=headers).json()


def test_texts_are_joined_and_lines_stand_alone(operator, message_id):
    add_to_stream("emails", message_id, ("log", "asked"), ("text", "Hello "), ("text", "world"), ("json", '{"a": 1}'))
    assert shown(page(operator)) == ["asked", "Hello world", "{&quot;a&quot;: 1}"]
    add_to_stream("emails", message_id, ("bytes", "AAAA"), END)
    assert shown(page(operator))[3:] == ["3 bytes", "Ended: handled"]


def test_the_latest_run_is_shown_and_how_much_is_before_it(operator, message_id):
    add_to_stream("emails", message_id, ("text", "old"), ("text", "er"))
    add_to_stream("emails", message_id, ("restart", ""), ("text", "new"), attempt=2)
    assert shown(page(operator)) == ["2 earlier entries are not shown.", "Restarted: attempt 2", "new"]


def test_no_more_than_the_latest_entries_are_read(operator, message_id):
    add_to_stream("emails", message_id, *[("log", f"line {number}") for number in range(300)])
    lines = shown(page(operator))
    assert lines[:2] == ["100 earlier entries are not shown.", "line 100"]
    assert lines[-1] == "line 299"
    add_to_stream("emails", message_id, *[("text", "x" * 60_000)] * 20)
    assert shown(page(operator))[0] == "310 earlier entries are not shown."


def test_what_is_streamed_is_escaped_and_without_secrets(operator, message_id):
    add_to_stream("emails", message_id, ("text", "<b>\u202e"), ("log", "password=hunter2"), ("json", '{"token": "x"}'))
    text = page(operator)
    assert "&lt;b&gt;" in text
    assert "U+202E" in text
    assert "hunter2" not in text
    assert "{&quot;token&quot;: &quot;[redacted]&quot;}" in text


def test_who_may_not_see_data_sees_only_restarts_and_the_end(viewer, message_id):
    add_to_stream("emails", message_id, ("text", "secret"), ("log", "secret"))
    add_to_stream("emails", message_id, ("restart", ""), ("text", "secret"), attempt=2)
    add_to_stream("emails", message_id, ("end", '{"outcome":"buried","error":"ValueError: secret"}'), attempt=2)
    text = page(viewer)
    assert "secret" not in text + json.dumps(poll(viewer, message_id))
    assert "You do not have permission to see message data." in text
    assert "Restarted: attempt 2" in text
    assert "Ended: became a dead letter. <bdi>ValueError</bdi>" in text


def test_a_poll_gets_what_is_new(operator, message_id, monkeypatch):
    monkeypatch.setattr(live, "SHARED_FOR", 0.0)
    found = poll(operator, message_id)

    assert "Nothing was streamed yet." in found["parts"]["message_stream"]
    assert poll(operator, message_id, found["have"])["parts"] == {}
    add_to_stream("emails", message_id, ("log", "asked"))
    assert {*poll(operator, message_id, found["have"])["parts"]} == {"message_stream"}


def test_an_ended_stream_is_not_live(operator):
    message_id = bury("emails", "welcome", 1)
    url = f"{BASE}emails/message/dead/{dead_entry('emails')}/"
    text = main_of(operator.get(url))
    assert "data-mq-live" not in text
    assert shown(text) == ["Ended: became a dead letter. ValueError: no"]
    add_to_stream("emails", message_id, ("restart", ""), attempt=2)
    assert "data-mq-live" in main_of(operator.get(url))


def test_without_a_stream_nothing_is_added(operator, mq_settings, message_id, redis_client):
    dead_id = bury("emails", "welcome", 1)
    redis_client.delete(get_config().queue("emails").keys.message_stream(dead_id))
    assert "message_stream" not in main_of(operator.get(f"{BASE}emails/message/dead/{dead_entry('emails')}/"))
    mq_settings()
    text = page(operator)
    assert "data-mq-live" not in text
    assert "message_stream" not in text
    assert poll(operator, message_id)["summary"] == "Nothing was streamed yet."


def test_what_other_programs_have_written_breaks_nothing(operator, message_id, redis_client):
    key = get_config().queue("emails").keys.message_stream(message_id)
    redis_client.xadd(key, {"odd": "\xff"})
    add_to_stream("emails", message_id, ("json", "{"), ("text", "good"), ("end", "[]"))
    assert "good" in page(operator)
    redis_client.delete(key)
    redis_client.set(key, "no stream")
    assert "Nothing was streamed yet." in page(operator)
