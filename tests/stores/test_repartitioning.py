"""Another number of partitions: everything is moved once, whatever ends the process, and keys keep their order."""

import pytest
from django.core.management import CommandError

from mq_django import inspect, schedules
from mq_django.conf import get_config
from mq_django.core.message_format import decode_entry
from mq_django.core.messages import ACK, Bury, CancelResult, HandBack
from mq_django.core.partitions import partition_of
from mq_django.errors import AlreadyPublished, QueueClosed
from mq_django.management import capacity_verbs
from mq_django.producers import queues
from mq_django.stores import open_store, repartitioning
from mq_django.stores.base import Settlement
from mq_django.stores.repartitioning import Repartitioning
from mq_django.transport.connections import open_transport
from mq_django.transport.sessions import Transport
from tests.management.test_mq import mq
from tests.stores.repartition_seeds import KEYS, Seeded, client_of, take

ORDERED = {"ORDERED": True, "ON_DEAD_LETTER": "hold"}


class Killed(BaseException):
    """The process is gone."""


class Mortal(Transport):
    """A transport on which the process ends before one of its pipelines that write.

    Before a pipeline that reads it would leave the same, and after one what it leaves before the next.
    """

    READS = {"HMGET", "HGETALL", "XPENDING", "XLEN", "XRANGE", "PTTL"}

    def __init__(self, transport, pipelines):
        self._transport, self.left = transport, pipelines

    def pipeline(self, commands):
        self.left -= commands[0][0] not in self.READS
        if self.left == 0:
            raise Killed
        return self._transport.pipeline(commands)

    def pipelines(self, pipelines):
        return [self.pipeline(commands) for commands in pipelines]


@pytest.fixture
def seeded(mq_settings):
    return Seeded(mq_settings)


@pytest.fixture
def steps(monkeypatch):
    """Let each partition be moved in two or three steps."""
    monkeypatch.setattr(repartitioning, "BATCH", 30)
    monkeypatch.setattr(repartitioning, "FIRST", 10)


def repartition(number, *more):
    return mq("repartition", "emails", str(number), "--yes", *more)


def check_order(handled, sent):
    for key in KEYS:
        assert handled[key] == sorted(handled[key]), key
        assert len(handled[key]) == len(sent[key]), key


@pytest.mark.parametrize(
    ("old", "new", "options"), [(2, 20, {}), (3, 1, ORDERED), (1, 5, ORDERED), (4, 8, ORDERED), (8, 3, {"FAIR": True})]
)
def test_every_message_is_in_its_new_partition_and_keys_keep_their_order(seeded, old, new, options):
    seeded.with_number(old, **options)
    sent = seeded.fill()
    contents, tokens = seeded.contents(), seeded.tokens()
    repartition(new)
    seeded.with_number(new)
    assert seeded.contents() == contents
    assert seeded.tokens() == tokens
    for part in seeded.whole.each_part:
        for place in ("ready", "front"):
            for _, fields in client_of(part).xrange(getattr(part.keys, place)):
                flat = [each for pair in fields.items() for each in pair]
                message = decode_entry(flat, queue="", stream=0, entry=b"1-1").message
                assert seeded.whole.partition_for(key=message.key, unique=message.unique, message_id=message.id) == part
    handled = seeded.handle_all()
    if options == ORDERED:
        check_order(handled, sent)
    assert sum(map(len, handled.values())) == sum(contents.values())


@pytest.fixture
def killed_at(monkeypatch):
    """Return whether the command was killed at a pipeline, counted from 1; else it has ended before."""

    def run(number):
        opened = capacity_verbs.open_transport
        with monkeypatch.context() as patch:
            patch.setattr(capacity_verbs, "open_transport", lambda *at: Mortal(opened(*at), number))
            try:
                repartition(1)
            except Killed:
                return True
        return False

    return run


def test_a_killed_process_loses_nothing_and_doubles_nothing(seeded, steps, killed_at, redis_client, namespace):
    seeded.with_number(2, **ORDERED)
    sent = seeded.fill()
    contents, tokens = seeded.contents(), seeded.tokens()
    saved = {key: redis_client.dump(key) for key in redis_client.scan_iter(match=f"{namespace}:*", count=1000)}
    number, was_killed = 0, True
    while was_killed:
        number += 1
        with redis_client.pipeline(transaction=False) as pipeline:
            for key in redis_client.scan_iter(match=f"{namespace}:*", count=1000):
                # One at a time: on a cluster they are on several nodes.
                pipeline.delete(key)
            for key, value in saved.items():
                pipeline.restore(key, 0, value)
            pipeline.execute()
        seeded.with_number(2)
        was_killed = killed_at(number)
        repartition(1)
        seeded.with_number(1)
        assert (seeded.contents(), seeded.tokens()) == (contents, tokens), number
        if number % 10 == 0:
            check_order(seeded.handle_all(), sent)
    assert number > 20


def test_while_it_goes_on_nothing_is_published_and_another_number_is_refused(seeded):
    seeded.with_number(4)
    queues["emails"].publish("sms", 1, key="a")
    change = Repartitioning(seeded.whole, seeded.transport)
    change.begin(2)
    change.pause("me")
    queues["emails"].publish("sms", 2, key="a")
    assert all(store.take("c1", count=1) == [] for store in seeded.stores())
    change.close("me")
    for options in ({}, {"delay": 60}, {"unique": "u", "unique_for": 60}, {"priority": 5}):
        with pytest.raises(QueueClosed, match="while its number of partitions is changed"):
            queues["emails"].publish("sms", 3, key="a", **options)
    with pytest.raises(CommandError, match="is being changed from 4 to 2"):
        repartition(8)
    with pytest.raises(CommandError, match="may have moved"):
        mq("repartition", "emails", "--abort")
    repartition(2)
    with pytest.raises(QueueClosed, match="has 2 partitions in Redis, and PARTITIONS is 4 here"):
        queues["emails"].publish("sms", 3, key="a")
    seeded.with_number(2)
    queues["emails"].publish("sms", 3, key="a")
    (taken,) = [found for store in seeded.stores() if (found := take(store))]
    assert [item.message.data for item in taken] == [1, 2, 3]


def test_it_waits_for_handlers_and_says_who_they_are(seeded):
    seeded.with_number(4)
    queues["emails"].publish("sms", 1, key="a")
    part = seeded.whole.partition_for(key="a")
    (store,) = [store for store in seeded.stores() if store.keys == part.keys]
    held = store.take("worker-7", count=1)
    with pytest.raises(CommandError, match=f"consumers still hold 1 messages .{part.name}: 1 by worker-7.") as found:
        repartition(8, "--timeout", "0.3")
    assert "or end that with --abort" in str(found.value)
    assert mq("repartition", "emails", "--abort") == "aborted\n"
    queues["emails"].publish("sms", 2, key="b")
    assert sum(len(take(store)) for store in seeded.stores()) == 1
    store.settle("worker-7", [Settlement(held[0], ACK)])
    with pytest.raises(CommandError, match="1 by c1"):
        repartition(8, "--timeout", "0.3")
    for store in seeded.stores():
        store.settle("c1", [Settlement(item, ACK) for item in store.held_by("c1", limit=9)])
    repartition(8)
    assert mq("repartition", "emails", "8", "--yes") == "Queue emails has this number of partitions already.\n"
    assert mq("repartition", "emails", "--abort") == "The number of partitions is not being changed.\n"


def test_a_queue_that_was_paused_stays_paused_in_its_new_partitions(seeded):
    seeded.with_number(2)
    queues["emails"].publish("sms", 1)
    for part in seeded.whole.parts:
        client_of(part).hset(
            part.keys.control,
            mapping={"paused": "1", "paused-by": "ann", "paused-reason": "a deploy", "paused-name": "deploy 7"},
        )
    repartition(3)
    seeded.with_number(3)
    for part in seeded.whole.parts:
        assert client_of(part).hmget(part.keys.control, "paused", "paused-by", "paused-reason", "paused-name") == [
            b"1",
            b"ann",
            b"a deploy",
            b"deploy 7",
        ]


def test_ids_unique_keys_and_dead_letters_are_found_afterwards(seeded):
    seeded.with_number(2)
    delayed = queues["emails"].publish("sms", 1, key="order:7", delay=60)
    queues["emails"].publish("sms", 2, unique="shop", unique_for=3600)
    queues["emails"].publish("sms", 3, unique="later", delay=60, at_most=60)
    due_ms = queues["emails"].find(unique="later").due_ms
    buried = queues["emails"].publish("bad", 4)
    for store in seeded.stores():
        outcomes = [(item, Bury("x") if item.message.id == buried else HandBack()) for item in take(store)]
        store.settle("c1", [Settlement(item, outcome) for item, outcome in outcomes])
    repartition(7)
    seeded.with_number(7)
    assert queues["emails"].find(delayed).message.id == delayed
    assert queues["emails"].cancel(delayed)
    queues["emails"].publish("sms", 4, unique="later", delay=3600)
    assert queues["emails"].find(unique="later").due_ms == due_ms
    with pytest.raises(AlreadyPublished):
        queues["emails"].publish("sms", 5, unique="shop", unique_for=3600)
    for store in seeded.stores():
        store.settle("c1", [Settlement(item, ACK) for item in take(store)])
    assert queues["emails"].publish("sms", 5, unique="shop", unique_for=3600)
    assert [place for place, found in seeded.contents() if found == buried.encode()] == ["dead"]
    part = seeded.whole.partition_for(key=None, message_id=buried)
    assert client_of(part).hlen(part.keys.dead_ids) == 1
    assert client_of(part).hlen(part.keys.dead_groups) == 1


def test_a_request_to_cancel_a_ready_message_moves_with_it(seeded):
    seeded.with_number(2)
    asked = queues["emails"].publish("sms", 1)
    assert queues["emails"].cancel(asked, running=True) is CancelResult.ASKED
    repartition(3)
    seeded.with_number(3)
    assert [store.is_cancelled(item) for store in seeded.stores() for item in take(store)] == [True]


def test_claims_without_a_message_follow_their_unique_key_unless_a_key_may_have_chosen_the_partition(seeded):
    seeded.with_number(2)
    queues["emails"].publish("sms", 1, delay=60)
    other = next(f"v{number}" for number in range(99) if partition_of(f"v{number}", 2) != partition_of("u", 2))
    for unique in ("u", other):
        part = seeded.whole.parts[partition_of("u", 2)]
        client_of(part).hset(
            part.keys.claims, mapping={f"k:{unique}": f"9999999999999:of-{unique}", f"i:of-{unique}": unique}
        )
    assert "1 claims of unique keys were forgotten" in repartition(5)
    seeded.with_number(5)
    part = seeded.whole.partition_for(key=None, unique="u")
    assert client_of(part).hgetall(part.keys.claims) == {b"k:u": b"9999999999999:of-u", b"i:of-u": b"u"}


def test_all_claims_notes_and_messages_are_moved_however_many_there_are(seeded):
    seeded.with_number(2)
    queues["emails"].publish("sms", 1, delay=60)
    part = seeded.whole.parts[0]
    client, keys = client_of(part), part.keys
    uniques = [f"u{n}" for n in range(12_000) if partition_of(f"u{n}", 2) == 0]
    for at in range(0, len(uniques), 1000):
        group = uniques[at : at + 1000]
        claims = {f"k:{unique}": f"9999999999999:of-{unique}" for unique in group}
        client.hset(keys.claims, mapping=claims | {f"i:of-{unique}": unique for unique in group})
        client.hset(keys.step_notes, mapping={f"w:0runrunrun.{unique[1:]}.1": "5 failed - no" for unique in group})
    client.hset(keys.step_notes, "#", 7)
    # Another program has deleted the bodies of those that are due first.
    client.zadd(keys.due, {f"gone-{n}": 1 for n in range(200)})
    client.zadd(keys.due, {"there": 2})
    client.hset(keys.waiting, "there", '{"id":"there","type":"sms","data":1}')

    assert f"moved: {2 * len(uniques) + 2}," in repartition(3)

    seeded.with_number(3)
    assert [client.exists(key) for key in (keys.due, keys.claims, keys.step_notes)] == [0, 0, 0]
    found = [
        {field for each in seeded.whole.parts for field in client_of(each).hkeys(getattr(each.keys, kind))} - {b"#"}
        for kind in ("claims", "step_notes", "waiting")
    ]
    assert [len(fields) for fields in found] == [2 * len(uniques), len(uniques), 2]


def test_results_and_progress_follow_their_messages(seeded):
    seeded.with_number(2)
    waiting, ended = (queues["emails"].publish("sms", n, key="order:7", delay=60) for n in range(2))
    part = seeded.whole.partition_for(key="order:7")
    for each in (waiting, ended):
        client_of(part).set(part.keys.result(each), f"result of {each}", px=60_000)
    client_of(part).hset(part.keys.progress(waiting), mapping={"done": 3, "run": "r"})
    client_of(part).pexpire(part.keys.progress(waiting), 60_000)
    assert queues["emails"].cancel(ended)
    client_of(part).set(part.keys.result(ended), f"result of {ended}", px=60_000)
    assert "results: 1" in repartition(9)
    seeded.with_number(9)
    new = seeded.whole.partition_for(key="order:7")
    assert client_of(new).get(new.keys.result(waiting)) == f"result of {waiting}".encode()
    assert client_of(new).hgetall(new.keys.progress(waiting)) == {b"done": b"3", b"run": b"r"}
    assert 0 < client_of(new).pttl(new.keys.progress(waiting)) <= 60_000
    likely = seeded.whole.partitions_for_id(ended)[0]
    assert client_of(likely).get(likely.keys.result(ended)) == f"result of {ended}".encode()


def test_holds_and_limits_that_were_changed_at_run_time_stay(seeded):
    seeded.with_number(1, CONCURRENCY={"queue": 9, "key": 2})
    inspect.set_limits("emails", concurrency=3, key_concurrency=1, who="ann")
    inspect.hold("emails", name="sms", who="ann", reason="asked us to wait")
    for number in (2, 3, 1):
        repartition(number)
        seeded.with_number(number)
        view = inspect.queue("emails")
        assert [sorted(part.limit_changes) for part in view.each_part] == [["concurrency", "key_concurrency"]] * number
        assert inspect.limit_changes("emails")[0].value == "3"
        holds = [client_of(part).hgetall(part.keys.holds) for part in seeded.whole.each_part]
        assert holds == [holds[0]] * number
        assert [*holds[0]] == [b"name:sms"]
    inspect.reset_limits("emails")
    assert inspect.end_hold("emails", name="sms")
    repartition(2)
    seeded.with_number(2)
    assert inspect.limit_changes("emails") == ()
    assert [hold.state for hold in inspect.holds("emails")] in ([], ["ended"])


def test_producers_without_partitions_are_noticed_and_their_messages_moved(seeded, monkeypatch, capsys):
    seeded.with_number(1)
    queues["emails"].publish("sms", 1, key="a")
    opened = Repartitioning.open

    def open_after_a_publish(change):
        queues["emails"].publish("sms", 2, key="a")
        opened(change)

    with monkeypatch.context() as patch:
        patch.setattr(Repartitioning, "open", open_after_a_publish)
        repartition(4)
    assert "1 messages were published meanwhile by producers without PARTITIONS" in capsys.readouterr().err
    repartition(4)
    seeded.with_number(4)
    (taken,) = [found for store in seeded.stores() if (found := take(store))]
    assert [item.message.data for item in taken] == [1, 2]


def test_wrong_arguments_change_nothing(seeded, subtests, forget):
    for args in (("4",), ("0", "--yes"), ("300", "--yes"), ("--yes",), ("4", "--abort")):
        with subtests.test(args=args):
            forget()
            seeded.with_number(2)
            queues["emails"].publish("sms", 1)
            with pytest.raises(CommandError):
                mq("repartition", "emails", *args)
            queues["emails"].publish("sms", 2)


def test_partitions_and_queues_of_rsmq_are_refused(mq_settings):
    mq_settings(QUEUES={"emails": {"PARTITIONS": 2}, "other": {"STORE": "rsmq"}})
    for name in ("emails.1", "other"):
        with pytest.raises(CommandError, match=r"have no partitions|is a partition"):
            mq("repartition", name, "4", "--yes")


def test_on_a_cluster_everything_is_moved_between_its_nodes(cluster, mq_settings):
    seeded = Seeded(mq_settings, CONNECTION=cluster.url).with_number(4, **ORDERED)
    sent = seeded.fill()
    contents, tokens = seeded.contents(), seeded.tokens()
    repartition(9)
    seeded.with_number(9)
    assert (seeded.contents(), seeded.tokens()) == (contents, tokens)
    check_order(seeded.handle_all(), sent)


NIGHTLY = {"queue": "emails", "message": "nightly", "every": 86_400}


def with_schedules(mq_settings, number):
    mq_settings(QUEUES={"emails": {"PARTITIONS": number}}, SCHEDULES={"nightly": NIGHTLY})


def schedules_of_queue():
    return {
        found.name: (
            found.origin,
            found.when,
            found.options,
            found.paused_by,
            found.skips,
            found.last_ms,
            found.created_ms,
        )
        for found in schedules.get_all("emails")
    }


def test_messages_that_age_keep_their_scores(mq_settings, redis_client):
    def configure(number):
        mq_settings(QUEUES={"emails": {"PARTITIONS": number, "PRIORITY_AGEING": 60}})
        part = get_config().queue("emails").partition_for(key="k")
        store = open_store(part, open_transport("consume"))
        store.create_groups()
        return part.keys, store

    keys, _ = configure(2)
    for level in (0, -5, 7, -9, 7):
        queues["emails"].publish("sms", level, key="k", priority=level)
    before = redis_client.zrange(keys.priority, 0, -1, withscores=True)
    repartition(1)
    keys, store = configure(1)
    assert redis_client.zrange(keys.priority, 0, -1, withscores=True) == before
    assert [item.message.data for item in take(store)] == [7, 7, 0, -5, -9]


def test_schedules_follow_their_messages(mq_settings):
    with_schedules(mq_settings, 4)
    for number in range(5):
        options = {"message": "hourly", "every": 3600, "key": f"order:{number}"}
        schedules.create(f"hourly-{number}", queue="emails", **options)
    schedules.pause("nightly", queue="emails", by="ann")
    schedules.skip("hourly-1", queue="emails", by="ben")
    before = schedules_of_queue()
    assert len(before) == 6
    for number in (8, 1):
        assert "schedules: " in repartition(number)
        with_schedules(mq_settings, number)
        assert schedules_of_queue() == before
