"""`manage.py mq find`, `redrive --data` and `purge`: one message."""

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from mq_django import inspector
from mq_django.conf import get_config
from mq_django.core.messages import Bury, Expire
from mq_django.stores import open_members
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.management.test_mq import find_one, mq, mq_json
from tests.seeding import CONSUMER, beat, bury, bury_many, handle, publish, settle, take

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("mq_settings")]


def why(message_id):
    return find_one("emails", message_id)["why"]


def test_why_names_the_cause():
    message_id = publish("emails", "welcome", 1)
    assert why(message_id)["sentence"] == "No consumer of this queue is running. Is runconsumer started?"
    beat("emails")
    assert why(message_id) == {"kind": "next", "sentence": "Ready: the next free thread will take it."}
    assert "Ready: the next free thread will take it." in mq("find", "emails", message_id)
    mq("pause", "emails", "--reason", "deploy")
    assert why(message_id)["sentence"].startswith("The queue is paused. Paused by ")


def test_why_knows_waiting_dead_and_expired_messages():
    delayed = publish("emails", "welcome", 1, delay=60, unique="cart:7")
    found = why("u:cart:7")
    assert found["kind"] == "delayed"
    assert 0 < found["ms"] <= 60_000
    assert why(delayed)["kind"] == "delayed"
    dead = bury("emails", "welcome", 1)
    assert why(dead)["sentence"] == "It is a dead letter: out of attempts. Error: ValueError: no"
    expired = publish("emails", "welcome", 1)
    settle("emails", take("emails", 1), Expire())
    assert why(expired)["kind"] == "expired"


def test_an_argument_that_is_no_text_is_refused(subtests):
    for odd in ("\udcff", "u:\udcff"):
        for verb in ("find", "redrive", "purge"):
            for where in ([], ["emails"]):
                with subtests.test(verb=verb, where=where, odd=odd):
                    with pytest.raises(CommandError) as caught:
                        mq(verb, *where, odd)
                    assert "\udcff" not in str(caught.value)


def test_find_knows_messages_that_were_replaced(redis_client):
    replaced = publish("emails", "welcome", 1, delay=60, unique="cart:7")
    publish("emails", "welcome", 2, delay=60, unique="cart:7", on_conflict="replace")
    found = find_one("emails", replaced)
    assert (found["state"], found["id"]) == ("replaced", replaced)
    assert found["at"].endswith("Z")
    said = f"It was replaced at {found['at']} by another message with its unique key."
    assert found["why"] == {"kind": "replaced", "sentence": said}
    redis_client.zincrby(get_config().queue("emails").keys.replaced, -86_400_000, replaced)
    with pytest.raises(CommandError, match=f"has no message {replaced}: it was handled, cancelled, replaced"):
        mq("find", "emails", replaced)


def test_show_has_all_attributes_with_secrets_replaced():
    message_id = publish("emails", "welcome", {"n": 1, "password": "hunter2"}, key="user:7", headers={"tenant": "acme"})
    row = find_one("emails", message_id)
    assert (row["state"], row["key"], row["headers"]) == ("ready", "user:7", {"tenant": "acme"})
    assert row["data"] == {"n": 1, "password": "[redacted]"}
    text = mq("find", "emails", message_id)
    assert '  "password": "[redacted]"' in text.splitlines()
    assert "hunter2" not in text


def test_show_has_the_traceback_of_a_dead_letter():
    message_id = bury("emails", "welcome", {"text": "\x1b[2J"}, error="ValueError: \x1b[31mno")
    row = find_one("emails", message_id)
    assert (row["state"], row["reason"]) == ("dead", "attempts")
    text = mq("find", "emails", message_id)
    assert "Traceback ..." in text
    assert "\x1b" not in text


def test_a_dead_letter_is_resubmitted_with_other_data():
    message_id = bury("emails", "welcome", {"n": 1, "password": "hunter2"})
    made = mq_json("redrive", "emails", message_id, "--data", '{"n": 2, "password": "[redacted]"}')["id"]
    assert inspector.queue("emails").dead == 0
    (delivery,) = take("emails", 1)
    assert (delivery.message.id, delivery.message.data) == (made, {"n": 2, "password": "hunter2"})
    with pytest.raises(CommandError, match="has no dead letter"):
        mq("redrive", "emails", message_id, "--data", "1")


def test_data_that_is_not_json_is_a_wrong_argument():
    message_id = bury("emails", "welcome", 1)
    with pytest.raises(CommandError, match="The data is not JSON") as raised:
        mq("redrive", "emails", message_id, "--data", "{")
    assert raised.value.returncode == 2
    assert inspector.queue("emails").dead == 1


def test_dead_letters_are_deleted_by_their_ids():
    first, second, _ = bury_many("emails", 3)
    with pytest.raises(CommandError, match=r"deletes 2 dead letters\. Confirm with --yes"):
        mq("purge", "emails", first, second, "--state", "dead")
    assert mq("purge", "emails", first, second, "--state", "dead", "--yes") == "2 deleted\n"
    with pytest.raises(CommandError, match="1 of 1 ids were not found"):
        mq("purge", "emails", first, "--state", "dead", "--yes")
    assert inspector.queue("emails").dead == 1


def test_find_tells_what_the_handler_has_reported(redis_client):
    message_id = publish("emails", "welcome", 1)
    take("emails", 1)
    assert "progress" not in find_one("emails", message_id)
    key = get_config().queue("emails").keys.progress(message_id)
    redis_client.hset(
        key, "progress", '{"done":30,"total":120,"note":"cups\u202e password=hunter2","attempt":2,"at":0}'
    )
    found = find_one("emails", message_id)["progress"]
    assert (found["done"], found["total"], found["attempt"]) == (30, 120, 2)
    shown = mq("find", "emails", message_id)
    assert "30 of 120, 25 %: cups<U+202E>" in shown
    assert "hunter2" not in shown


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
        assert [(row["queue"], row["state"], row["id"]) for row in found["found"]] == [("default", "delayed", delayed)]
        assert (found["not_searched"], found["errors"]) == ([], {})
    (row,) = mq_json("find", "done")["found"]
    assert (row["queue"], row["state"], row["ending"], row["data"]) == ("emails", "handled", "handled", {"n": 2})
    assert publish("emails", "welcome", 3) != ready
    assert [line.split() for line in mq("find", delayed).splitlines()[:2]] == [
        ["queue", "default"],
        ["state", "delayed"],
    ]
    with pytest.raises(
        CommandError, match="No queue has a message nope: it was handled, cancelled, replaced or purged"
    ):
        mq("find", "nope")


def test_find_says_what_it_had_no_time_to_search(monkeypatch):
    publish("emails", "welcome", 1)
    monkeypatch.setattr("mq_django.management.message_verbs.SECONDS", 0.0)
    with pytest.raises(CommandError, match=r"Not all ready and pending messages were searched in 0 s: emails\."):
        mq("find", "nope")


def test_a_message_that_several_queues_have_is_shown_for_each():
    message_id = publish("emails", "welcome", {"n": 1}, delay=60)
    found = find_one(message_id)
    assert (found["why"]["kind"], found["data"]) == ("delayed", {"n": 1})
    for queue in ("default", "emails"):
        publish(queue, "welcome", 1, delay=60, message_id="same")
    assert [row["queue"] for row in mq_json("find", "same")["found"]] == ["default", "emails"]
    assert [line.split()[-1] for line in mq("find", "same").splitlines() if line.startswith("queue ")] == [
        "default",
        "emails",
    ]


def test_one_argument_is_a_queue_if_there_is_one_with_this_name():
    publish("emails", "welcome", 1, message_id="emails")
    assert [row["id"] for row in mq_json("find", "emails")] == ["emails"]
    assert find_one("emails", "emails")["state"] == "ready"
    with pytest.raises(CommandError, match="No queue 'emials'"):
        mq("find", "emials", "--state", "ready")
    with pytest.raises(CommandError, match="Name a queue, or give the id of a message"):
        mq("find")


def test_find_knows_what_was_handled():
    message_id = handle("emails", "welcome", {"n": 1, "password": "hunter2"}, key="user:7", message_id="done")
    found = find_one("emails", message_id)
    assert (found["state"], found["ending"], found["seconds"]) == ("handled", "handled", 0.0015)
    assert found["why"]["sentence"] == f"It was handled at {found['finished']}."
    assert (found["key"], found["data"]) == ("user:7", {"n": 1, "password": "[redacted]"})
    handle("emails", "welcome", message_id="buried", outcome=Bury("no"))
    assert find_one("emails", "buried")["state"] == "dead"
    mq("purge", "emails", "buried", "--state", "dead", "--yes")
    assert why("buried")["sentence"].startswith("It became a dead letter at ")


def test_find_and_export_show_the_history_newest_first():
    for number in range(3):
        handle("emails", "welcome", number, message_id=f"m{number}")
    assert [row["id"] for row in mq_json("find", "emails", "--state", "handled")] == ["m2", "m1", "m0"]
    out, err = StringIO(), StringIO()
    call_command("mq", "find", "emails", "--state", "handled", "--limit", "2", stdout=out, stderr=err)
    after = err.getvalue().split("--after ")[1].strip()
    assert [row["id"] for row in mq_json("find", "emails", "--state", "handled", "--after", after)] == ["m0"]
    rows = [json.loads(line) for line in mq("export", "emails", "--state", "handled", "--name", "welc").splitlines()]
    assert [(row["id"], row["data"], row["ending"]) for row in rows] == [
        *(("m2", 2, "handled"), ("m1", 1, "handled"), ("m0", 0, "handled")),
    ]
    assert rows[0]["finished_ms"] >= rows[0]["published_ms"]
