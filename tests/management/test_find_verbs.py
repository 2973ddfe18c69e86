"""`manage.py mq why`, `show`, `resubmit` and `delete`: one message."""

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from mq_django import inspector
from mq_django.conf import get_config
from mq_django.core.outcomes import Bury, Expire
from mq_django.stores import open_members
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.management.test_mq import mq, mq_json
from tests.seeding import CONSUMER, beat, bury, bury_many, handle, publish, settle, take

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("mq_settings")]


def test_why_names_the_cause():
    message_id = publish("emails", "welcome", 1)
    assert mq("why", "emails", message_id) == "No consumer of this queue is running. Is runconsumer started?\n"
    beat("emails")
    assert mq_json("why", "emails", message_id) == {
        "place": "ready",
        "id": message_id,
        "kind": "next",
        "sentence": "Ready: the next free thread will take it.",
    }
    mq("pause", "emails", "--reason", "deploy")
    assert mq("why", "emails", message_id).startswith("The queue is paused. Paused by ")


def test_why_knows_waiting_dead_and_expired_messages():
    delayed = publish("emails", "welcome", 1, delay=60, unique="cart:7")
    found = mq_json("why", "emails", "u:cart:7")
    assert (found["kind"], found["place"]) == ("delayed", "delayed")
    assert 0 < found["ms"] <= 60_000
    assert mq_json("why", "emails", delayed)["kind"] == "delayed"
    dead = bury("emails", "welcome", 1)
    said = "It is a dead letter: out of attempts. Error: ValueError: no\n"
    assert mq("why", "emails", dead) == said
    expired = publish("emails", "welcome", 1)
    settle("emails", take("emails", 1), Expire())
    assert mq_json("why", "emails", expired)["kind"] == "expired"
    with pytest.raises(CommandError, match="has no message nope"):
        mq("why", "emails", "nope")


def test_an_argument_that_is_no_text_is_refused(subtests):
    for odd in ("\udcff", "u:\udcff"):
        for verb in ("find", "why", "show", "cancel"):
            for where in ([], ["emails"]):
                with subtests.test(verb=verb, where=where, odd=odd):
                    with pytest.raises(CommandError) as caught:
                        mq(verb, *where, odd)
                    assert "\udcff" not in str(caught.value)


def test_find_and_why_know_messages_that_were_replaced(redis_client):
    replaced = publish("emails", "welcome", 1, delay=60, unique="cart:7")
    publish("emails", "welcome", 2, delay=60, unique="cart:7", on_conflict="replace")
    found = mq_json("find", "emails", replaced)
    assert (found["place"], found["id"]) == ("replaced", replaced)
    assert found["at"].endswith("Z")
    why = mq_json("why", "emails", replaced)
    assert (why["place"], why["kind"]) == ("replaced", "replaced")
    assert why["sentence"] == f"It was replaced at {found['at']} by another message with its unique key."
    assert mq_json("show", "emails", replaced) == found
    redis_client.zincrby(get_config().queue("emails").keys.replaced, -86_400_000, replaced)
    with pytest.raises(CommandError, match=f"has no message {replaced}: it was handled, cancelled, replaced"):
        mq("find", "emails", replaced)


def test_show_has_all_attributes_with_secrets_replaced():
    message_id = publish("emails", "welcome", {"n": 1, "password": "hunter2"}, key="user:7", headers={"tenant": "acme"})
    row = mq_json("show", "emails", message_id)
    assert (row["place"], row["key"], row["headers"]) == ("ready", "user:7", {"tenant": "acme"})
    assert row["data"] == {"n": 1, "password": "[redacted]"}
    text = mq("show", "emails", message_id)
    assert '  "password": "[redacted]"' in text.splitlines()
    assert "hunter2" not in text


def test_show_has_the_traceback_of_a_dead_letter():
    message_id = bury("emails", "welcome", {"text": "\x1b[2J"}, error="ValueError: \x1b[31mno")
    row = mq_json("show", "emails", message_id)
    assert (row["place"], row["reason"]) == ("dead", "attempts")
    text = mq("show", "emails", message_id)
    assert "Traceback ..." in text
    assert "\x1b" not in text


def test_a_dead_letter_is_resubmitted_with_other_data():
    message_id = bury("emails", "welcome", {"n": 1, "password": "hunter2"})
    made = mq_json("resubmit", "emails", message_id, '{"n": 2, "password": "[redacted]"}')["id"]
    assert inspector.queue("emails").dead == 0
    (delivery,) = take("emails", 1)
    assert (delivery.message.id, delivery.message.data) == (made, {"n": 2, "password": "hunter2"})
    with pytest.raises(CommandError, match="has no dead letter"):
        mq("resubmit", "emails", message_id, "1")


def test_data_that_is_not_json_is_a_wrong_argument():
    message_id = bury("emails", "welcome", 1)
    with pytest.raises(CommandError, match="The data is not JSON") as raised:
        mq("resubmit", "emails", message_id, "{")
    assert raised.value.returncode == 2
    assert inspector.queue("emails").dead == 1


def test_dead_letters_are_deleted_by_their_ids():
    first, second, _ = bury_many("emails", 3)
    with pytest.raises(CommandError, match=r"deletes 2 dead letters\. Confirm with --yes"):
        mq("delete", "emails", first, second)
    assert mq("delete", "emails", first, second, "--yes") == "2 deleted\n"
    with pytest.raises(CommandError, match="1 of 1 ids were not found"):
        mq("delete", "emails", first, "--yes")
    assert inspector.queue("emails").dead == 1


def test_find_and_show_tell_what_the_handler_has_reported(redis_client):
    message_id = publish("emails", "welcome", 1)
    take("emails", 1)
    assert "progress" not in mq_json("find", "emails", message_id)
    key = get_config().queue("emails").keys.progress(message_id)
    redis_client.hset(
        key, "progress", '{"done":30,"total":120,"note":"cups\u202e password=hunter2","attempt":2,"at":0}'
    )
    found = mq_json("find", "emails", message_id)["progress"]
    assert (found["done"], found["total"], found["attempt"]) == (30, 120, 2)
    shown = mq("show", "emails", message_id)
    assert "30 of 120, 25 %: cups<U+202E>" in shown
    assert "hunter2" not in shown
    assert "30 of 120, 25 %" in mq("find", "emails", message_id)


def test_consumers_tells_the_progress_of_what_they_handle(redis_client):
    publish("emails", "welcome", 1, message_id="m1")
    (delivery,) = take("emails", 1)
    config = get_config().queue("emails")
    redis_client.hset(config.keys.progress("m1"), "progress", '{"done":3}')
    running = [[delivery.stream, delivery.entry.decode(), 1000]]
    open_members(config, Pooled(get_client("chores"))).beat("s1", {}, {CONSUMER: {"running": running}})
    (row,) = mq_json("consumers")
    assert row["running"][0]["progress"]["done"] == 3
    (line,) = [line for line in mq("consumers").splitlines() if "welcome" in line]
    assert line.split()[-1] == "3"


def test_find_without_a_queue_searches_all():
    ready = publish("emails", "welcome", 1)
    delayed = publish("default", "welcome", {"n": 1}, delay=60, unique="cart:7")
    handle("emails", "welcome", {"n": 2}, message_id="done")
    for asked in (delayed, "u:cart:7"):
        found = mq_json("find", asked)
        assert [(row["queue"], row["place"], row["id"]) for row in found["found"]] == [("default", "delayed", delayed)]
        assert (found["not_searched"], found["errors"]) == ([], {})
    (row,) = mq_json("find", "done")["found"]
    assert (row["queue"], row["place"], row["ending"], row["data"]) == ("emails", "handled", "handled", {"n": 2})
    assert publish("emails", "welcome", 3) != ready
    assert mq("find", delayed).splitlines()[0].split()[:2] == ["queue", "place"]
    with pytest.raises(
        CommandError, match="No queue has a message nope: it was handled, cancelled, replaced or purged"
    ):
        mq("find", "nope")


def test_find_says_what_it_had_no_time_to_search(monkeypatch):
    publish("emails", "welcome", 1)
    monkeypatch.setattr("mq_django.management.find_verbs.SECONDS", 0.0)
    with pytest.raises(CommandError, match=r"Not all ready and pending messages were searched in 0 s: emails\."):
        mq("find", "nope")


def test_why_and_show_find_the_queue_themselves():
    message_id = publish("emails", "welcome", {"n": 1}, delay=60)
    assert mq_json("why", message_id)["kind"] == "delayed"
    assert mq_json("show", message_id)["data"] == {"n": 1}
    for queue in ("default", "emails"):
        publish(queue, "welcome", 1, delay=60, message_id="same")
    with pytest.raises(CommandError, match=r"Name the queue of message same\. It is in default \(delayed\), emails"):
        mq("why", "same")


def test_options_may_stand_between_the_queue_and_the_id():
    message_id = publish("emails", "welcome", 1, delay=60)
    assert json.loads(mq("find", "emails", "--json", message_id)) == mq_json("find", "emails", message_id)
    with pytest.raises(CommandError, match="required: id"):
        mq("find")


def test_find_why_and_show_know_what_was_handled():
    message_id = handle("emails", "welcome", {"n": 1, "password": "hunter2"}, key="user:7", message_id="done")
    found = mq_json("find", "emails", message_id)
    assert (found["place"], found["ending"], found["seconds"]) == ("handled", "handled", 0.0015)
    assert mq("why", "emails", message_id) == f"It was handled at {found['at']}.\n"
    shown = mq_json("show", "emails", message_id)
    assert (shown["finished"], shown["key"], shown["ending"]) == (found["at"], "user:7", "handled")
    assert shown["data"] == {"n": 1, "password": "[redacted]"}
    handle("emails", "welcome", message_id="buried", outcome=Bury("no"))
    assert mq_json("find", "emails", "buried")["place"] == "dead"
    mq("delete", "emails", "buried", "--yes")
    assert mq("why", "emails", "buried").startswith("It became a dead letter at ")


def test_peek_and_export_show_the_history_newest_first():
    for number in range(3):
        handle("emails", "welcome", number, message_id=f"m{number}")
    assert [row["id"] for row in mq_json("peek", "emails", "handled")] == ["m2", "m1", "m0"]
    out, err = StringIO(), StringIO()
    call_command("mq", "peek", "emails", "handled", "--limit", "2", stdout=out, stderr=err)
    after = err.getvalue().split("--after ")[1].strip()
    assert [row["id"] for row in mq_json("peek", "emails", "handled", "--after", after)] == ["m0"]
    rows = [json.loads(line) for line in mq("export", "emails", "handled", "--name", "welc").splitlines()]
    assert [(row["id"], row["data"], row["ending"]) for row in rows] == [
        *(("m2", 2, "handled"), ("m1", 1, "handled"), ("m0", 0, "handled")),
    ]
    assert rows[0]["finished_ms"] >= rows[0]["published_ms"]
