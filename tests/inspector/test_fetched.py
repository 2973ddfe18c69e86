"""Messages that consumers have fetched and not started."""

import pytest

from mq_django import inspector, topics
from mq_django.conf import get_config
from mq_django.errors import ConnectionLost
from mq_django.inspector import Thresholds
from mq_django.inspector.problem_sentences import sentence
from mq_django.stores import open_members, open_store
from mq_django.stores.log import Log
from mq_django.transport.connections import get_client, open_session
from mq_django.transport.sessions import Pooled, Session, fan_out
from tests.commands import script_calls
from tests.seeding import opened, publish, publish_many

BUSY = "c-busy"
AGE = 150_000


@pytest.fixture(autouse=True)
def settings(mq_settings, namespace):
    letters = {"STORE": "rsmq", "NAMESPACE": f"{namespace}:r"}
    mq_settings(QUEUES={"emails": {}, "imports": {}, "letters": letters}, TOPICS={"events": {}})


def beat(consumers, queue="emails"):
    """Send the heartbeat of a supervisor, with what is said of each consumer."""
    members = open_members(get_config().queue(queue), Pooled(get_client("chores")))
    members.beat("s1", {}, {name: {"threads": 1, **told} for name, told in consumers.items()})


def add(client, *ages, stream=0, queue="emails"):
    """Add messages that have been ready for these milliseconds, the oldest first."""
    seconds, micros = client.time()
    now_ms = seconds * 1000 + micros // 1000
    key = get_config().queue(queue).keys.streams()[stream]
    return [client.xadd(key, {"type": "a", "data": "1"}, id=f"{now_ms - age}-0").decode() for age in ages]


def fetch(count, consumer=BUSY, queue="emails"):
    store = opened(queue)
    found = store.take(consumer, count=count)
    assert len(found) == count
    return found


def runs(*deliveries, **more):
    return {"running": [[found.stream, found.entry.decode(), 1000] for found in deliveries], **more}


def kinds(**thresholds):
    return [problem.kind for problem in inspector.problems("emails", thresholds=Thresholds(**thresholds))]


def test_a_message_that_waits_in_a_consumer_is_late(redis_client):
    add(redis_client, AGE + 100_000, AGE, 1000)
    first, *_ = fetch(3)
    beat({BUSY: runs(first)})

    (problem,) = inspector.problems("emails")

    assert (problem.kind, problem.queue) == ("late", "emails")
    assert AGE <= problem.figure * 1000 < AGE + 60_000
    assert problem.sentence.startswith(
        "emails lags: the oldest message that was fetched and has not started has waited for 2 min."
    )


def test_those_that_run_are_not_late_however_old_they_are(redis_client):
    add(redis_client, AGE, AGE - 1)
    beat({BUSY: runs(*fetch(2))})

    assert kinds() == []
    assert inspector.queue("emails").fetched == 0


def test_they_count_as_ready(redis_client):
    publish_many("emails", [("welcome", n) for n in range(5)])
    first, *_ = fetch(4)
    beat({BUSY: runs(first)})

    view = inspector.queue("emails")

    assert (view.ready, view.pending, view.fetched, view.not_started) == (1, 4, 3, 4)
    assert kinds(max_ready=4) == []
    assert kinds(max_ready=3) == ["ready"]
    assert sentence(view, "ready") == "has 4 messages that have not started."


def test_the_older_of_a_ready_and_a_fetched_message_decides(redis_client):
    add(redis_client, 70_000)
    fetch(1)
    beat({BUSY: runs()})
    assert 70_000 <= inspector.queue("emails").waited_ms < AGE
    add(redis_client, AGE, stream=1)
    view = inspector.queue("emails")

    assert AGE <= view.waited_ms < AGE + 60_000
    assert "oldest ready message" in sentence(view, "late")


def test_one_that_started_since_the_heartbeat_is_taken_for_the_one_after_those_that_ended(redis_client):
    add(redis_client, AGE + 200_000, AGE + 100_000, AGE)
    first, *_ = fetch(3)
    beat({BUSY: runs(first)})
    open_store(get_config().queue("emails"), Session(get_client("consume")))
    redis_client.xack(get_config().queue("emails").keys.ready, "mq", first.entry)

    view = inspector.queue("emails")

    assert view.fetched == 1
    assert AGE <= view.fetched_ms < AGE + 60_000


def test_more_may_run_than_a_heartbeat_lists(redis_client):
    add(redis_client, *range(AGE + 50, AGE, -1), 30_000)
    listed = fetch(51)[:20]
    beat({BUSY: runs(*listed, runs=50)})

    view = inspector.queue("emails")

    assert view.fetched == 1
    assert 30_000 <= view.fetched_ms < AGE


def test_what_others_hold_without_saying_what_they_run_may_run(redis_client, subtests):
    for told in [{}, {"running": 7}, {"running": [[0, "1-1", 5]] * 20}]:
        with subtests.test(told=told):
            add(redis_client, AGE)
            fetch(1, "elsewhere")
            beat({"elsewhere": told, BUSY: runs()})

            assert kinds() == []


def test_a_group_of_a_topic_holds_messages_of_its_log(redis_client):
    Log(topics["events"].config, open_session("produce")).subscribe("billing", start="beginning")
    add(redis_client, AGE + 100_000, AGE, stream=2, queue="events:billing")
    first, _ = fetch(2, queue="events:billing")
    beat({BUSY: runs(first)}, "events:billing")

    (problem,) = inspector.problems("events:billing")

    assert problem.kind == "late"
    assert AGE <= problem.figure * 1000 < AGE + 60_000


def test_in_the_format_of_rsmq_they_are_counted_and_have_no_age():
    for number in range(3):
        publish("letters", "welcome", number)
    first, *_ = fetch(3, queue="letters")
    beat({BUSY: runs(first)}, "letters")

    view = inspector.queue("letters")

    assert (view.ready, view.pending, view.fetched, view.fetched_ms) == (0, 3, 2, None)


def test_all_queues_are_read_in_one_more_round_trip_and_idle_ones_in_none(redis_client, monkeypatch):
    pipelines = []
    for queue in ("emails", "imports"):
        add(redis_client, AGE, queue=queue)
        beat({BUSY: runs(*fetch(1, queue=queue))}, queue)

    def noted(transports, sent):
        pipelines.append(len(sent))
        return fan_out(transports, sent)

    monkeypatch.setattr("mq_django.inspector.statistics.fan_out", noted)
    inspector.overview()
    monkeypatch.undo()
    # After the one that reads all queues.
    assert pipelines[1:] == [0]
    for queue in ("emails", "imports"):
        beat({BUSY: runs()}, queue)
    before = script_calls(redis_client)

    assert [view.fetched for view in inspector.overview(["emails", "imports"])] == [1, 1]

    # No script: the two of the queues were called before, too.
    assert script_calls(redis_client) - before == 2


def test_a_server_that_goes_away_meanwhile_costs_the_figures_and_not_the_page(redis_client, monkeypatch):
    add(redis_client, AGE)
    fetch(1)
    beat({BUSY: runs()})

    def fail(transports, sent):
        if any(command[0] == "XPENDING" for commands in sent for command in commands):
            raise ConnectionLost("gone")
        return fan_out(transports, sent)

    monkeypatch.setattr("mq_django.inspector.statistics.fan_out", fail)

    view = inspector.queue("emails")
    assert (view.pending, view.fetched, view.error) == (1, 0, "")
