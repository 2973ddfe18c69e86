"""Pausing one queue or all of them: who, why and since when is shown until it is over."""

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User

from mq_django import inspector
from mq_django.inspector import actions
from tests.admin.conftest import BASE
from tests.admin.pages import YES, main_of
from tests.seeding import beat, publish

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]

REASON = {"reason": "<b>deploy</b>"}


def test_a_paused_queue_says_who_paused_it_why_and_since_when(operator):
    publish("emails", "welcome", 1)
    beat("emails")
    assert 'name="reason"' in main_of(operator.post(f"{BASE}emails/pause/"))

    operator.post(f"{BASE}emails/pause/", {**YES, **REASON})

    who = User.objects.get().get_username()
    said = f"is paused. Paused by {who} at 20"
    for page in (BASE, f"{BASE}emails/change/"):
        found = main_of(operator.get(page))
        assert said in found
        assert "Reason: &lt;b&gt;deploy&lt;/b&gt;" in found
    (row,) = operator.get(f"{BASE}emails/ready/").context["rows"]
    assert said in main_of(operator.get(row["url"]))
    assert LogEntry.objects.get().change_message == "Paused the queue: <b>deploy</b>"


def test_all_queues_are_paused_after_a_confirmation_that_names_them(operator):
    actions.pause("default", who="bob", reason="earlier")
    others = {view.name for view in inspector.overview()} - {"default"}
    asked = main_of(operator.get(f"{BASE}pause/"))
    assert "<code><bdi>emails" in asked
    assert "<code><bdi>default" not in asked
    assert not inspector.queue("emails").paused

    response = operator.post(f"{BASE}pause/", {**YES, **REASON}, follow=True)

    assert f"{len(others)} queues were paused." in response.content.decode()
    assert {view.name: view.pause.reason for view in inspector.overview()} == {
        "default": "earlier",
        **dict.fromkeys(others, "<b>deploy</b>"),
    }
    assert {entry.object_id for entry in LogEntry.objects.all()} == others
    assert "All queues are paused." in operator.get(f"{BASE}pause/", follow=True).content.decode()


def test_all_are_resumed_after_a_confirmation_that_says_why_each_was_paused(operator):
    actions.pause("default", who="bob", reason="earlier")
    actions.pause("emails")
    asked = main_of(operator.get(f"{BASE}resume/"))
    assert "default: Paused by bob at 20" in asked
    assert "Reason: earlier" in asked

    response = operator.post(f"{BASE}resume/", YES, follow=True)

    assert "2 queues were resumed." in response.content.decode()
    assert not any(view.paused for view in inspector.overview())
    assert "No queue is paused." in operator.get(f"{BASE}resume/", follow=True).content.decode()


def test_the_overview_offers_both_to_those_who_may(operator, viewer):
    assert f'href="{BASE}pause/"' in main_of(operator.get(BASE))
    assert f'href="{BASE}pause/"' not in main_of(viewer.get(BASE))
