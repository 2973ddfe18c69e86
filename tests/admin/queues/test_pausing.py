"""Pausing one queue or all of them: who, why and since when is shown until it is over."""

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User

from mq_django import inspector, topics
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


def boxes(asked):
    """Return the checkboxes of the question what is resumed: field and value, whether it is selected, and its texts."""
    return {
        (box["name"], box["value"]): (box["is_selected"], box["label"], box["help"]) for box in asked.context["inputs"]
    }


def test_exactly_what_an_action_has_paused_is_resumed_and_other_queues_are_offered(operator, mq_settings):
    numbered = {f"q{number:02}": {} for number in range(13)}
    mq_settings(TOPICS={}, QUEUES={**numbered, "payments": {"PARTITIONS": 4}, "reports": {}})
    theirs = ["q03", "q07"]
    for name in theirs:
        actions.pause(name, who="bob", reason="bad data")
    publish("payments", "charge", 1)
    asked = operator.get(f"{BASE}pause/")
    assert asked.context["title"] == "Pause all 13 queues?"
    name_input, _ = asked.context["inputs"]
    assert name_input["value"].startswith("pause-")

    done = operator.post(f"{BASE}pause/", {**YES, **REASON, "name": "deploy 7"}, follow=True).content.decode()

    assert "13 queues were paused." in done
    assert "2 queues were paused before." in done
    assert LogEntry.objects.count() == 13
    assert {entry.change_message for entry in LogEntry.objects.all()} == {"Paused the queue: <b>deploy</b> (deploy 7)"}
    assert "Action: deploy 7. Reason: &lt;b&gt;deploy" in main_of(operator.get(f"{BASE}payments/change/"))

    asked = operator.get(f"{BASE}resume/")
    found = boxes(asked)
    assert list(found) == [("action", "deploy 7"), *(("queue", name) for name in theirs)]
    assert [is_selected for is_selected, *_ in found.values()] == [True, False, False]
    assert found["action", "deploy 7"][1] == "deploy 7: 13 queues"
    names = ", ".join(view.name for view in inspector.overview() if view.name not in theirs)
    assert found["action", "deploy 7"][2].startswith(f"{names}. 1 message is ready and will be handled. Paused by ")
    assert "Paused by bob at 20" in found["queue", "q03"][2]
    assert found["queue", "q03"][2].endswith("Reason: bad data")
    assert main_of(asked).count("checked") == 1

    done = operator.post(f"{BASE}resume/", {**YES, "action": "deploy 7"}, follow=True).content.decode()

    assert "13 queues were resumed." in done
    assert [view.name for view in inspector.overview() if view.paused] == theirs
    operator.post(f"{BASE}resume/", {**YES, "queue": ["q07"]})
    assert [view.name for view in inspector.overview() if view.paused] == ["q03"]


def test_nothing_is_resumed_that_was_not_selected(operator):
    actions.pause("emails")
    done = operator.post(f"{BASE}resume/", YES, follow=True).content.decode()
    assert "Select what is resumed first." in done
    assert inspector.queue("emails").paused
    operator.post(f"{BASE}resume/", {**YES, "queue": "emails"})
    assert "No queue is paused." in operator.get(f"{BASE}resume/", follow=True).content.decode()


def test_the_action_of_a_colleague_is_neither_continued_nor_selected(operator):
    actions.pause_all(who="bob", name="audit")
    actions.resume("emails")

    refused = operator.post(f"{BASE}pause/", {**YES, "name": "audit"})

    assert refused.status_code == 400
    assert "bob has paused queues by an action of this name" in refused.content.decode()
    assert not inspector.queue("emails").paused
    operator.post(f"{BASE}pause/", {**YES, "name": "deploy"})
    found = boxes(operator.get(f"{BASE}resume/"))
    assert [(value, is_selected) for (_, value), (is_selected, *_) in found.items()] == [
        ("audit", False),
        ("deploy", True),
    ]


def test_a_partition_that_a_colleague_paused_is_not_of_the_action(operator, mq_settings):
    mq_settings(TOPICS={}, QUEUES={"payments": {"PARTITIONS": 3}})
    actions.pause("payments.1", who="bob", reason="bad disk")
    operator.post(f"{BASE}pause/", {**YES, "name": "deploy"})

    assert list(boxes(operator.get(f"{BASE}resume/"))) == [("action", "deploy"), ("queue", "payments.1")]
    done = operator.post(f"{BASE}resume/", {**YES, "action": "deploy"}, follow=True).content.decode()

    assert "1 queue was resumed." in done
    assert [part.name for part in inspector.queue("payments").parts if part.paused] == ["payments.1"]


def test_the_overview_offers_both_to_those_who_may(operator, viewer):
    assert f'href="{BASE}pause/"' in main_of(operator.get(BASE))
    assert f'href="{BASE}pause/"' not in main_of(viewer.get(BASE))


def test_a_paused_queue_and_group_are_marked_in_their_rows(viewer, mq_settings):
    mq_settings(QUEUES={"default": {}, "emails": {}, "payments": {"PARTITIONS": 3}})
    topics["orders"].group("billing").subscribe()
    for name in ("emails", "orders:billing", "payments.0", "payments.1"):
        actions.pause(name)
    response = viewer.get(BASE)
    marks = {row["name"]: row["paused"] for row in (*response.context["rows"], *response.context["topics"][1:])}
    assert {name: mark for name, mark in marks.items() if mark} == {"payments": "2 of 3 paused", "billing": "paused"}
    # Its state says it.
    assert {row["name"]: row["state"] for row in response.context["rows"]}["emails"] == "paused"
    shown = re.findall(r'<th scope="row"><a [^>]*>([^<]*)</a> <span class="mq-quiet">([^<]*paused)<', main_of(response))
    assert dict(shown) == {name: mark for name, mark in marks.items() if mark}
