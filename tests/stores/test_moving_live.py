"""Messages that are ready or wait go to another queue: from any state, to any kind, and once, whoever is killed."""

import itertools
import math

import pytest

from mq_django.conf import get_config
from mq_django.core.messages import Retry
from mq_django.core.publication import publication
from mq_django.core.retries import read_history
from mq_django.inspector import dead_letters
from mq_django.inspector.jobs import move as move_selected
from mq_django.inspector.message_lists import messages
from mq_django.stores.background_jobs import FULL, IDLE, BackgroundJobs, JobOrder
from mq_django.stores.dead_letters import JobStep, open_dead_letters
from mq_django.stores.message_scans import Cursor, scan_state
from mq_django.stores.moving import Mover
from mq_django.transport.connections import get_client, open_transport
from tests.stores.acts import settle, take_all
from tests.stores.test_moving import (  # noqa: F401 - fixtures
    Killed,
    configure,
    depths,
    kill_at_trip,
    options,
    other_server,
    store,
)

pytestmark = pytest.mark.usefixtures("mq_settings")

UNTIL = "99999999999999-0"


def jobs():
    config = get_config().queue("emails")
    return BackgroundJobs(config, open_transport("inspect", config.connection))


def begin(state, total=1):
    order = JobOrder(messages=state, what="move", who="ann", until=UNTIL, target="bulk")
    assert jobs().begin(order, total=total)


def work_off(state, worker="w1"):
    for _ in range(1000):
        if (pause := jobs().work(worker, state)) == IDLE:
            return jobs().read()[state]
        if pause == FULL:
            return jobs().read()[state]
    raise AssertionError("the job does not end")


def publish(data=None, name="welcome", **options):  # noqa: F811 - options of a publish
    queue = store("emails")
    (message_id,) = queue.publish([publication(queue.config, name, data, **options)])
    return message_id


def move(state, total=1):
    begin(state, total)
    return work_off(state)


def reasons():
    config = get_config().queue("emails")
    letters = open_dead_letters(config, open_transport("inspect", config.connection))
    return [letter.error for letter in letters.traits(limit=500)]


PAIRS = [
    ("stream", "stream"),
    ("stream", "rsmq"),
    ("rsmq", "stream"),
    ("rsmq", "rsmq"),
    ("elsewhere", "rsmq elsewhere"),
    ("stream", "elsewhere"),
]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_ready_message_is_the_same_in_the_other_queue(configure, source, target):  # noqa: F811
    configure(source, target)
    sent = publish({"n": "zw\u00f6lf"}, key="user:7", headers={"tenant": "a"}, expires=3600)

    found = move("ready")

    assert (found.state, found.done, found.missing, found.refused) == ("finished", 1, 0, 0)
    assert store("emails").depths() == (0,) * 6
    (delivery,) = take_all(store("bulk"))
    message = delivery.message
    assert (message.name, message.data, message.queue, message.attempt) == ("welcome", {"n": "zw\u00f6lf"}, "bulk", 1)
    assert (message.key, dict(message.headers)) == ("user:7", {"tenant": "a"})
    # Unlike a dead letter it has not failed, so it still expires.
    assert message.expires_ms is not None
    assert (message.id == sent) == ("rsmq" in source or "rsmq" not in target)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_delayed_message_keeps_its_time_and_its_attempts(configure, source, target):  # noqa: F811
    configure(source, target)
    publish(1)
    queue = store("emails")
    settle(queue, Retry(None, "ValueError: no", "T"), delay_ms=3_600_000)
    due_ms = due_times("emails")

    assert move("delayed").done == 1

    assert due_times("bulk") == due_ms
    assert store("emails").depths() == (0,) * 6
    client, key = waiters("bulk")
    client.zadd(key, dict.fromkeys(client.zrange(key, 0, -1), 1))
    store("bulk").promote(limit=10)
    (delivery,) = take_all(store("bulk"))
    (attempt,) = read_history(delivery.history)
    assert (attempt.error, attempt.traceback) == ("ValueError: no", "T")
    if "rsmq" not in source + target:
        assert delivery.message.attempt == 2


def waiters(name):
    config = get_config().queue(name)
    return get_client("inspect", config.connection), getattr(config.keys, "zset", None) or config.keys.due


def due_times(name):
    client, key = waiters(name)
    return [math.ceil(score) for _, score in client.zrange(key, 0, -1, withscores=True)]


def test_a_unique_key_of_a_delayed_message_is_its_own_in_the_other_queue(configure):  # noqa: F811
    configure("stream", "stream")
    publish(1, delay=3600, unique="cart:7")
    move("delayed")
    target = store("bulk")
    # Another message with the key replaces it there, and the key is free here.
    target.publish([publication(target.config, "welcome", 2, delay=60, unique="cart:7")])
    publish(3, delay=60, unique="cart:7")
    assert (store("bulk").depths().delayed, store("emails").depths().delayed) == (1, 1)


def test_a_delayed_message_whose_key_is_taken_there_stays(configure):  # noqa: F811
    configure("stream", "stream")
    sent = publish(1, delay=3600, unique="cart:7")
    target = store("bulk")
    target.publish([publication(target.config, "welcome", 2, delay=60, unique="cart:7")])

    found = move("delayed")

    assert (found.done, found.refused, found.state) == (0, 1, "finished")
    assert store("emails").find("u:cart:7").message.id == sent
    assert reasons() == []


@pytest.mark.parametrize("state", ["unhandled", "parked"])
def test_what_waits_for_a_handler_or_its_key_becomes_ready_there(configure, state, redis_client):  # noqa: F811
    keys = store("emails").keys
    redis_client.hset(keys.waiting, "m1", b'{"type":"welcome","partitionkey":"k","time":1700000000000,"data":7}')
    redis_client.zadd(getattr(keys, state), {"m1": 1})

    assert move(state).done == 1

    (delivery,) = take_all(store("bulk"))
    assert (delivery.message.id, delivery.message.data) == ("m1", 7)
    assert store("emails").depths() == (0,) * 6


@pytest.mark.parametrize("target", ["small", "small rsmq"])
def test_what_the_other_queue_refuses_stays_in_its_place(configure, target):  # noqa: F811
    configure("stream", target)
    for _ in range(45):
        publish("x" * 2000)
    publish("y")

    found = move("ready", 46)

    assert (found.done, found.refused, found.looked, found.state) == (1, 45, 46, "finished")
    assert store("emails").depths().ready == 45
    assert store("bulk").depths().ready == 1
    assert reasons() == []


@pytest.mark.parametrize("target", ["full", "full rsmq"])
def test_a_job_waits_for_a_full_queue_and_leaves_the_others_in_their_place(configure, target):  # noqa: F811
    configure("stream", target)
    for number in range(5):
        publish(number)
    begin("ready", 5)

    assert work_off("ready").done == 3
    assert store("emails").depths() == (2, 0, 0, 0, 0, 0)
    taken = take_all(store("bulk"))
    assert [delivery.message.data for delivery in taken] == [0, 1, 2]


def test_many_long_messages_are_moved_in_several_steps(configure):  # noqa: F811
    for _ in range(22):
        publish("x" * 200_000)
    found = move("ready", 22)
    assert (found.done, found.looked, found.refused) == (22, 22, 0)
    assert depths() == (0, 22)


def test_what_is_no_message_stays(configure, redis_client):  # noqa: F811
    redis_client.xadd(store("emails").keys.ready, {"nothing": "x"})
    publish(1)
    found = move("ready", 2)
    assert (found.done, found.refused) == (1, 1)
    assert store("emails").depths().ready == 1


def test_who_takes_a_message_first_has_it_alone(configure, monkeypatch):  # noqa: F811
    publish(1)
    begin("ready")
    pipeline, taken = type(open_transport("inspect")).pipeline, []

    def overtaken(self, commands):
        if commands[0][0] == "XRANGE":
            found = pipeline(self, commands)
            monkeypatch.undo()
            taken.extend(store("emails").take("c1", count=5))
            return found
        return pipeline(self, commands)

    monkeypatch.setattr(type(open_transport("inspect")), "pipeline", overtaken)
    found = work_off("ready")
    assert (len(taken), found.done, found.missing) == (1, 0, 1)
    assert take_all(store("bulk")) == []
    assert reasons() == []


def test_a_message_that_was_replaced_meanwhile_is_not_moved(configure):  # noqa: F811
    publish(1, delay=3600, unique="cart:7")
    step = JobStep("", "", 0, 0, "delayed")
    config, transport = get_config().queue("emails"), open_transport("inspect")
    source, found, _ = scan_state(config, transport, "delayed", Cursor(), 10)

    class Late:
        """Returns what it has read after another message has replaced it."""

        def named(self):
            return source.named()

        def whole(self, members):
            read = source.whole(members)
            publish(2, delay=60, unique="cart:7")
            return read

    held = Mover(config, transport, get_config().queue("bulk")).hold(Late(), [found[0].member], step=step)
    assert (held.entries, held.words) == ([], ["MISSING"])
    assert store("emails").find("u:cart:7").message.data == 2


@pytest.mark.parametrize(
    ("source", "target", "state"),
    [
        ("stream", "stream", "ready"),
        ("stream", "elsewhere", "ready"),
        ("stream", "rsmq", "delayed"),
        ("rsmq", "stream", "ready"),
    ],
)
def test_another_worker_goes_on_wherever_the_first_was_killed(
    configure,  # noqa: F811
    monkeypatch,
    source,
    target,
    state,
):
    configure(source, target)
    for trip_of_death in itertools.count(1):
        for name in ("emails", "bulk"):
            client = get_client("inspect", get_config().queue(name).connection)
            for key in client.scan_iter(f"*{name}*"):
                client.delete(key)
        for number in range(5):
            publish(number, **({"delay": 3600} if state == "delayed" else {}))
        begin(state, 5)
        killed = True
        with monkeypatch.context() as dying:
            kill_at_trip(dying, trip_of_death)
            try:
                work_off(state)
                killed = False
            except Killed:
                pass
        # At no moment is a message in both queues where a consumer could get it.
        both = store("emails").depths(), store("bulk").depths()
        assert sum(found.ready + found.delayed for found in both) <= 5, trip_of_death
        config = get_config().queue("emails")
        get_client("inspect", config.connection).hset(config.keys.jobs, f"{state}:lease", 1)

        found = work_off(state, "w2")

        assert (found.state, found.done, found.refused) == ("finished", 5, 0), trip_of_death
        assert store("emails").depths() == (0,) * 6
        if state == "delayed":
            assert store("bulk").depths().delayed == 5
        else:
            taken = [delivery.message.data for delivery in take_all(store("bulk"))]
            assert sorted(taken) == list(range(5)), trip_of_death
        if not killed:
            break
    # Claiming, scanning, reading, asking the target, holding, writing, and removing.
    assert trip_of_death > 9


@pytest.mark.parametrize("target", ["stream", "rsmq"])
def test_a_page_that_is_killed_leaves_dead_letters_that_are_moved_again(configure, monkeypatch, target):  # noqa: F811
    configure("stream", target)
    for trip_of_death in itertools.count(1):
        for name in ("emails", "bulk"):
            for key in get_client("inspect").scan_iter(f"*{name}*"):
                get_client("inspect").delete(key)
        for number in range(3):
            publish(number)
        refs, killed = [row.ref for row in messages("emails", "ready", limit=9).rows], True
        with monkeypatch.context() as dying:
            kill_at_trip(dying, trip_of_death)
            try:
                move_selected("emails", "ready", "bulk", refs)
                killed = False
            except Killed:
                pass

        left = [row.ref for row in messages("emails", "dead", limit=9).rows]
        assert {row.reason for row in messages("emails", "dead", limit=9).rows} <= {"moved"}
        dead_letters.move("emails", "bulk", left)
        move_selected("emails", "ready", "bulk", refs)

        assert store("emails").depths() == (0,) * 6
        assert sorted(delivery.message.data for delivery in take_all(store("bulk"))) == [0, 1, 2], trip_of_death
        if not killed:
            break
    assert trip_of_death > 4
