"""Limits that are changed by a form, shown on the page of the queue, and undone from the activity."""

import pytest
from django.contrib.admin.models import LogEntry

from mq_django import inspect
from tests.admin.conftest import BASE
from tests.admin.pages import YES, main_of

pytestmark = pytest.mark.django_db

AS_SEEN = dict.fromkeys(("rate", "concurrency", "key_rate"), "settings")
SEEN = {f"seen_{name}": value for name, value in AS_SEEN.items()}
QUEUE, FORM = f"{BASE}emails/change/", f"{BASE}emails/limits/"


@pytest.fixture(autouse=True, params=[{}, {"PARTITIONS": 2}], ids=["plain", "partitions"])
def _limited(request, mq_settings):
    limits = {"RATE_LIMIT": {"queue": "100/s", "key": "3/m"}, "CONCURRENCY": 5}
    mq_settings(QUEUES={"emails": {**limits, **request.param}, "plain": {}})


def values():
    return {change.limit: change.value for change in inspect.limit_changes("emails")}


def test_limits_are_changed_and_changed_back(operator):
    assert "Change limits…" in main_of(operator.get(QUEUE))
    form = main_of(operator.get(FORM))
    assert "In the settings: 100/s. Or “settings”: as there, or “none”: no limit." in form

    given = {**SEEN, "rate": "10/s", "concurrency": "none", "key_rate": "settings", "reason": "<b>they asked", **YES}
    assert operator.post(FORM, given).url == QUEUE

    assert values() == {"rate": "10/s", "concurrency": "none"}
    page = main_of(operator.get(QUEUE))
    assert "Rate of the queue: 10/s instead of 100/s. Since " in page
    assert "Reason: &lt;b&gt;they asked" in page
    assert "no limit instead of 5" in page
    assert LogEntry.objects.get().change_message.startswith("Changed limits: rate 10/s, concurrency none: <b>they")
    shown = {name: value for name, value in operator.get(FORM).context["fields"] if name.startswith("seen_")}
    assert shown == {"seen_rate": "10/s", "seen_concurrency": "none", "seen_key_rate": "settings"}

    operator.post(FORM, {**shown, "rate": "", "concurrency": "none", "key_rate": "settings", **YES})
    assert values() == {"concurrency": "none"}


def test_what_the_user_has_not_changed_stays(operator):
    inspect.set_limits("emails", rate="10/s", who="ann")
    operator.post(FORM, {**SEEN, **AS_SEEN, "concurrency": "2", **YES})
    assert values() == {"rate": "10/s", "concurrency": "2"}
    said = operator.post(FORM, {**SEEN, **AS_SEEN, **YES}, follow=True).content.decode()
    assert "No limit was changed." in said


def test_wrong_limits_are_asked_for_again(operator):
    answer = operator.post(FORM, {**SEEN, **AS_SEEN, "rate": "fast", "reason": "they asked", **YES})
    assert "A rate is such as 10/s" in answer.content.decode()
    assert 'value="fast"' in main_of(answer)
    assert 'value="they asked"' in main_of(answer)
    assert values() == {}


def test_a_queue_without_limits_has_no_form(operator):
    said = operator.get(f"{BASE}plain/limits/", follow=True).content.decode()
    assert "The settings give this queue no limit that could be changed." in said


def test_who_may_not_operate_sees_only_what_was_changed(viewer):
    inspect.set_limits("emails", rate="10/s", who="ann")
    page = main_of(viewer.get(QUEUE))
    assert "10/s instead of 100/s" in page
    assert "Change limits…" not in page
    assert viewer.get(FORM).status_code == 403


def test_a_change_is_undone_from_the_activity(operator):
    inspect.set_limits("emails", rate="20/s", who="ann")
    inspect.set_limits("emails", rate="10/s", concurrency=1, who="bob")
    (latest, first) = operator.get(f"{BASE}activity/").context["rows"]
    assert first["undo"] is None

    form = operator.get(latest["undo"]["url"])
    given = {each["name"]: each["value"] for each in form.context["inputs"]} | dict(form.context["fields"])
    operator.post(FORM, given)

    assert values() == {"rate": "20/s"}
    said = operator.get(latest["undo"]["url"], follow=True).content.decode()
    assert "These limits were changed anew since." in said
