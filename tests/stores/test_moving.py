"""Dead letters go to another queue: of any kind, on any server, and once, whenever the process that moves them ends."""

import pytest

from mq_django.conf import get_config
from mq_django.core.jsontext import dumps
from mq_django.core.messages import ACK, Bury, Delivery
from mq_django.core.publication import publication
from mq_django.core.retries import read_history
from mq_django.errors import StoreError
from mq_django.inspector.dead_letters import groups
from mq_django.stores import open_store
from mq_django.stores.background_jobs import FULL, IDLE, LEASE_MS, BackgroundJobs, JobOrder
from mq_django.stores.base import Settlement
from mq_django.stores.dead_letters import JobStep, open_dead_letters
from mq_django.stores.moving import Mover
from mq_django.stores.results import find_result
from mq_django.transport.connections import get_client, open_transport
from mq_django.transport.private_server import PrivateServer
from mq_django.transport.sessions import Session
from tests.stores.acts import settle, take_all

pytestmark = pytest.mark.usefixtures("mq_settings")

#: Queues of both formats, on one server and on two, in both directions.
PAIRS = [
    ("stream", "limited"),
    ("limited", "rsmq"),
    ("rsmq", "stream"),
    ("rsmq", "rsmq"),
    ("stream", "elsewhere"),
    ("elsewhere", "rsmq elsewhere"),
    ("rsmq elsewhere", "rsmq"),
    ("rsmq", "elsewhere"),
]


@pytest.fixture(scope="module")
def other_server():
    with PrivateServer() as server:
        yield server


@pytest.fixture
def options(namespace, other_server):
    """Options of a queue of each kind."""
    rsmq = {"STORE": "rsmq", "NAMESPACE": f"{namespace}:r"}
    apart = {"CONNECTION": other_server.url}
    return {
        "stream": {},
        "limited": {"CONCURRENCY": 5},
        "rsmq": rsmq,
        "elsewhere": apart,
        "rsmq elsewhere": {**rsmq, **apart},
        "full": {"MAX_DEPTH": 3},
        "full rsmq": {**rsmq, "MAX_DEPTH": 3},
        "small": {"MAX_SIZE": 50},
        "small rsmq": {**rsmq, "MAXSIZE": 1024},
    }


@pytest.fixture
def configure(mq_settings, options):
    """Configure the queues `emails` and `bulk` of two kinds."""

    def configure(source="stream", target="stream"):
        mq_settings(QUEUES={"emails": options[source], "bulk": options[target]})

    configure()
    return configure


def store(name):
    config = get_config().queue(name)
    found = open_store(config, Session(get_client("consume", config.connection)))
    found.create_groups()
    return found


def bury(data=None, name="welcome", error="ValueError: no", **options):
    """Fail a message of `emails` for good, and return its id."""
    queue = store("emails")
    (message_id,) = queue.publish([publication(queue.config, name, data, **options)])
    settle(queue, Bury(error, "Traceback 1", reason="attempts"))
    return message_id


def letters():
    config = get_config().queue("emails")
    return open_dead_letters(config, open_transport("inspect", config.connection))


def entries():
    return [letter.entry for letter in letters().traits(limit=500)]


def mover():
    config = get_config()
    source = config.queue("emails")
    return Mover(source, open_transport("inspect", source.connection), config.queue("bulk"))


def move(chosen=None):
    chosen, moving = entries() if chosen is None else chosen, mover()
    words, is_full = moving.write(chosen)
    moving.remove(chosen, words)
    return [*words, *(["FULL"] if is_full else [])]


def depths():
    """Return the dead letters that are left, and what is ready in the target."""
    return store("emails").depths().dead, store("bulk").depths().ready


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_message_is_the_same_in_the_other_queue_at_its_first_attempt(configure, source, target):
    configure(source, target)
    sent = bury({"n": "zw\u00f6lf"}, key="user:7", headers={"tenant": "a"}, expires=3600)
    (published_ms,) = [letter.published_ms for letter in letters().traits(limit=5)]

    assert move() == ["ACCEPTED"]

    assert store("emails").depths() == (0,) * 6
    assert groups("emails") == []
    assert letters().find([sent]) == [None]
    (delivery,) = take_all(store("bulk"))
    found = delivery.message
    assert (found.name, found.data, found.queue, found.attempt) == ("welcome", {"n": "zw\u00f6lf"}, "bulk", 1)
    assert (found.key, dict(found.headers), found.expires_ms) == ("user:7", {"tenant": "a"}, None)
    assert found.published_ms == published_ms
    # RSMQ gives ids of its own form, which are valid in all queues.
    assert (found.id == sent) == ("rsmq" in source or "rsmq" not in target)
    (attempt,) = read_history(delivery.history)
    assert (attempt.status, attempt.error, attempt.traceback) == ("FAILED", "ValueError: no", "Traceback 1")


def test_what_only_streams_have_is_kept_there(configure, redis_client):
    bury(1, priority=5, unique="cart:7", unique_for=60)
    move()
    (delivery,) = take_all(store("bulk"))
    assert (delivery.message.priority, delivery.message.unique) == (5, "cart:7")
    assert not redis_client.exists(store("bulk").keys.claims)


def test_what_rsmq_has_no_place_for_is_left_out(configure):
    configure("stream", "rsmq")
    bury(1, priority=5, unique="cart:7", unique_for=60, key="k")
    move()
    (delivery,) = take_all(store("bulk"))
    assert (delivery.message.priority, delivery.message.unique, delivery.message.key) == (0, None, "k")


def test_a_text_of_another_program_stays_a_text(configure, redis_client):
    configure("rsmq", "rsmq")
    queue = store("emails")
    queue.publish([publication(queue.config, "message", "plain text")])
    settle(queue, Bury("no"))
    move()
    keys = store("bulk").keys
    (message_id,) = redis_client.zrange(keys.zset, 0, -1)
    assert redis_client.hget(keys.hash, message_id) == b"plain text"
    assert redis_client.hget(keys.hash, "totalsent") == b"1"


@pytest.mark.parametrize(
    ("source", "target"),
    [("stream", "stream"), ("stream", "rsmq elsewhere"), ("rsmq", "elsewhere"), ("elsewhere", "rsmq")],
)
def test_who_is_killed_after_writing_and_begins_again_writes_nothing_twice(configure, source, target):
    configure(source, target)
    for number in range(3):
        bury(number)

    assert mover().write(entries()).words == ["ACCEPTED"] * 3
    assert depths() == (3, 3)
    # A consumer of the target is faster than the one that begins again.
    (first, *_) = take_all(store("bulk"))
    assert store("bulk").settle("c1", [Settlement(first, ACK)]) == []

    assert move() == ["KNOWN"] * 3
    assert store("emails").depths().dead == 0
    assert store("bulk").depths().depth == 2


def test_who_fails_again_may_be_moved_again(configure):
    sent = bury(1)
    move()
    settle(store("bulk"), Bury("again", reason="attempts"))
    config, transport = get_config(), open_transport("inspect")
    back = Mover(config.queue("bulk"), transport, config.queue("emails"))
    again = [letter.entry for letter in open_dead_letters(config.queue("bulk"), transport).traits(limit=5)]
    back.remove(again, back.write(again).words)
    settle(store("emails"), Bury("third", reason="attempts"))

    assert move() == ["ACCEPTED"]

    (delivery,) = take_all(store("bulk"))
    assert delivery.message.id == sent
    assert [attempt.error for attempt in read_history(delivery.history)] == ["ValueError: no", "again", "third"]


def test_origins_are_forgotten_after_a_week(configure, redis_client):
    bury(1)
    key = store("bulk").keys.moved
    redis_client.zadd(key, {"old": 1})
    move()
    (origin,) = redis_client.zrange(key, 0, -1)
    assert origin.startswith(store("emails").keys.dead.encode())
    assert 0 < redis_client.ttl(key) <= 7 * 24 * 3600


@pytest.mark.parametrize("target", ["full", "full rsmq"])
def test_a_full_queue_takes_what_it_may_hold(configure, target):
    configure("stream", target)
    for number in range(5):
        bury(number)

    assert move() == ["ACCEPTED"] * 3 + ["FULL"]
    assert depths() == (2, 3)
    assert move() == ["FULL"]
    settle(store("bulk"), ACK)
    assert move() == ["ACCEPTED"] * 2
    assert depths() == (0, 2)


@pytest.mark.parametrize("target", ["small", "small rsmq"])
def test_what_is_too_long_for_the_other_queue_stays(configure, target):
    configure("stream", target)
    bury("x" * 2000)
    fits = bury("y")
    assert move() == ["TOOLONG", "ACCEPTED"]
    assert depths() == (1, 1)
    assert letters().find([fits]) == [None]


def test_what_is_no_message_stays_and_what_is_gone_is_missing(configure, redis_client):
    redis_client.xadd(store("emails").keys.dead, {"id": "raw", "deadraw": "x"}, "1-1")
    bury(1)
    first, second = entries()
    assert move([first, "5-5", second]) == ["UNDECODABLE", "MISSING", "ACCEPTED"]
    assert entries() == [first]


def test_an_id_that_rsmq_has_already_is_refused(configure):
    configure("stream", "rsmq")
    taken = "jo00000001" + "x" * 22
    bury(1, message_id=taken)
    target = store("bulk")
    target.publish([publication(target.config, "other", 2, message_id=taken)])
    assert move() == ["EXISTS"]
    assert depths() == (1, 1)


def test_a_history_that_is_too_long_beside_the_data_is_left_out(configure, redis_client):
    keys = store("emails").keys
    fields = {"id": "m1", "type": "t", "data": dumps("x" * 200_000), "deadstory": "y" * 900_000}
    redis_client.xadd(keys.dead, fields)
    assert move() == ["ACCEPTED"]
    (delivery,) = take_all(store("bulk"))
    assert (isinstance(delivery, Delivery), delivery.history, len(delivery.message.data)) == (True, "", 200_000)


def test_many_long_messages_are_moved_in_several_steps(configure):
    for _ in range(22):
        bury("x" * 200_000)
    assert len(mover().write(entries()).words) == 20
    while move():
        pass
    assert depths() == (0, 22)


def test_a_group_of_a_topic_gives_and_takes_for_itself_alone(mq_settings):
    mq_settings(QUEUES={"emails": {}}, TOPICS={"orders": {}})
    config, transport = get_config(), open_transport("inspect")
    billing, other = store("orders:billing"), store("orders:other")
    bury(7)
    moving = Mover(config.queue("emails"), transport, billing.config)
    chosen = entries()
    moving.remove(chosen, moving.write(chosen).words)

    settle(billing, Bury("no", reason="attempts"))
    back = Mover(billing.config, transport, config.queue("emails"))
    chosen = [letter.entry for letter in open_dead_letters(billing.config, transport).traits(limit=5)]
    back.remove(chosen, back.write(chosen).words)

    (delivery,) = take_all(store("emails"))
    assert (delivery.message.data, delivery.message.queue) == (7, "emails")
    assert take_all(other) == take_all(billing) == []


# -- results of tasks


def bury_task():
    queue = store("emails")
    made = publication(queue.config, "shop.send", {"args": []}, runs_task=True)
    (message_id,) = queue.publish([made])
    settle(queue, Bury("ValueError: no", "T", reason="attempts"), keeps_result=True)
    return message_id


def result_of(message_id, *names):
    configs = [get_config().queue(name) for name in names]
    return find_result([open_transport("inspect", config.connection) for config in configs], configs, message_id)


@pytest.mark.parametrize("target", ["stream", "elsewhere"])
def test_the_result_of_a_task_goes_with_it(configure, target):
    configure("stream", target)
    sent = bury_task()
    move()
    assert result_of(sent, "emails") is None
    found = result_of(sent, "bulk")
    assert (found.queue, found.name) == ("bulk", "shop.send")


def test_a_result_that_the_other_queue_has_already_is_not_written_over(configure, redis_client):
    sent = bury_task()
    mover().write(entries())
    key = store("bulk").keys.result(sent)
    redis_client.append(key, b'\n{"status":"SUCCESSFUL","entry":"9999999999999-9","consumer":"c1"}')

    assert move() == ["KNOWN"]

    assert result_of(sent, "emails", "bulk").status == "SUCCESSFUL"


def test_the_result_stays_where_the_other_queue_keeps_none(configure):
    configure("stream", "rsmq")
    sent = bury_task()
    move()
    assert result_of(sent, "emails").queue == "emails"


# -- jobs


def jobs():
    return BackgroundJobs(get_config().queue("emails"), open_transport("inspect"))


def begin(rate=0):
    total, ((newest, _),) = letters().read(limit=1, newest_first=True)
    assert jobs().begin(JobOrder(what="move", who="ann", until=newest, target="bulk"), total=total, rate=rate)


def bury_many(count):
    queue = store("emails")
    queue.publish([publication(queue.config, "welcome", {"n": number}) for number in range(count)])
    settle(queue, Bury("ValueError: no", reason="attempts"))


def work_off(worker="w1"):
    while jobs().work(worker) != IDLE:
        pass
    return jobs().read()["dead"]


@pytest.mark.parametrize("target", ["limited", "rsmq", "elsewhere"])
def test_a_job_moves_all_of_them(configure, target, redis_client):
    configure("stream", target)
    bury_many(250)
    redis_client.xadd(store("emails").keys.dead, {"id": "raw", "deadraw": "x"})
    begin()

    found = work_off()

    assert (found.order.what, found.order.target, found.state) == ("move", "bulk", "finished")
    assert (found.done, found.refused, found.missing, found.looked) == (250, 1, 0, 251)
    assert depths() == (1, 250)


class Killed(BaseException):
    """The process is gone."""


def kill_at_trip(monkeypatch, number):
    """End the process before a pipeline to Redis is sent. After one it leaves what it leaves before the next."""
    pipeline, made = type(open_transport("inspect")).pipeline, iter(range(1, 1000))

    def dies(self, commands):
        if next(made) < number:
            return pipeline(self, commands)
        raise Killed

    monkeypatch.setattr(type(open_transport("inspect")), "pipeline", dies)


@pytest.mark.parametrize("target", ["stream", "rsmq", "elsewhere"])
def test_another_worker_goes_on_wherever_the_first_was_killed(configure, monkeypatch, target, redis_client):
    configure("stream", target)
    trip_of_death, killed = 0, True
    while killed:
        trip_of_death += 1
        for name in ("emails", "bulk"):
            for key in get_client("inspect", get_config().queue(name).connection).scan_iter(f"*{name}*"):
                get_client("inspect", get_config().queue(name).connection).delete(key)
        bury_many(30)
        begin()
        with monkeypatch.context() as dying:
            kill_at_trip(dying, trip_of_death)
            try:
                jobs().work("w1")
                killed = False
            except Killed:
                pass
        redis_client.hset(store("emails").keys.jobs, "dead:lease", 1)

        found = work_off("w2")

        assert (found.state, found.done, found.looked) == ("finished", 30, 30), trip_of_death
        numbers = [delivery.message.data["n"] for delivery in take_all(store("bulk"))]
        assert sorted(numbers) == list(range(30)), trip_of_death
        assert store("emails").depths().dead == 0
    # Claiming, reading what filters use, the messages and the results, writing, and removing.
    assert trip_of_death > 6


def test_a_cancelled_job_leaves_no_message_in_both_queues(configure, monkeypatch):
    bury_many(3)
    begin()
    write = Mover.write

    def write_and_cancel(self, chosen):
        found = write(self, chosen)
        assert jobs().cancel()
        return found

    monkeypatch.setattr(Mover, "write", write_and_cancel)
    jobs().work("w1")

    assert jobs().read()["dead"].state == "cancelled"
    assert depths() == (0, 3)


def test_a_job_waits_for_room_in_a_full_queue(configure):
    configure("stream", "full")
    bury_many(5)
    begin()
    assert jobs().work("w1") == FULL
    assert jobs().work("w1") == FULL
    assert (jobs().read()["dead"].done, jobs().read()["dead"].looked, jobs().read()["dead"].state) == (3, 3, "running")
    settle(store("bulk"), ACK)
    assert work_off().done == 5
    assert depths() == (0, 2)


def test_a_job_to_a_queue_that_is_not_configured_here_is_cancelled(configure, mq_settings):
    bury_many(2)
    begin()
    mq_settings(QUEUES={"emails": {}})
    assert jobs().work("w1") == IDLE
    assert jobs().read()["dead"].state == "cancelled"
    assert store("emails").depths().dead == 2


@pytest.mark.parametrize("fields", [{"dead:target": ""}, {"dead:what": "redrive"}])
def test_a_job_that_does_not_say_where_to_is_none(configure, redis_client, fields):
    bury_many(2)
    begin()
    redis_client.hset(store("emails").keys.jobs, mapping=fields)
    assert jobs().read() == {}
    jobs().work("w1")
    assert depths() == (2, 0)


def test_who_lost_the_job_counts_nothing(configure, redis_client):
    bury_many(2)
    begin()
    redis_client.hset(store("emails").keys.jobs, mapping={"dead:worker": "w2", "dead:lease": 2**50})
    chosen, moving = entries(), mover()
    moving.remove(chosen, moving.write(chosen).words, step=JobStep("w1", chosen[-1], 2, LEASE_MS))
    assert (jobs().read()["dead"].done, depths()) == (0, (0, 2))


def test_a_target_whose_server_is_away_is_an_error_of_this_job_alone(mq_settings):
    with PrivateServer() as server:
        mq_settings(QUEUES={"emails": {}, "bulk": {"CONNECTION": server.url}})
        bury_many(3)
        begin()
        server.kill()

        with pytest.raises(StoreError, match="Queue 'bulk': Cannot reach Redis") as raised:
            jobs().work("w1")

    assert type(raised.value) is StoreError
    assert (jobs().read()["dead"].state, store("emails").depths().dead) == ("running", 3)
