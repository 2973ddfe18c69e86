"""The page of problems, and what is muted."""

import json

import pytest
from django.utils.html import strip_tags

from mq_django import inspect
from mq_django.admin.problem_pages import advice
from mq_django.conf import get_config
from mq_django.errors import InvalidArguments, NotSupported, UnknownQueue
from mq_django.inspector import actions
from mq_django.inspector.problem_list import KINDS
from mq_django.stores import preferences
from tests.admin.conftest import BASE
from tests.seeding import beat, publish, set_aside

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("mq_settings")]

PAGE, MUTE = f"{BASE}problems/", f"{BASE}problems/mute/?queue=emails&kind=unconsumed"


@pytest.fixture
def troubled(mq_settings):
    publish("emails", "welcome", 1)
    beat("default")
    set_aside("default", "nobody.knows")
    actions.pause("default", who="ada", reason="a deploy")


@pytest.mark.usefixtures("troubled")
def test_problems_stand_by_severity_and_kind_each_with_what_to_do(operator):
    found = operator.get(PAGE).context["severities"]

    assert [(each["name"], [group["kind"] for group in each["kinds"]]) for each in found] == [
        ("critical", ["unconsumed"]),
        ("warning", ["unhandled"]),
        ("notice", ["paused"]),
    ]
    ((first,), _, (paused,)) = (each["kinds"] for each in found)
    assert first["advice"] == advice("unconsumed")
    (row,) = first["rows"]
    assert row["queue"] == "emails"
    assert row["sentence"] == "has 1 message and no running consumer. Is runconsumer started?"
    assert paused["rows"][0]["since"]
    assert all(map(advice, KINDS))


@pytest.mark.usefixtures("troubled")
def test_a_muted_problem_is_counted_nowhere_until_it_is_unmuted(operator, viewer):
    asked = operator.get(MUTE).content.decode()
    assert "emails has 1 message and no running consumer." in asked
    operator.post(MUTE, {"span": "4 h", "reason": "moved", "confirmed": "yes"})

    assert [(problem.queue, problem.kind) for problem in inspect.problems()] == [
        ("default", "unhandled"),
        ("default", "paused"),
    ]
    (muted,) = operator.get(PAGE).context["muted"]
    shown = [strip_tags(muted[name]) for name in ("queue", "who", "reason")]
    assert shown == ["emails", "user0", "moved"]
    for page in (operator.get(BASE), operator.get(f"{BASE}emails/change/")):
        assert "no running consumer" not in page.content.decode()
        assert "1 muted" in page.content.decode()
    history = operator.get(f"{BASE}emails/history/").content.decode()
    assert "Muted unconsumed for 4 h: moved" in history
    unmute = f"{BASE}problems/unmute/?queue=emails&kind=unconsumed"
    assert viewer.post(unmute, {"confirmed": "yes"}).status_code == 403
    operator.post(unmute, {"confirmed": "yes"})
    assert [problem.kind for problem in inspect.problems()] == ["unconsumed", "unhandled", "paused"]


def test_a_muted_problem_of_a_topic_is_left_out(operator, mq_settings, redis_client):
    mq_settings(TOPICS={"alerts": {}})
    redis_client.set(get_config().topic("alerts").keys.log, "text")
    pages = (BASE, PAGE, f"{BASE}alerts/change/")
    assert ["cannot be read" in operator.get(page).content.decode() for page in pages] == [True] * 3

    operator.post(f"{BASE}problems/mute/?queue=alerts&kind=unreadable", {"span": "1 h", "confirmed": "yes"})

    assert operator.get(PAGE).context["severities"] == []
    assert [strip_tags(each["queue"]) for each in operator.get(PAGE).context["muted"]] == ["alerts"]
    for page in (BASE, f"{BASE}alerts/change/"):
        context = operator.get(page).context
        assert (context["problems"], context["muted_problems"]) == ([], "1")


def test_a_mute_is_listed_and_ended_also_while_there_is_no_problem(operator):
    beat("emails")
    inspect.mute("emails", "unconsumed", seconds=7 * 86400)
    (row,) = operator.get(PAGE).context["muted"]
    assert (strip_tags(row["queue"]), row["sentence"], row["who"], row["reason"]) == ("emails", "unconsumed", "", "")
    assert "emails unconsumed" in operator.get(row["mute_url"]).content.decode()
    operator.post(row["mute_url"], {"confirmed": "yes"})
    assert inspect.mutes() == {}


def test_a_mute_is_of_all_problems_of_a_kind_and_its_question_shows_them(operator, redis_client):
    keys = get_config().queue("emails").keys
    redis_client.hset(keys.runtime_schedules, mapping={"definition:one": "{}", "definition:two": "{}"})
    url = f"{BASE}problems/mute/?queue=emails&kind=schedule"
    asked = operator.get(url).context["sentence"]
    assert "fire: one." in asked
    assert "fire: two." in asked


def test_a_mute_ends_with_its_time(redis_client, namespace):
    publish("emails", "welcome", 1)
    inspect.mute("emails", "unconsumed", seconds=60, who="ada")
    assert inspect.problems() == []
    ((field, value),) = redis_client.hgetall(f"{namespace}:muted").items()
    redis_client.hset(f"{namespace}:muted", field, json.dumps({**json.loads(value), "until": 1}))
    assert [problem.kind for problem in inspect.problems()] == ["unconsumed"]
    inspect.mute("default", "late", seconds=60)
    assert list(redis_client.hgetall(f"{namespace}:muted")) == [b"late|default"]


def test_what_cannot_be_muted_is_an_error_and_nothing_is_written(redis_client, namespace, monkeypatch):
    with pytest.raises(UnknownQueue):
        inspect.mute("nowhere", "late", seconds=60)
    with pytest.raises(InvalidArguments):
        inspect.mute("emails", "tired", seconds=60)
    with pytest.raises(InvalidArguments):
        inspect.mute("emails", "late", seconds=0)
    monkeypatch.setattr(preferences, "MAX_MUTES", 0)
    with pytest.raises(NotSupported):
        inspect.mute("emails", "late", seconds=60)
    assert not redis_client.exists(f"{namespace}:muted")


def test_the_page_is_there_while_mutes_cannot_be_read(operator, redis_client, namespace):
    redis_client.set(f"{namespace}:muted", "of another program")
    publish("emails", "welcome", 1)

    for address in (PAGE, f"{BASE}problems.json", BASE):
        assert operator.get(address).status_code == 200
    assert [problem.kind for problem in inspect.problems()] == ["unconsumed"]
