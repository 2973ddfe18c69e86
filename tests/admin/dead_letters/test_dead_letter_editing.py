"""Dead letters: edited and resubmitted, grouped, exported."""

import json

import pytest
from django.contrib.admin.models import LogEntry

from mq_django import inspector
from mq_django.inspector import dead_letters
from tests.admin.conftest import BASE
from tests.seeding import bury, bury_garbage, bury_many, dead_entry, take

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]

DEAD = f"{BASE}emails/dead/"


def edit_url():
    return f"{DEAD}{dead_entry('emails')}/edit/"


def test_edited_data_goes_back_as_a_new_message_with_the_secrets_it_had(operator):
    old = bury("emails", "welcome", {"user_id": "seven", "password": "hunter2"}, key="user:7", headers={"h": "1"})
    form = operator.get(edit_url())
    assert "hunter2" not in form.content.decode()
    written = form.context["written"].replace('"seven"', "7")

    asked = operator.post(edit_url(), {"data": written})
    assert "Resubmit 1 dead letter with changed data?" in asked.content.decode()
    done = operator.post(edit_url(), dict(asked.context["fields"]), follow=True)

    assert "It was resubmitted as message" in done.content.decode()
    (delivery,) = take("emails", 5)
    message = delivery.message
    assert message.data == {"user_id": 7, "password": "hunter2"}
    assert message.id != old
    assert (message.name, message.key, message.attempt, dict(message.headers)) == ("welcome", "user:7", 1, {"h": "1"})
    assert inspector.queue("emails").dead == 0
    assert dead_letters.find("emails", old) is None
    assert LogEntry.objects.get().change_message == f"Resubmitted dead letter {old} with other data as {message.id}"


def test_what_cannot_be_sent_is_said_and_changes_nothing(operator):
    bury("emails", "welcome", {"password": "hunter2"})
    for written, said in (
        ("{", "This is not JSON. Line 1, column 2: "),
        ('{"other": "[redacted]"}', "placeholder for a secret"),
        (json.dumps("x" * 600_000), "bytes of data are"),
    ):
        response = operator.post(edit_url(), {"data": written, "confirmed": "yes"})
        assert said in response.content.decode()
    assert (inspector.queue("emails").dead, inspector.queue("emails").ready) == (1, 0)


def test_what_is_no_message_cannot_be_edited(operator, redis_client):
    bury_garbage(redis_client, "emails", {"x": "1"})

    assert operator.get(edit_url()).url == DEAD


def test_dead_letters_are_grouped_by_name_and_error(operator):
    bury_many("emails", 3)
    bury("emails", "remind", error="SMTPError: to a@example.org refused")

    response = operator.get(f"{DEAD}groups/")

    assert [(row["count"], row["error"]) for row in response.context["rows"]] == [
        ("3", "<bdi>ValueError</bdi>"),
        ("1", "<bdi>SMTPError</bdi>"),
    ]
    assert "example.org" not in response.content.decode()
    shown = operator.get(response.context["rows"][1]["url"])
    assert len(shown.context["rows"]) == 1


def test_dead_letters_are_exported_as_json_lines(operator):
    ids = bury_many("emails", 60)
    other = bury("emails", "other", {"password": "hunter2", "text": "x" * 50_000})

    response = operator.get(f"{DEAD}export/")
    lines = [json.loads(line) for line in b"".join(response.streaming_content).splitlines()]

    assert [line["id"] for line in lines] == [*ids, other]
    assert lines[-1]["data"] == {"password": "[redacted]", "text": "x" * 50_000}
    assert lines[0]["error"] == "ValueError: no"
    assert not LogEntry.objects.get().change_message.count("name contains")

    chosen = operator.get(operator.get(DEAD, {"name": "other"}).context["links"][1][0])
    assert [json.loads(line)["id"] for line in b"".join(chosen.streaming_content).splitlines()] == [other]
    assert LogEntry.objects.latest("pk").change_message == "Exported the dead letters: name contains “other”"
