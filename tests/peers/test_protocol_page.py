"""Each box of `docs/protocol.md`, typed into `redis-cli` as it stands there, beside consumers in Python."""

import json
import os
import re
import shutil
from datetime import timedelta

import pytest

from mq_django import LookupState, queues, topics
from mq_django.consumers.decisions import settle_for
from mq_django.core.keys import KINDS, QueueKeys, TopicKeys
from mq_django.core.message_format import PROTOCOL
from mq_django.core.messages import ACK, Ack, Bury, Retry, SetAside
from mq_django.inspector import dead_letters
from mq_django.stores import open_members, open_store
from mq_django.stores.base import Settlement
from mq_django.stores.dead_letters import open_dead_letters
from mq_django.stores.results import end_cancelled, find_result
from mq_django.transport.connections import get_client
from mq_django.transport.scripts import load
from mq_django.transport.sessions import Pooled, Session
from tests.peers.conftest import missing
from tests.peers.programs import ROOT
from tests.shell import ran
from tests.users import user
from tests.waiting import wait_until

PAGE = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
BOX = re.compile(r"<!-- (try|user): ([\w-]+) -->\n```(redis|sh)\n(.*?)```", re.DOTALL)
BOXES = {name: (language, text) for _, name, language, text in BOX.findall(PAGE)}
LUA = ROOT / "mq_django" / "transport" / "lua"
#: Those of consumers and producers. A change of the number of partitions is for operators.
SCRIPTS = {path.stem for path in LUA.glob("*.lua") if not path.stem.startswith("repartition_")}
#: The first box for a shell is typed at the root, and leaves its reader in the folder of the scripts, with `whole`.
(WHOLE,) = re.findall(r"^whole\(\) \(\n.*?^\)\n", BOXES["fetch"][1], re.MULTILINE | re.DOTALL)

ME, ENTRY, LATE = "web1-7-a1b2c3", "1795000000000-0", "1795000000000"


def redis_cli(folder, url):
    """Put a `redis-cli` into a folder that talks to the Redis of the tests, whoever calls it."""
    real = shutil.which("redis-cli")
    if real is None:
        missing("there is no redis-cli on this machine")
    scheme, _, rest = url.partition("://")
    log_in, _, place = rest.rpartition("@")
    name, _, password = log_in.partition(":")
    where = ["-s", place] if scheme == "unix" else ["-u", f"{scheme}://{place}"]
    if log_in:
        where += ["--user", name, "--pass", password, "--no-auth-warning"]
    program = folder / "redis-cli"
    program.write_text(f'#!/bin/sh\nexec {real} {" ".join(where)} "$@"\n')
    program.chmod(0o755)


@pytest.fixture
def type_in(redis_url, namespace, tmp_path):
    """Type a box, with words of it replaced, and return what was answered, line by line."""

    def type_in(name, replaced=(), url=redis_url):
        redis_cli(tmp_path, url)
        language, text = BOXES[name]
        text = text.replace("mq:{", f"{namespace}:{{")
        for old, new in replaced:
            assert old in text, (name, old)
            text = text.replace(old, new)
        if language == "sh" and name != "fetch":
            text = f"cd mq_django/transport/lua\n{WHOLE}{text}"
        done = ran(
            ["redis-cli"] if language == "redis" else ["sh", "-eu"],
            input=text,
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        )
        assert "ERR" not in done.stdout + done.stderr
        return done.stdout.split("\n")

    return type_in


@pytest.fixture
def emails(mq_settings, redis_client):
    return queues["emails"]


@pytest.fixture
def keys(emails):
    return emails.config.keys


def opened(config):
    store = open_store(config, Session(get_client("consume")))
    store.create_groups()
    return store


def handled(config, count=1):
    """Do what a consumer in Python does, and return the data that it was given."""
    store, found = opened(config), []

    def work():
        store.promote(limit=10)
        taken = store.take("python", count=10)
        assert store.settle("python", [Settlement(delivery, ACK) for delivery in taken]) == []
        found.extend(taken)
        return len(found) >= count

    wait_until(work)
    return [(delivery.message.id, delivery.message.name, delivery.message.data) for delivery in found]


def test_every_box_is_tried():
    source = (ROOT / "tests" / "peers" / "test_protocol_page.py").read_text(encoding="utf-8")
    assert len(BOXES) == PAGE.count("<!-- try: ") + PAGE.count("<!-- user: ") >= 20
    assert [name for name in BOXES if f'"{name}"' not in source] == []


def test_the_page_names_every_key():
    queue, topic = QueueKeys("mq", "emails"), TopicKeys("mq", "orders")
    names = [getattr(queue, kind) for kind in KINDS if kind != "replaced"]  # In one row with `claims`.
    names += [queue.minutes(0)[:-1], queue.result(""), queue.progress(""), queue.message_stream(""), queue.stacks]
    names += [topic.log, topic.published, topic.control, topic.minutes(0)[:-1]]
    assert [name for name in names if not re.search(rf"\n(?:- |\| )`{re.escape(name)}", PAGE)] == []
    assert "`mq:{emails}:claims`, `:replaced`" in PAGE


def test_the_page_names_the_version_that_supervisors_announce():
    assert f"This is **protocol version {PROTOCOL}**." in PAGE


#: The scripts of the table.
LISTED = re.findall(r"^- `(\w+)`: ", PAGE.partition("<!-- scripts -->")[2].partition("\n\n")[0], re.MULTILINE)


def test_the_head_of_each_script_of_the_table_has_what_a_caller_needs():
    assert len(LISTED) > 25
    heads = {name: (LUA / f"{name}.lua").read_text(encoding="utf-8").partition("\n\n")[0] for name in LISTED}
    parts = ("\n-- KEYS", "\n-- ARGV", "\n-- Returns")
    missing = {name: [part for part in parts if part not in head] for name, head in heads.items()}
    assert {name: why_unsupported for name, why_unsupported in missing.items() if why_unsupported} == {
        "reports_read": ["\n-- ARGV"]
    }


def test_the_page_names_the_keys_that_settling_knows():
    section = PAGE.partition("\n### Settle\n")[2].partition("\n### ")[0]
    used = {one or other for one, other in re.findall(r"\bat\.(\w+)|\bat\['([\w-]+)'\]", load("settle").text)}
    assert len(used) > 25
    assert {name for name in used if f"`{name}`" not in section} == set()


def test_now_and_later_are_handled(type_in, emails):
    (entry, *_) = type_in("now")
    assert handled(emails.config) == [(entry, "welcome", {"user_id": 7})]
    type_in("later")
    assert handled(emails.config) == [("5f2c", "welcome", {"user_id": 8})]


def test_what_has_a_priority_is_handled_before_what_is_ready(type_in, emails):
    store = opened(emails.config)
    emails.publish("welcome", "before")
    type_in("now")
    type_in("priority")
    assert store.promote(limit=10).moved == 1
    taken = store.take("python", count=10)
    assert [item.message.priority for item in taken] == [50, 0, 0]
    assert [item.message.data for item in taken] == [{"user_id": 10}, "before", {"user_id": 7}]


def test_a_cloudevent_is_handled_as_it_is(type_in, emails):
    type_in("event")
    (found,) = opened(emails.config).take("python", count=10)
    assert (found.message.id, found.message.name, found.message.data) == ("17", "welcome", {"user_id": 7})
    assert found.message.headers == {"source": "/shop"}


def test_what_waits_is_rescheduled_and_cancelled(type_in, emails, redis_client, keys):
    soon = [("1795000000000", "4000000000000")]
    type_in("later", soon)
    assert type_in("reschedule", [("1795000060000", "4000000060000")])[0] == "1"
    assert emails.find("5f2c").due_ms == 4_000_000_060_000
    assert type_in("cancel")[-3:-1] == ["1", "1"]
    assert not emails.find("5f2c")
    assert type_in("reschedule")[0] == "0"
    assert redis_client.zcard(keys.due) == 0


def test_a_unique_message_replaces_itself_and_can_be_cancelled_by_its_key(type_in, emails, redis_client, keys):
    soon = ("1795000000000", "4000000000000")
    type_in("unique", [soon])
    assert "5f2d" in type_in("unique", [soon, ("5f2d", "5f2e"), ("5f2b", "5f2d")])
    assert redis_client.zcard(keys.due) == 1
    assert redis_client.hgetall(keys.unique) == {b"u:cart-3": b"5f2e", b"5f2e": b"u:cart-3"}
    assert not emails.cancel("5f2d")
    assert emails.find("5f2e").message.data == {"user_id": 9}
    type_in("unique", [("5f2d", "5f2e")])
    assert redis_client.hlen(keys.unique) == 2
    assert handled(emails.config) == [("5f2e", "welcome", {"user_id": 9})]


def test_a_consumer_reads_and_acks_with_plain_commands(type_in, emails, redis_client, keys):
    type_in("group")
    message_id = emails.publish("welcome", {"user_id": 7})
    told = type_in("read")
    assert message_id in told
    entry = redis_client.xpending_range(keys.ready, "mq", "-", "+", 1)[0]["message_id"].decode()
    assert type_in("ack", [(ENTRY, entry)])[-3:-1] == ["1", "1"]
    assert redis_client.xlen(keys.ready) == 0


def held(type_in, emails, redis_client, keys, count=1):
    """Let the shell's consumer hold messages, and return their entries."""
    emails.publish_many([("welcome", {"user_id": 7})] * count)
    opened(emails.config)
    told = type_in("fetch")
    assert told.count("welcome") == count
    return [row["message_id"].decode() for row in redis_client.xpending_range(keys.ready, "mq", "-", "+", 9, ME)]


def test_a_consumer_lets_a_unique_key_go(type_in, emails, redis_client, keys):
    first = emails.publish("welcome", {"user_id": 7}, unique="cart-3", unique_for="handled")
    opened(emails.config)
    assert "welcome" in "".join(type_in("fetch"))
    (row,) = redis_client.xpending_range(keys.ready, "mq", "-", "+", 9, ME)
    entry = row["message_id"].decode()
    type_in("unclaim", [(ENTRY, entry), ("5f2e", first)])
    assert not redis_client.exists(keys.claims)
    assert redis_client.xlen(keys.ready) == 0


def test_a_consumer_retries_with_plain_commands(type_in, emails, redis_client, keys):
    (entry,) = held(type_in, emails, redis_client, keys)
    type_in("retry", [(ENTRY, entry), ("1795000060000", LATE)])
    store = opened(emails.config)
    assert store.promote(limit=5).moved == 1
    (again,) = store.take("python", count=5)
    assert (again.message.id, again.message.attempt, again.message.data) == (entry, 2, {"user_id": 7})
    assert again.message.published_ms == 1_795_000_000_000


def test_a_consumer_buries_with_plain_commands(type_in, emails, redis_client, keys):
    (entry,) = held(type_in, emails, redis_client, keys)
    type_in("bury", [(ENTRY, entry)])
    dead = open_dead_letters(emails.config, Pooled(get_client("inspect")))
    letter = dead_letters.get("emails", *dead.find([entry]))
    assert (letter.id, letter.reason, letter.error, letter.tries) == (entry, "attempts", "no such user", 25)
    assert letter.data == {"user_id": 7}
    assert dead.redrive([letter.ref]) == ["REDRIVEN"]
    assert handled(emails.config) == [(entry, "welcome", {"user_id": 7})]


def test_a_consumer_settles_with_the_scripts(type_in, emails, redis_client, keys):
    one, two = held(type_in, emails, redis_client, keys, 2)
    # Nothing is told back: both were still held.
    told = type_in("scripts", [("1795000000000-1", two), (ENTRY, one)])
    assert [line for line in told if line] == []
    assert redis_client.xlen(keys.ready) == 0
    found = emails.find("5f2e")
    assert (found.message.attempt, found.message.data) == (2, {"user_id": 8})
    assert [line for line in type_in("scripts", [("1795000000000-1", two), (ENTRY, one)]) if line] == [one, two]


def test_a_consumer_releases_the_unhandled_messages_of_its_name(type_in, emails, redis_client, keys):
    store = opened(emails.config)
    emails.publish_many([("welcome", 1), ("unknown", 2), ("welcome", 3)])
    store.settle("c", [Settlement(item, SetAside()) for item in store.take("c", count=3)])
    assert "2" in type_in("release")
    assert sorted(body for _, _, body in handled(emails.config, 2)) == [1, 3]
    assert redis_client.zcard(keys.unhandled) == 1


def test_a_consumer_is_known_while_it_beats_and_leaves(type_in, emails, redis_client, keys):
    opened(emails.config)
    members = {f"{kind}:{ME}".encode() for kind in ("beat", "seen", "supervisor", "consumer")}
    type_in("beat")
    type_in("beat")
    assert set(redis_client.hkeys(keys.consumers)) == members
    assert redis_client.hget(keys.consumers, f"beat:{ME}") == b"2"
    type_in("leave")
    assert not redis_client.exists(keys.consumers)


def test_the_users_of_the_page_can_do_what_it_says_and_nothing_else(
    type_in, emails, redis_client, redis_url, namespace, keys
):
    def rules(name):
        _, text = BOXES[name]
        return re.sub(r"mq:\*", f"{namespace}:*", text).split()[5:]

    with user(redis_client, redis_url, rules("producer")) as url:
        for box in ("now", "later", "unique", "priority", "event", "reschedule", "cancel"):
            assert "NOPERM" not in "".join(type_in(box, url=url))
        assert "NOPERM" in "".join(type_in("read", url=url))
    assert len(handled(emails.config, 4)) == 4
    with user(redis_client, redis_url, rules("consumer")) as url:
        emails.publish_many([("welcome", {"user_id": 7})] * 2)
        for box in (
            "group",
            "fetch",
            "release",
            "beat",
            "asked",
            "promote",
            "result-write",
            "result",
            "progress",
            "streams",
            "result-watch",
            "reclaim",
            "leave",
        ):
            assert "NOPERM" not in "".join(type_in(box, url=url))
        one, two = (row["message_id"].decode() for row in redis_client.xpending_range(keys.ready, "mq", "-", "+", 9))
        for box in (
            ("scripts", [("1795000000000-1", two), (ENTRY, one)]),
            ("settle", []),
            ("ack", []),
            ("retry", []),
            ("bury", []),
        ):
            assert "NOPERM" not in "".join(type_in(*box, url=url))
    assert redis_client.xlen(keys.ready) == 0


#: A command of a script, with its subcommand if it has one.
CALL = re.compile(r"redis\.p?call\(\s*'(\w+)'(?:, '(\w+)')?")


def test_the_consumer_of_the_page_may_run_every_command_of_the_scripts_that_it_names():
    allowed = set(re.findall(r"\+([\w|]+)", BOXES["consumer"][1]))
    named = set(re.findall(r"`(\w+)`", PAGE)) & SCRIPTS
    refused = {
        (script, command)
        for script in named
        for command, sub in CALL.findall(load(script).text)
        if command not in allowed and f"{command}|{sub}" not in allowed
    }
    assert len(named) > 25
    assert "also `+xgroup|destroy`" in PAGE
    assert refused == {("topic_seek", "xgroup")}


def test_many_are_published_in_a_pipeline(type_in, emails):
    assert "errors: 0, replies: 2" in "".join(type_in("bulk"))
    assert [data for _, _, data in handled(emails.config, 2)] == [{"user_id": 7}, {"user_id": 8}]


def test_a_consumer_reads_urgent_only_when_it_is_there(type_in, emails, redis_client, keys):
    (entry,) = held(type_in, emails, redis_client, keys)
    assert not redis_client.exists(keys.front)
    store = opened(emails.config)
    emails.publish("welcome", "behind")
    (delivery,) = store.held_by(ME, limit=5)
    type_in("settle", [("1795000000000-1", entry)])
    assert [group["name"] for group in redis_client.xinfo_groups(keys.front)] == [b"mq"]
    assert [item.message.data for item in store.take("python", count=5)] == [delivery.message.data, "behind"]


def test_a_consumer_settles_in_every_way(type_in, emails, redis_client, keys):
    one, two, three = held(type_in, emails, redis_client, keys, 3)
    given = [("1795000000000-2", three), ("1795000000000-1", two), (ENTRY, one)]
    # Nothing is told back: all were still held.
    assert [line for line in type_in("settle", given) if line] == []
    letters = open_dead_letters(emails.config, Pooled(get_client("inspect")))
    letter = dead_letters.get("emails", *letters.find(["5f2d"]))
    assert (letter.reason, letter.error, letter.tries) == ("attempts", "NoSuchUser: 7", 25)
    assert redis_client.hkeys(keys.dead_groups) == [b"NoSuchUser|welcome"]
    assert (emails.find("5f2f").state, emails.find("5f2f").message.data) == (LookupState.UNHANDLED, {"user_id": 9})
    (again,) = opened(emails.config).take("python", count=5)
    assert (again.message.attempt, again.message.data) == (1, {"user_id": 7})
    assert [line for line in type_in("settle", given) if line] == [one, one, two, three]


def test_a_consumer_reads_what_it_is_asked(type_in, emails):
    opened(emails.config)
    type_in("beat")
    members = open_members(emails.config, Session(get_client("consume")))
    assert "quiet" not in type_in("asked")
    members.ask(ME, "quiet")
    assert type_in("asked")[:2] == ["quiet", "quiet"]
    members.ask(ME, "stop")
    assert type_in("asked")[:2] == ["stop", "stop"]
    type_in("leave")
    assert "stop" not in type_in("asked")


def test_due_messages_are_promoted_without_python(type_in, emails, redis_client, keys):
    opened(emails.config)
    type_in("later", [("1795000000000", "4000000000000")])
    emails.publish("welcome", "tomorrow", delay=86400)
    assert type_in("promote")[0] == "0"
    type_in("reschedule")
    moved, microseconds, paused, unhandled = type_in("promote")[:4]
    assert (moved, paused, unhandled) == ("1", "0", "0")
    assert 86_000_000_000 < int(microseconds) < 86_400_000_000
    (ready,) = opened(emails.config).take("python", count=5)
    assert ready.message.id == "5f2c"


def test_what_a_dead_consumer_holds_is_reclaimed_without_python(type_in, emails, redis_client, keys):
    store, members = opened(emails.config), open_members(emails.config, Session(get_client("consume")))
    dead = "web2-9-d4e5f6"
    for _ in range(12):
        members.beat(dead, {"host": "web2"}, {dead: {"host": "web2"}})
    message_id = emails.publish("welcome", {"user_id": 7})
    (delivery,) = store.take(dead, count=1)
    told = type_in("reclaim", [(ENTRY, delivery.entry.decode()), ("5f2e", message_id)])
    assert "EVICTED" in told
    assert {field.partition(b":")[2] for field in redis_client.hkeys(keys.consumers)} == {ME.encode()}
    (again,) = store.take("python", count=5)
    assert (again.message.id, again.message.attempt) == (message_id, 1)
    # It was evicted once only.
    assert "ALIVE" in type_in("reclaim")


def test_the_version_is_read_from_a_supervisor(type_in, emails):
    members = open_members(emails.config, Session(get_client("consume")))
    members.beat("s1", {"host": "web2", "protocol": PROTOCOL}, {})
    told = type_in("version")
    assert json.loads(told[told.index("supervisor:s1") + 1])["protocol"] == PROTOCOL


def test_a_result_is_written_and_read(type_in, emails, redis_client):
    transports = [Pooled(get_client("inspect"))]
    assert [line for line in type_in("result") if line] == []
    ready, group = emails.config.keys.ready, emails.config.keys.group
    redis_client.xgroup_create(ready, group, "0", mkstream=True)
    redis_client.xadd(ready, {"a": "b"}, id="1795000000000-0")
    redis_client.xreadgroup(group, ME, {ready: ">"})
    type_in("result-write")
    found = find_result(transports, [emails.config], "5f2e")
    assert (found.status, found.name, found.data) == ("SUCCESSFUL", "shop.tasks.add", {"args": [2, 3], "kwargs": {}})
    assert (found.attempts[-1].value, found.attempts[-1].consumer) == (5, ME)
    assert 86_000_000 < redis_client.pttl(emails.config.keys.result("5f2e")) <= 86_400_000
    assert json.loads(type_in("result")[1])["value"] == 5


def test_progress_is_read(type_in, emails, redis_client):
    assert [line for line in type_in("progress") if line] == []
    redis_client.hset(emails.config.keys.progress("5f2e"), "progress", '{"done":3,"total":10}')
    assert type_in("progress")[0] == '{"done":3,"total":10}'
    found = emails.progress("5f2e")
    assert (found.done, found.total) == (3, 10)


def test_a_stream_is_read(type_in, emails, redis_client):
    assert [line for line in type_in("streams") if line] == []
    redis_client.xadd(emails.config.keys.message_stream("5f2e"), {"run": "r", "text": "hel"})
    assert type_in("streams")[1:5] == ["run", "r", "text", "hel"]


def test_a_process_is_registered_for_a_result_until_it_ends(type_in, emails, redis_client):
    transport, key = Pooled(get_client("produce")), emails.config.keys.result("5f2e")
    assert type_in("result-watch")[0] == ""
    redis_client.set(key, '{"queue":"emails","name":"shop.tasks.add","data":{"args":[],"kwargs":{}}}')
    assert type_in("result-watch")[0] == str(redis_client.strlen(key))
    assert redis_client.hget(emails.config.keys.waiters, key).endswith(b" web1x7\n")
    end_cancelled(transport, emails.config, ["5f2e"])
    assert "mq_django.errors.Cancelled" in "".join(type_in("result-watch"))
    assert not redis_client.exists(emails.config.keys.waiters)


def test_results_of_python_have_the_fields_of_the_page(type_in, emails):
    store = opened(emails.config)
    data = {"args": [], "kwargs": {}}
    message_id = emails.publish("shop.tasks.add", data)
    for outcome in (
        Retry(delay=timedelta(0), error="ValueError: 7", traceback="Trace"),
        Bury("ValueError: 7", "Trace"),
    ):
        (delivery,) = store.take("python", count=1)
        settle_for(store, "python", [Settlement(delivery, outcome, keeps_result=True)])
        store.promote(limit=5)
    done = emails.publish("shop.tasks.add", data)
    (delivery,) = store.take("python", count=1)
    settle_for(store, "python", [Settlement(delivery, Ack(b"5"), keeps_result=True)])
    task, retried, failed = map(json.loads, type_in("result", [("5f2e", message_id)])[:3])
    assert set(task) == {"queue", "name", "enqueued", "due", "priority", "data"}
    attempt = {"status", "attempt", "entry", "consumer", "started", "finished"}
    assert set(retried) == set(failed) == {*attempt, "error", "traceback"}
    assert (retried["status"], failed["status"], failed["error"]) == ("READY", "FAILED", "builtins.ValueError")
    _, succeeded = map(json.loads, type_in("result", [("5f2e", done)])[:2])
    assert set(succeeded) == {*attempt, "value"}


@pytest.fixture
def orders(mq_settings):
    mq_settings(QUEUES={}, TOPICS={"orders": {}})
    return topics["orders"]


def test_a_topic_is_published_to_and_consumed_with_plain_commands(type_in, orders, redis_client):
    type_in("topic-group")
    billing = opened(orders.config.group("billing"))
    entry = type_in("topic-publish")[0]
    log = orders.config.keys.log
    redis_client.xadd(log, {"type": "order.paid", "data": "{}"})
    told = type_in("topic-consume", [(ENTRY, entry)])
    assert told.count("order.paid") == 2
    assert redis_client.xpending(log, "shipping")["pending"] == 1
    one, two = billing.take("python", count=5)
    assert (one.message.data, one.message.key, one.message.id) == ({"order_id": 7}, "order:7", entry)
    assert two.message.data == {}


def test_a_topic_is_published_to_once(type_in, orders, redis_client):
    billing = opened(orders.config.group("billing"))
    assert re.fullmatch(r"\d+-\d+", type_in("topic-once")[0])
    assert type_in("topic-once")[0] == "DUPLICATE"
    (delivery,) = billing.take("python", count=5)
    assert (delivery.message.id, delivery.message.data) == ("paid-7", {"order_id": 7})
    assert redis_client.hgetall(orders.config.keys.minutes(498611)) != {}


def test_a_group_is_shared_with_python_and_moved(type_in, orders, redis_client):
    type_in("topic-publish")
    type_in("topic-publish")
    told = type_in("topic-share")
    assert told[0] == "CREATED"
    log, control = orders.config.keys.log, orders.config.group("billing").keys.control
    generation = redis_client.hget(control, "log-generation").decode()
    assert generation in told
    entries = [entry.decode() for entry, _ in redis_client.xrange(log)]
    # It took both when it was typed first; now it acks the first of them.
    told = type_in("topic-share", [(f"{ENTRY}@1795000000000", f"{entries[0]}@{generation}")])
    assert told[0] == "EXISTS"
    assert redis_client.xpending(log, "billing")["pending"] == 1
    assert type_in("topic-seek")[0] == "MOVED"
    assert [data for _, _, data in handled(orders.config.group("billing"), 2)] == [{"order_id": 7}] * 2


def test_a_log_is_read_again_from_a_time(type_in, orders, redis_client):
    type_in("topic-group")
    log = orders.config.keys.log
    for entry in ("1794999999999-7", "1795000000000-0", "1795000000001-0"):
        redis_client.xadd(log, {"type": "order.paid", "data": f'"{entry}"'}, id=entry)
    told = "\n".join(type_in("topic-replay"))
    # The first command reads two, and the second goes on after the first of these.
    assert [told.count(f'"{ms}-') for ms in ("1794999999999", "1795000000000", "1795000000001")] == [0, 1, 2]
    redis_client.xreadgroup("shipping", ME, {log: ">"})
    type_in("topic-setid")
    ((_, again),) = redis_client.xreadgroup("shipping", ME, {log: ">"})
    assert [entry for entry, _ in again] == [b"1795000000000-0", b"1795000000001-0"]
    billing = opened(orders.config.group("billing"))
    assert len(billing.take("python", count=5)) == 3
    type_in("topic-seek", [("billing 0", "billing 1794999999999-18446744073709551615")])
    assert [item.message.data for item in billing.take("python", count=5)] == ["1795000000000-0", "1795000000001-0"]
