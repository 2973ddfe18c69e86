"""`manage.py mq line`, and what `mq status --limits` says about order, turns and the keys with the most messages."""

import pytest
from django.core.management import CommandError

from mq_django.core.limits import key_hash
from mq_django.core.messages import Bury, Retry
from mq_django.inspector import dead_letters, key_lines
from mq_django.stores.base import Settlement
from tests.inspector.test_key_lines import fill, opened, take
from tests.management.test_mq import mq, mq_json
from tests.seeding import CONSUMER, publish

__all__ = ["opened"]


@pytest.fixture
def store(opened):
    return opened(ORDERED=True, ON_DEAD_LETTER="hold")


def settle(store, outcome, **more):
    assert store.settle(CONSUMER, [Settlement(item, outcome, **more) for item in take(store)]) == []


def test_it_shows_what_is_parked_and_where_the_message_is_that_this_waits_for(store):
    first, second, third = fill()
    settle(store, Retry(), delay_ms=3_600_000)
    shown = mq("line", "emails", "a").splitlines()
    assert shown[0].startswith(
        f"The parked messages wait for message {first} of the same key, which is tried again in "
    )
    assert [line.split()[0] for line in shown[2:9] if line] == ["id", first, "id", second, third, "2"]
    found = mq_json("line", "emails", "a")
    assert (found["key"], found["ordered"], found["parked"], found["tokens"]) == ("a", True, 2, 1)
    assert [message["id"] for message in found["first"]] == [second, third]
    (head,) = found["heads"]
    assert (head["id"], head["state"], head["attempt"], head["consumer"]) == (first, "delayed", 2, None)
    assert head["due"] > found["first"][0]["published"]


def test_a_key_without_messages_has_an_empty_line(store):
    assert mq("line", "emails", "nobody") == "0 parked\n"


def test_the_messages_without_a_key_have_a_line_with_fair(opened):
    store = opened(FAIR=True)
    ids = [publish("emails", "sms", n) for n in range(3)]
    take(store, 1)
    found = mq_json("line", "emails")
    assert (found["key"], [message["id"] for message in found["first"]]) == (None, ids[1:])


def test_a_queue_without_lines_is_an_error(mq_settings):
    mq_settings(QUEUES={"emails": {}})
    with pytest.raises(CommandError, match="has no lines"):
        mq("line", "emails", "a")


def test_what_others_have_written_does_not_reach_the_terminal(store, redis_client):
    keys = store.keys
    redis_client.zadd(keys.parked, {"p:1": key_hash("a")})
    redis_client.hset(keys.waiting, "p:1", b"4:type,4:\x1b[2J,")
    assert "\x1b" not in mq("line", "emails", "a")


def test_a_head_that_waits_is_skipped_after_confirmation(store):
    first, second, _ = fill()
    settle(store, Retry(), delay_ms=3_600_000)
    with pytest.raises(CommandError, match=rf"before message {first}, which is then out of order. Confirm with --yes."):
        mq("line", "emails", "a", "--skip")
    assert take(store) == []
    said = mq("line", "emails", "a", "--skip", "--yes")
    assert said == f"skipped message {first}: it stays where it is (delayed), and is out of order from now on\n"
    assert [item.message.id for item in take(store)] == [second]


def test_a_head_that_runs_is_not_skipped(store):
    fill()
    take(store)
    with pytest.raises(
        CommandError, match=r"It cannot be skipped. The next messages wait for message .* consumer c-seeded"
    ):
        mq("line", "emails", "a", "--skip", "--yes")


@pytest.mark.parametrize("option", ["--skip", "--redrive"])
def test_without_a_head_there_is_nothing_to_do(store, option):
    with pytest.raises(CommandError, match=r"Nothing holds up this key: it has no message that the others wait for."):
        mq("line", "emails", "a", option, "--yes")


def test_without_order_nothing_is_skipped(opened):
    store = opened(CONCURRENCY={"key": 1})
    fill()
    take(store)
    with pytest.raises(CommandError, match="it is in a queue without ORDERED"):
        mq("line", "emails", "a", "--skip", "--yes")


def test_what_has_changed_meanwhile_is_said(store, monkeypatch):
    first, *_ = fill()
    settle(store, Retry(), delay_ms=3_600_000)
    line = key_lines.key_line("emails", "a")
    assert store.cancel(first)
    monkeypatch.setattr(key_lines, "key_line", lambda queue, key: line)
    with pytest.raises(CommandError, match="the line has changed meanwhile: the key waits for no message"):
        mq("line", "emails", "a", "--skip", "--yes")
    take(store)
    with pytest.raises(CommandError, match=r"the next messages wait for message .*, which consumer c-seeded holds"):
        mq("line", "emails", "a", "--skip", "--yes")


def test_the_dead_letter_that_holds_the_key_is_redriven_in_place(store):
    first, *_ = fill()
    settle(store, Bury("no", reason="attempts"))
    with pytest.raises(CommandError, match=rf"dead letter {first}, before the other messages of its key. Confirm"):
        mq("line", "emails", "a", "--redrive")
    assert mq("line", "emails", "a", "--redrive", "--yes") == "1 redriven\n"
    assert [item.message.id for item in take(store)] == [first]
    assert dead_letters.find("emails", first) is None


def test_only_a_dead_letter_is_redriven(store):
    fill()
    settle(store, Retry(), delay_ms=3_600_000)
    with pytest.raises(CommandError, match=r"There is no dead letter to redrive. The next messages wait for message"):
        mq("line", "emails", "a", "--redrive", "--yes")


def test_one_of_both(store):
    with pytest.raises(CommandError, match="not allowed with argument --skip"):
        mq("line", "emails", "a", "--skip", "--redrive")


def test_limits_shows_order(store):
    assert mq_json("status", "--limits", "emails")[0]["limits"] == [
        {"limit": "one message of each key at a time, in order", "most": 1, "window_s": None, "used": None}
    ]


def test_limits_shows_turns_and_the_keys_with_the_most_messages(opened):
    store = opened(FAIR={"big": 5}, CONCURRENCY={"key": 1})
    for n in range(27):
        publish("emails", "sms", n, key="a" if n % 9 else "b")
    take(store, 2)
    (found,) = mq_json("status", "--limits", "emails")
    assert [limit["limit"] for limit in found["limits"]] == ["concurrency of each key", "keys take turns (big: 5)"]
    assert found["noisy"][0] == {"key": "a", "share": 0.92}
    assert "emails: key a has about 92 % of the parked messages." in mq("status", "--limits")
