"""The search over all queues: what a query means, and that its steps are bounded and lose nothing."""

import pytest

from mq_django import topics
from mq_django.conf import get_config
from mq_django.core.filters import Filter
from mq_django.inspector import search, stream_reader
from mq_django.inspector.search import SCANNED, STATES, Problem, parse, step
from mq_django.transport.sessions import Session
from tests.seeding import bury, bury_many, handle, publish, publish_many, set_aside, take


@pytest.fixture(autouse=True)
def configured(mq_settings):
    mq_settings(
        QUEUES={"default": {}, "emails": {"HISTORY": 86_400}, "imports": {"PARTITIONS": 2}}, TOPICS={"orders": {}}
    )


#: More than any search here takes.
LONG = 30.0


def run(text, *, seconds=LONG, **options):
    """Return the states, queues and ids of all that is found, and the steps that it took."""
    query, found, after, steps = parse(text), [], "", 0
    assert not isinstance(query, Problem), query
    while after or not steps:
        made = step(query, after, seconds=seconds, **options)
        assert made.errors == {}
        found += [(listing.state, listing.queue, view.id) for listing, view in made.found]
        after, steps = made.after, steps + 1
    return found, steps


def test_what_a_query_means(time_machine):
    time_machine.move_to("2026-11-28T12:00:00Z", tick=False)
    query = parse('name:receipt customer=C-4242 error:"Timeout: no" "late fee" state:dead since:2d queue:emails')
    assert query.where == Filter(
        name="receipt", data='customer=C-4242 "late fee"', error="Timeout: no", since_ms=1795694400000
    )
    assert (query.states, query.queues, query.named) == (["dead"], ["emails"], "")
    assert query.without(1) == 'name:receipt error:"Timeout: no" "late fee" state:dead since:2d queue:emails'

    assert parse("state:ready,dead state:log").states == ["dead", "ready", "log"]
    assert parse("key:user:7").where == Filter(key="user:7")
    assert parse("error:x").states == ["dead"]
    assert parse("https://x.org/a?b=c").where == Filter(data="https://x.org/a?b=c")
    assert (parse("abc").named, parse("abc def").named, parse("a=b").named) == ("abc", "", "")
    assert parse("id:abc").states == list(SCANNED)
    assert parse("until:2026-11-01T06:00Z").where.until_ms == 1793512800000


#: Queries, and what is wrong with them.
WRONG = [
    *(('"open', "words"), ("a " * 30, "words"), ("foo:bar", "term"), ("name:", "value"), ('name:""', "value")),
    *(("name:a name:b", "twice"), ("state:odd", "state"), ("state:dead,odd", "state"), ("queue:nope", "queue")),
    *(("since:yesterday", "time"), ("until:9999-12-31T23:59:59-12:00", "time"), ("x=", "data"), ('""', "data")),
    *(("error:x state:ready", "error"), ("since:999999999999d", "time")),
]


def test_what_cannot_be_searched_for():
    assert [(text, parse(text).kind) for text, _ in WRONG] == WRONG


def test_all_states_of_all_queues_are_searched():
    wanted = {"customer": "C-4242"}
    topics["orders"].group("billing").subscribe()
    expected = {
        ("handled", "emails", handle("emails", "a", wanted)),
        ("dead", "emails", bury("emails", "a", wanted)),
        ("unhandled", "default", set_aside("default", "nobody.knows", wanted)),
        ("delayed", "default", publish("default", "a", wanted, delay=60)),
        ("log", "orders", topics["orders"].publish("a", wanted, on_commit=False)),
    }
    publish("default", "a", wanted)
    expected.add(("pending", "default", take("default", 1)[0].message.id))
    expected.add(("ready", "emails", publish("emails", "a", wanted)))
    parted = publish("imports", "a", wanted)
    for queue in ("emails", "default"):
        publish(queue, "a", {"customer": "C-1"})

    found, _ = run("customer=C-4242")

    assert {each for each in found if not each[1].startswith("imports")} == expected
    assert [each[2] for each in found if each[1].startswith("imports")] == [parted]
    assert [each[0] for each in found] == sorted((each[0] for each in found), key=STATES.index)
    assert {each[1] for each in run("C-4242 queue:emails")[0]} == {"emails"}
    assert {each[1] for each in run("C-4242 queue:ord*")[0]} == {"orders"}
    assert [each[2] for each in run("C-4242 queue:imports")[0]] == [parted]


def test_a_word_is_also_an_id_where_no_index_has_it():
    wanted = publish("emails", "a", 1)
    mentions = publish("emails", "a", {"of": wanted})
    assert {each[2] for each in run(wanted)[0]} == {wanted, mentions}
    assert [each[2] for each in run(f"id:{wanted}")[0]] == [wanted]


def test_steps_go_on_where_the_last_one_ended_and_lose_nothing():
    ids = bury_many("emails", 30) + publish_many("default", [("welcome", n) for n in range(30)])
    found, steps = run("name:welcome state:dead,ready", limit=7)
    assert sorted(each[2] for each in found) == sorted(ids)
    assert steps >= 9
    # One place at a time, if there is no time.
    found, steps = run("name:welcome state:dead,ready", seconds=0)
    assert sorted(each[2] for each in found) == sorted(ids)


def test_a_step_reads_a_bounded_number_of_messages(monkeypatch):
    publish_many("emails", [("a", {"n": n}) for n in range(3000)])
    query = parse("nowhere state:ready queue:emails")
    monkeypatch.setattr(stream_reader, "MAX_SCANNED", 1000)
    made = step(query, seconds=0)
    assert (made.scanned, made.done, made.listing) == (1000, 0, ("ready", "emails"))
    assert step(query, made.after, seconds=0).scanned == 1000
    # Its time is over after the first message.
    monkeypatch.setattr(stream_reader, "SECONDS", 0)
    assert step(query, seconds=0).scanned == 1


@pytest.mark.parametrize("state", ["ready", "dead"])
def test_short_messages_are_searched_many_at_a_time_and_long_ones_few(state, monkeypatch):
    """Without a script, which would be several times as much work for Redis."""
    data = [{"n": n} for n in range(60)] + [{"n": n, "text": "x" * 30_000} for n in range(60, 100)]
    for each in reversed(data) if state == "dead" else data:
        bury("emails", "a", each) if state == "dead" else publish("emails", "a", each)
    sent = []
    send = Session.send
    monkeypatch.setattr(Session, "send", lambda self, commands: sent.extend(commands) or send(self, commands))

    found = step(parse(f"n=41 state:{state} queue:emails"), seconds=LONG)

    assert (len(found.found), found.scanned, found.after) == (1, 100, "")
    counts = [command[-1] for command in sent if command[0] in ("XRANGE", "XREVRANGE") and command[-2] == "COUNT"]
    assert max(counts) > 30
    assert counts[-4:] == [5, 5, 5, 5]


def test_a_queue_that_cannot_be_read_fails_alone(redis_client):
    wanted = bury("emails", "a", {"customer": "C-4242"})
    redis_client.set(get_config().queue("default").keys.dead, "x")
    made = step(parse("customer=C-4242 state:dead"), seconds=LONG)
    assert [view.id for _, view in made.found] == [wanted]
    assert ([*made.errors], made.failed) == (["default"], 1)


def test_each_list_of_a_server_that_is_away_has_failed_and_its_server_is_asked_once(mq_settings, tmp_path, monkeypatch):
    away = {"CONNECTION": f"unix://{tmp_path}/nobody.sock"}
    mq_settings(QUEUES={"emails": {}, "far": away, "further": away})
    wanted = bury("emails", "a", {"customer": "C-4242"})
    asked, read = [], search.messages
    monkeypatch.setattr(search, "messages", lambda name, *args, **more: asked.append(name) or read(name, *args, **more))

    made = step(parse("customer=C-4242 state:dead,delayed"), seconds=LONG)

    assert [view.id for _, view in made.found] == [wanted]
    assert ([*made.errors], made.failed, made.done, made.total) == (["far", "further"], 4, 6, 6)
    assert sorted(asked) == ["emails", "emails", "far"]


def test_a_cursor_of_anything_else_is_harmless():
    wanted = bury("emails", "a", {"customer": "C-4242"})
    query = parse("customer=C-4242")
    for odd in ("x", "9", "99999999999999999999", "0 dead emails", "0 nope emails x", "3 log x ", "-1 "):
        assert [view.id for _, view in step(query, odd, seconds=LONG).found] in ([], [wanted]), odd
    assert step(query, seconds=LONG).found
