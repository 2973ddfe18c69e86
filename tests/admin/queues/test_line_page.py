"""The page of a key's line, and the buttons that let the key go on."""

import json

import pytest
from django.contrib.admin.models import LogEntry

from mq_django.admin.ui import live
from mq_django.admin.ui.text import to_url
from mq_django.core import clock
from mq_django.core.limits import key_hash
from mq_django.core.messages import ACK, Bury, Retry, SetAside
from mq_django.inspector import dead_letters
from mq_django.stores.base import Settlement
from mq_django.stores.line_store import NO_KEY
from tests.admin.conftest import BASE
from tests.admin.pages import YES, main_of
from tests.inspector.test_key_lines import LINE, fill, opened, take
from tests.seeding import CONSUMER, publish

__all__ = ["opened"]

pytestmark = pytest.mark.django_db

PAGE = f"{BASE}emails/line/{LINE}/"
STATS = f"{PAGE}stats.json"


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """No answer to a poll is that to the one before."""
    monkeypatch.setattr(live, "SHARED_FOR", 0.0)


@pytest.fixture
def store(opened):
    return opened(ORDERED=True, ON_DEAD_LETTER="hold")


def settle(store, outcome, **more):
    assert store.settle(CONSUMER, [Settlement(item, outcome, **more) for item in take(store)]) == []


def delay(store):
    settle(store, Retry(), delay_ms=3_600_000)


def poll(client, have=None):
    return client.get(STATS, headers={live.HAVE: json.dumps(have or {})}).json()


def press(client, what, message_id, **more):
    return client.post(f"{PAGE}{what}/", {"message": to_url(message_id.encode()), **more}, follow=True)


def test_it_shows_what_is_parked_and_what_that_waits_for(operator, store):
    first, second, third = fill()
    delay(store)
    page = operator.get(PAGE)
    assert [row["name"] for row in page.context["rows"]] == ["<bdi>sms</bdi>"] * 2
    for row, message_id in zip(page.context["rows"], (second, third), strict=True):
        assert message_id in row["id"]
        assert message_id in main_of(operator.get(row["url"]))
    (head,) = page.context["heads"]
    assert (head["state"], head["attempt"]) == ("delayed", "2")
    assert first in main_of(operator.get(head["url"]))
    assert f"The next messages wait for message {first} of the same key, which is tried again in" in main_of(page)
    assert "<bdi>a</bdi>" in page.context["key"]


def test_it_renews_itself(operator, store):
    """A poll shows the state of now, and what has not changed is not sent again."""
    first, second, _ = fill()
    delay(store)
    page = operator.get(PAGE)
    assert f'data-mq-live="{STATS}"' in page.content.decode()
    assert "The line waits for a message: delayed." in main_of(page)
    shown = {name: part.version for name, part in page.context["live"].items()}
    store.cancel(first)
    settle(store, Bury("no", reason="attempts"))

    answer = poll(operator, shown)
    assert answer["summary"] == "The line waits for a message: dead letter."
    assert second in answer["parts"]["line_heads"]
    assert "Skip…" in answer["parts"]["line_waits"]
    assert "Redrive in place…" in answer["parts"]["line_waits"]
    assert "csrf" not in json.dumps(answer)
    assert poll(operator, answer["have"])["parts"] == {}


def test_a_poll_gives_viewers_no_buttons_and_no_key(viewer, operator, store):
    for _ in range(2):
        publish("emails", "sms", 1, key="rumpelstiltskin")
    delay(store)
    path = f"{BASE}emails/line/{key_hash('rumpelstiltskin')}/stats.json"
    assert "rumpelstiltskin" in operator.get(path).content.decode()
    seen = viewer.get(path).content.decode()
    assert "rumpelstiltskin" not in seen
    assert "formaction" not in seen


def test_a_head_with_a_consumer_leads_to_its_page(operator, store):
    first, *_ = fill()
    take(store)
    (head,) = operator.get(PAGE).context["heads"]
    assert (head["state"], head["consumer"]) == ("held by a consumer that is gone", f"<bdi>{CONSUMER}</bdi>")
    assert first in main_of(operator.get(head["url"]))


def test_the_keys_of_the_queue_lead_to_their_lines(operator, store):
    fill()
    take(store)
    page = operator.get(f"{BASE}emails/change/")
    assert [(row["label"], row["limit"]) for row in page.context["limits"]] == [
        ("Order", "one message of each key at a time, in order")
    ]
    (row,) = page.context["limit_keys"]
    assert row["url"] == PAGE
    assert f'href="{PAGE}"' in main_of(page)


def test_a_parked_message_leads_to_the_line_of_its_key(operator, opened):
    store = opened(FAIR=True)
    fill(2)
    without_key = publish("emails", "sms", 9)
    other = publish("emails", "sms", 10)
    take(store, 1)
    rows = operator.get(f"{BASE}emails/parked/").context["rows"]
    links = {line for row in rows for line in (LINE, NO_KEY) if f"line/{line}/" in main_of(operator.get(row["url"]))}
    assert links == {LINE, NO_KEY}
    page = operator.get(f"{BASE}emails/line/{NO_KEY}/")
    assert page.context["key"] == "no key"
    assert other in main_of(page) or without_key in main_of(page)


def test_the_queue_shows_turns_and_the_keys_with_the_most_messages(operator, viewer, opened):
    store = opened(FAIR={"big": 5}, CONCURRENCY={"key": 1})
    for n in range(27):
        publish("emails", "sms", n, key="a" if n % 9 else "b")
    take(store, 2)
    page = operator.get(f"{BASE}emails/change/")
    assert {"label": "Turns", "limit": "keys take turns (<bdi>big: 5</bdi>)"} in page.context["limits"]
    assert [row["share"] for row in page.context["keys"]] == [
        "about 92 % of the parked messages",
        "about 8 % of the parked messages",
    ]
    assert [row["key"] for row in viewer.get(f"{BASE}emails/change/").context["keys"]] == ["hidden"] * 2
    assert "keys" in operator.get(f"{BASE}emails/stats.json").json()["parts"]


@pytest.mark.parametrize(("put", "place"), [(delay, "delayed"), (lambda store: settle(store, SetAside()), "unhandled")])
def test_a_head_that_waits_is_skipped_after_confirmation(operator, store, put, place):
    first, second, _ = fill()
    put(store)
    asked = press(operator, "skip", first)
    assert "Let the key go on without this message?" in asked.content.decode()
    assert take(store) == []
    done = press(operator, "skip", first, **YES)
    assert f"The key goes on without message {first}, which is out of order from now on." in done.content.decode()
    assert [item.message.id for item in take(store)] == [second]
    assert getattr(store.depths(), place) == 1
    assert LogEntry.objects.get().change_message == f"Skipped message {first} in the line of its key"


def test_the_dead_letter_that_holds_the_key_is_redriven_in_place(operator, store):
    first, *_ = fill()
    settle(store, Bury("no", reason="attempts"))
    assert "Redrive in place…" in main_of(operator.get(PAGE))
    assert "Redrive this dead letter in place?" in press(operator, "redrive", first).content.decode()
    done = press(operator, "redrive", first, **YES)
    assert "The dead letter was redriven, before the other messages of its key." in done.content.decode()
    assert [item.message.id for item in take(store)] == [first]
    assert dead_letters.find("emails", first) is None
    assert LogEntry.objects.get().change_message == f"Redrove 1 dead letter in place: {first}"


def test_a_dead_letter_says_which_key_it_holds(operator, viewer, store):
    first, *_ = fill()
    settle(store, Bury("no", reason="attempts"))
    letter = f"{BASE}emails/message/dead/{dead_letters.find('emails', first)}/"
    shown = main_of(operator.get(letter))
    assert f'<a href="{PAGE}">Holds the key <bdi>a</bdi>: 2 messages wait.</a>' in shown
    assert "<bdi>a</bdi>" not in main_of(viewer.get(letter))


@pytest.mark.parametrize("what", ["skip", "redrive"])
def test_what_has_changed_meanwhile_is_said(operator, store, what):
    first, *_ = fill()
    settle(store, Bury("no", reason="attempts"))
    dead_letters.redrive("emails", [dead_letters.find("emails", first)])
    changed = press(operator, what, first, **YES).content.decode()
    assert "Nothing was done, because the line has changed meanwhile." in changed
    assert f"The next messages wait for message {first} of the same key, which is ready." in changed
    settle(store, ACK)
    changed = press(operator, what, first, **YES).content.decode()
    assert "Nothing was done, because the line has changed meanwhile. The key waits for no message." in changed
    assert not LogEntry.objects.exists()


def test_another_head_than_the_one_that_was_seen_stays(operator, store):
    first, second, _ = fill()
    delay(store)
    store.cancel(first)
    delay(store)
    assert f"wait for message {second} of the same key" in press(operator, "skip", first, **YES).content.decode()
    assert take(store) == []


def test_a_queue_that_cannot_have_lines_says_so(operator, mq_settings):
    mq_settings(QUEUES={"jobs": {"STORE": "rsmq"}})
    for what in ("get", "post"):
        path = f"{BASE}jobs/line/7/" + ("skip/" if what == "post" else "")
        assert "This queue has no lines of keys." in getattr(operator, what)(path, follow=True).content.decode()


def test_hostile_content_is_shown_and_harmless(operator, store, redis_client):
    nasty = "\"'><script>alert(1)</script>{{ 7 }}"
    for n in range(3):
        fields = {"id": f"{nasty}{n}", "type": nasty, "data": "1", "partitionkey": nasty}
        redis_client.xadd(store.keys.ready, fields)
    settle(store, Bury(nasty, reason=nasty))
    path = f"{BASE}emails/line/{key_hash(nasty)}/"
    for response in (operator.get(path), operator.post(f"{path}skip/", {"message": to_url(f"{nasty}0".encode())})):
        assert response.status_code == 200
        assert "<script>alert" not in response.content.decode()
        assert "&lt;script&gt;alert(1)" in response.content.decode()
    assert press_path(operator, f"{path}skip/", f"{nasty}0").status_code == 200
    assert "<script>alert" not in operator.get(f"{BASE}emails/history/").content.decode()
    assert len(take(store)) == 1


def press_path(client, path, message_id):
    return client.post(path, {"message": to_url(message_id.encode()), **YES}, follow=True)


def test_a_unique_key_is_neither_shown_nor_in_a_form(viewer, log_in, store, redis_client):
    """A message that waits under a unique key is named by its id, and has no name where that is not known."""
    keys = store.keys
    redis_client.zadd(keys.permits, {"m-u:rumpelstiltskin": LINE})
    redis_client.zadd(keys.due, {"u:rumpelstiltskin": clock.now_ms() + 60_000})
    redis_client.hset(keys.waiting, "u:rumpelstiltskin", '{"type":"sms","data":1,"partitionkey":"a"}')
    redis_client.hset(keys.unique, mapping={"u:rumpelstiltskin": "m7"})
    operator = log_in("view_queue", "operate_queue")
    page = operator.get(PAGE)
    assert "rumpelstiltskin" not in page.content.decode()
    assert [head["id"] for head in page.context["heads"]] == ["<bdi>m7</bdi>"]
    assert page.context["heads"][0]["url"] == f"{BASE}emails/message/delayed/m7/"
    redis_client.hdel(keys.unique, "u:rumpelstiltskin")
    assert "rumpelstiltskin" not in operator.get(PAGE).content.decode()
    assert "rumpelstiltskin" not in press(operator, "skip", "…").content.decode()
    assert "out of order from now on" in press(operator, "skip", "…", **YES).content.decode()
    assert "rumpelstiltskin" not in LogEntry.objects.get().change_message


def test_what_is_no_hash_is_no_page(operator, store):
    lines = ("x", "-1", "9" * 30, "%D9%A3")
    assert {operator.get(f"{BASE}emails/line/{line}/").status_code for line in lines} == {404}
