"""`manage.py mq tail`."""

import json

import pytest
from django.core.management import CommandError

from mq_django.management import message_verbs
from tests.management.test_mq import mq, refusal
from tests.seeding import add_to_stream, publish

pytestmark = pytest.mark.cluster

END = ("end", '{"outcome":"handled"}')


@pytest.fixture(autouse=True)
def _streaming(mq_settings):
    mq_settings(QUEUES={"default": {}, "emails": {"STREAM": True, "PARTITIONS": 2}})


@pytest.fixture
def message_id():
    return publish("emails", "welcome", 1)


def add(message_id, *entries, attempt=1):
    return add_to_stream(f"emails.{message_id.rpartition('.')[2]}", message_id, *entries, attempt=attempt)


def test_texts_are_printed_as_they_come_and_lines_stand_alone(message_id, capsys):
    add(message_id, ("text", "Hello "), ("text", "world"), ("log", "asked"), ("json", '{"a":1}'), ("bytes", "AAAA"))
    add(message_id, ("restart", ""), ("text", "Again"), END, attempt=2)
    assert mq("tail", message_id) == 'Hello world\nasked\n{"a": 1}\nAAAA\nAgain\n'
    assert capsys.readouterr().err == "Restarted: attempt 2\nEnded: handled\n"
    assert mq("tail", message_id, "--queue", "emails") == mq("tail", message_id)


def test_json_has_a_line_for_each_entry(message_id):
    ids = add(message_id, ("text", "a"), ("bytes", "AAAA"), END)
    lines = [json.loads(line) for line in mq("tail", message_id, "--json").splitlines()]
    assert [line["id"] for line in lines] == ids
    text = {"kind": "text", "value": "a", "attempt": 1, "number": 1, "outcome": None, "error": None}
    assert lines[0] == {"id": ids[0], **text}
    assert [line["value"] for line in lines] == ["a", "AAAA", None]
    assert lines[2]["outcome"] == "handled"
    assert len(mq("tail", message_id, "--json", "--after", ids[1]).splitlines()) == 1


def test_the_exit_code_tells_the_outcome(message_id, capsys):
    add(message_id, ("end", '{"outcome":"buried","error":"ValueError: \\u202eno"}'))
    assert refusal("tail", message_id) == ("The message was not handled.", 1)
    assert capsys.readouterr().err == "Ended: buried, ValueError: <U+202E>no\n"


def test_what_is_unknown_has_a_code_of_its_own(message_id, mq_settings):
    assert refusal("tail", "nothing")[1] == 2
    assert "No queue has a message nothing" in refusal("tail", "nothing")[0]
    assert refusal("tail", message_id, "--timeout", "0.1")[1] == 2
    mq_settings(QUEUES={"default": {}, "emails": {}})
    text, code = refusal("tail", publish("emails", "welcome", 1), "--queue", "emails")
    assert (text, code) == ("Queue 'emails' keeps no streams: set STREAM in its settings", 2)
    with pytest.raises(CommandError, match="No queue 'nope'"):
        mq("tail", message_id, "--queue", "nope")


def test_secrets_are_replaced_and_odd_characters_escaped(message_id):
    add(message_id, ("log", "password=hunter2"), ("text", "a\x1b[2J\nb"), ("json", '{"token":"x"}'), END)
    assert mq("tail", message_id) == 'password=[redacted]\na<U+001B>[2J\nb\n{"token": "[redacted]"}\n'


def test_an_interrupt_ends_it_quietly(message_id, monkeypatch, capsys):
    def interrupted(*args, **options):
        yield from read(*args, **options)
        raise KeyboardInterrupt

    read = message_verbs.read_stream
    add(message_id, ("text", "Hello"), END)
    monkeypatch.setattr(message_verbs, "read_stream", interrupted)
    with pytest.raises(SystemExit) as ended:
        mq("tail", message_id)
    assert ended.value.code == 130
    assert "Traceback" not in capsys.readouterr().err
