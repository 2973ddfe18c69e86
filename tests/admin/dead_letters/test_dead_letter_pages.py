"""Redriving and deleting dead letters in the admin."""

import pytest
from django.contrib.admin.models import LogEntry

from mq_django import inspector
from mq_django.inspector import dead_letters
from mq_django.inspector.message_lists import messages
from tests.admin.conftest import BASE
from tests.seeding import bury, bury_garbage, bury_many, dead_entry

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]

DEAD = f"{BASE}emails/dead/"
CHOSEN = f"{DEAD}chosen/"


def numbers() -> tuple[int, int]:
    view = inspector.queue("emails")
    return view.ready, view.dead


def letters():
    return messages("emails", "dead", limit=50).rows


def test_a_dead_letter_shows_what_it_says_and_why_it_is_dead(operator):
    bury("emails", "welcome", {"user_id": 7, "password": "hunter2"}, error="SMTPError: password=hunter2 refused")

    page = operator.get(f"{BASE}emails/message/dead/{dead_entry('emails')}/").content.decode()

    assert "welcome" in page
    assert "&quot;user_id&quot;: 7" in page
    assert "SMTPError: password=[redacted] refused" in page
    assert "Traceback" in page
    assert "out of attempts" in page
    assert "hunter2" not in page


def test_one_is_redriven_once_that_is_confirmed(operator):
    message_id = bury("emails", "welcome", {"user_id": 7})
    fields = {"action": "redrive", "_selected_action": dead_entry("emails")}

    asked = operator.post(CHOSEN, fields)
    assert "Redrive 1 dead letter?" in asked.content.decode()
    assert message_id in asked.content.decode()
    assert numbers() == (0, 1)

    done = operator.post(CHOSEN, {**fields, "confirmed": "yes"}, follow=True)
    assert "1 dead letter was redriven." in done.content.decode()
    assert numbers() == (1, 0)

    (entry,) = LogEntry.objects.all()
    assert entry.user_id == int(operator.session["_auth_user_id"])
    assert entry.object_id == "emails"
    assert entry.change_message == f"Redrove 1 dead letter: {message_id}"
    assert message_id in operator.get(f"{BASE}emails/history/").content.decode()


def test_the_chosen_are_deleted_and_the_others_stay(operator):
    bury_many("emails", 5)
    entries = [letter.ref for letter in letters()]
    fields = {"action": "delete", "_selected_action": entries[:3]}

    assert "Delete 3 dead letters?" in operator.post(CHOSEN, fields).content.decode()
    done = operator.post(CHOSEN, {**fields, "confirmed": "yes"}, follow=True)

    assert "3 dead letters were deleted." in done.content.decode()
    assert [letter.ref for letter in letters()] == entries[3:]
    assert LogEntry.objects.get().change_message.startswith("Deleted 3 dead letters: ")


def test_what_somebody_else_redrove_meanwhile_is_said(operator):
    bury_many("emails", 2)
    entries = [letter.ref for letter in letters()]
    dead_letters.redrive("emails", entries[:1])

    done = operator.post(CHOSEN, {"action": "redrive", "_selected_action": entries, "confirmed": "yes"}, follow=True)

    page = done.content.decode()
    assert "1 dead letter was redriven." in page
    assert "1 no longer existed" in page
    assert numbers() == (2, 0)


def test_what_is_no_message_cannot_be_redriven_and_shows_its_bytes(operator, redis_client):
    bury_garbage(redis_client, "emails", {"x": b"\xff\x00<b>"})
    entry = dead_entry("emails")

    page = operator.get(f"{BASE}emails/message/dead/{entry}/").content.decode()
    assert "\\xff" in page
    assert "&lt;b&gt;" in page
    assert 'value="redrive"' not in page

    done = operator.post(CHOSEN, {"action": "redrive", "_selected_action": entry, "confirmed": "yes"}, follow=True)
    assert "1 is not a valid message and cannot be redriven." in done.content.decode()
    assert numbers() == (0, 1)
    assert not LogEntry.objects.exists()


def test_the_bytes_of_what_is_no_message_show_no_secret(operator, redis_client):
    bury_garbage(redis_client, "emails", {"password": b"hunter2", "data": b'{"token": "hunter2", "n": 5\xff}'})

    page = operator.get(f"{BASE}emails/message/dead/{dead_entry('emails')}/").content.decode()

    assert "hunter2" not in page
    assert "[redacted]" in page
    assert "\\xff" in page


def test_pages_lead_to_older_ones(operator):
    bury_many("emails", 120)

    first = operator.get(DEAD)
    second = operator.get(DEAD + first.context["go_on"])
    third = operator.get(DEAD + second.context["go_on"])

    assert [len(page.context["rows"]) for page in (first, second, third)] == [50, 50, 20]
    assert third.context["go_on"] == ""
    assert len({row["ref"] for page in (first, second, third) for row in page.context["rows"]}) == 120


def test_a_dead_letter_that_is_gone_leads_back_to_the_list(operator):
    entries = ("1-1", "nonsense", "+", "99999999999999999999999-1")
    assert {operator.get(f"{BASE}emails/message/dead/{entry}/").url for entry in entries} == {DEAD}


def test_nothing_chosen_is_nothing_done(operator):
    bury("emails")

    assert operator.post(CHOSEN, {"action": "delete", "confirmed": "yes"}).url == DEAD
    assert operator.post(CHOSEN, {"action": "explode", "confirmed": "yes"}).status_code == 400
    assert numbers() == (0, 1)


def test_long_data_is_left_out_of_the_list_and_shown_on_its_page(operator):
    bury("emails", "welcome", {"text": "x" * 50_000})

    assert "long: 49 KiB" in operator.get(DEAD).content.decode()
    assert "x" * 50_000 in operator.get(f"{BASE}emails/message/dead/{dead_entry('emails')}/").content.decode()
