"""The relay of one place: claims, marks and what becomes of rows, whoever crashes or goes back in time."""

import shutil

import pytest
from django.db import connections, transaction

from mq_django import queues
from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.inspector import outbox_views
from mq_django.models import OutboxIdentity
from mq_django.outbox.claims import OutboxTables
from mq_django.outbox.relay import PartitionRelay
from mq_django.stores.outbox_marks import TAKEN
from tests.databases.fixtures import known
from tests.outbox.conftest import on_each_database
from tests.outbox.relays import claimed, partition, publish, ready, relay, rows, run, states

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(autouse=True)
def mails(mq_settings):
    mq_settings(QUEUES={"mails": {"OUTBOX": True}})


class Killed(BaseException):
    """The process ends here."""


def kill_at(found, method, monkeypatch, *, after=0, is_done=False):
    """Run a relay that is killed when it calls a method for another time after some, or when the method `is_done`."""
    owner = OutboxTables if hasattr(OutboxTables, method) else PartitionRelay
    real, calls = getattr(owner, method), []

    def killed(*args, **options):
        calls.append(args)
        if len(calls) <= after or is_done:
            real(*args, **options)
        if len(calls) > after:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(owner, method, killed)
        with pytest.raises(Killed):
            found.advance()


#: Where a relay is killed, as arguments of kill_at().
POINTS = {
    "after the claim": {"method": "resume"},
    "after some chunks": {"method": "_send", "after": 2},
    "before it finishes": {"method": "finish"},
    "in the transaction that finishes": {"method": "_end_rows"},
    "after it has finished": {"method": "finish", "is_done": True},
}


@pytest.mark.cluster
def test_a_killed_relay_loses_and_doubles_nothing(alias, redis_client, monkeypatch, mq_settings):
    """With processes and signals in `make chaos`: its scenarios of outboxes have these points."""
    published = {}
    for number, (point, options) in enumerate(POINTS.items()):
        mq_settings(QUEUES={(name := f"mails-{number}"): {"OUTBOX": True}})
        ids = publish(alias, name, 50)
        found = partition(alias, name)
        found._most = 10
        kill_at(found, monkeypatch=monkeypatch, **options)
        published[point] = len(ready(redis_client, name))

        run(relay(alias))

        assert ready(redis_client, name) == ids, point
        assert not rows(alias).exists(), point
    assert 0 < published.pop("after some chunks") < 50
    assert list(published.values()) == [0, 50, 50, 50]


@on_each_database
def test_two_relays_of_one_claim_publish_each_row_once(alias, redis_client):
    ids = publish(alias, "mails", 30)
    first = claimed(partition(alias, "mails"))
    second = partition(alias, "mails")
    second.resume(first._tables.read(states(alias).get()))
    first._most = 10
    first._publish(first.claim, first.claim.rows)

    second.advance()
    first.advance()

    assert ready(redis_client, "mails") == ids
    assert not rows(alias).exists()


def test_a_relay_that_was_frozen_does_not_publish_a_claim_that_is_finished(alias, redis_client):
    ids = publish(alias, "mails", 3)
    frozen = claimed(partition(alias, "mails"))
    run(relay(alias))
    later = publish(alias, "mails", 3)
    run(relay(alias))

    frozen.advance()

    assert ready(redis_client, "mails") == ids + later
    assert frozen.claim is None


@on_each_database
def test_a_late_finish_deletes_no_rows_of_a_later_claim(alias, redis_client):
    publish(alias, "mails", 2)
    frozen = claimed(partition(alias, "mails"))
    claim = frozen.claim
    run(relay(alias))
    later = publish(alias, "mails", 2)
    claimed(partition(alias, "mails"))

    assert not frozen._tables.finish(claim, {})

    assert [row.message_id for row in rows(alias)] == later


@on_each_database
def test_two_relays_do_not_claim_at_once(alias):
    publish(alias, "mails", 3)
    tables = OutboxTables(alias)
    config = queues["mails"].config
    assert tables.claim(config, -1, 1) is not None
    publish(alias, "mails", 3)
    assert tables.claim(config, -1, 1) is None


def test_a_claim_whose_mark_is_lost_in_a_failover_begins_again(alias, redis_client, monkeypatch):
    ids = publish(alias, "mails", 4)
    found = claimed(partition(alias, "mails"))
    found._most = 2
    found._publish(found.claim, found.claim.rows)
    redis_client.delete(found.partition.keys.ready)
    redis_client.delete(found.partition.keys.outbox)

    found.advance()

    assert ready(redis_client, "mails") == ids


def test_a_restored_database_raises_its_number_and_says_so(alias, redis_client, caplog):
    publish(alias, "mails", 2)
    run(relay(alias))
    publish(alias, "mails", 2)
    run(relay(alias))
    states(alias).update(number=0)
    ids = publish(alias, "mails", 2)

    run(relay(alias))

    assert ready(redis_client, "mails")[-2:] == ids
    assert states(alias).get().number == 3
    assert "went back in time" in caplog.text


def test_a_copied_database_is_stopped_until_it_has_an_identity_of_its_own(alias, redis_client, caplog):
    publish(alias, "mails", 3)
    run(relay(alias))
    other = ready(redis_client, "mails")
    states(alias).update(number=0)
    ids = publish(alias, "mails", 2)
    run(relay(alias))
    assert (ready(redis_client, "mails"), rows(alias).count()) == (other, 2)
    assert "a copy of another one" in states(alias).get().problem
    assert "is stopped" in caplog.text

    assert outbox_views.renew(alias) == 1
    run(relay(alias))

    assert ready(redis_client, "mails") == other + ids
    assert not rows(alias).exists()


def test_the_original_is_stopped_if_its_copy_publishes_first_and_goes_on_when_it_is_renewed(
    sqlite, redis_client, tmp_path
):
    """Redis does not know which of the two is the copy."""
    publish(sqlite, "mails", 1)
    run(relay(sqlite))
    connections[sqlite].close()
    file = shutil.copy(connections[sqlite].settings_dict["NAME"], tmp_path / "copy.db")
    with known("copy", {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file)}):
        publish("copy", "mails", 1)
        run(relay("copy"))
        ids = publish(sqlite, "mails", 2)
        before = ready(redis_client, "mails")
        run(relay(sqlite))
        assert states(sqlite).get().problem
        assert not states("copy").get().problem

        # An identity for the copy does not change what is written in the original.
        assert outbox_views.renew("copy") == 0
        run(relay(sqlite))
        assert ready(redis_client, "mails") == before

        assert outbox_views.renew(sqlite) == 1
        run(relay(sqlite))
        assert ready(redis_client, "mails") == before + ids
        (later,) = publish("copy", "mails", 1)
        run(relay("copy"))
        assert ready(redis_client, "mails")[-1] == later


def test_a_message_whose_unique_key_is_taken_is_set_aside(sqlite, redis_client):
    queues["mails"].publish("a", {}, unique="u", unique_for="handled", using=sqlite, outbox=True)
    second = queues["mails"].publish("b", {}, unique="u", unique_for="handled", using=sqlite)
    third = queues["mails"].publish("c", {}, using=sqlite)

    run(relay(sqlite))

    row = rows(sqlite).get()
    assert (row.message_id, row.error, row.batch) == (second, TAKEN, 0)
    assert ready(redis_client, "mails")[-1] == third


def test_what_was_refused_stays_refused_after_a_crash(sqlite, redis_client, monkeypatch):
    """What was refused is decided in Redis: a relay that dies then does not publish it later."""
    publish_unique = {"unique": "u", "unique_for": "handled", "using": sqlite}
    queues["mails"].publish("a", {}, **publish_unique)
    second = queues["mails"].publish("b", {}, **publish_unique)
    kill_at(partition(sqlite, "mails"), "finish", monkeypatch)
    redis_client.delete(queues["mails"].config.keys.claims)

    run(relay(sqlite))

    assert rows(sqlite).get().message_id == second
    assert second not in ready(redis_client, "mails")


def test_a_delayed_message_is_due_by_the_time_of_the_publish(sqlite, redis_client):
    message_id = queues["mails"].publish("a", {}, delay=3600, unique="u", using=sqlite)
    due_ms = rows(sqlite).get().due_ms

    run(relay(sqlite))

    keys = queues["mails"].config.keys
    assert redis_client.zscore(keys.due, f"{UNIQUE_PREFIX}u") == due_ms
    assert queues["mails"].find(message_id).due_ms == due_ms


def test_a_row_that_cannot_be_read_is_set_aside_and_blocks_nothing(alias, redis_client):
    ids = publish(alias, "mails", 3)
    rows(alias).filter(message_id=ids[1]).update(body="{")

    run(relay(alias))

    assert ready(redis_client, "mails") == [ids[0], ids[2]]
    assert "has no message" in rows(alias).get().error


@on_each_database
def test_on_an_ordered_queue_only_rows_of_its_key_wait_for_one_that_was_set_aside(alias, redis_client, mq_settings):
    mq_settings(QUEUES={"mails": {"OUTBOX": True, "ORDERED": True}})
    first = publish(alias, "mails", 1, key="a")
    waits = publish(alias, "mails", 600, key="a")
    others = publish(alias, "mails", 5, key="b")
    rows(alias).filter(message_id=first[0]).update(batch=0, error="no")

    run(relay(alias))

    assert ready(redis_client, "mails") == others
    rows(alias).filter(message_id=first[0]).delete()
    run(relay(alias))
    assert ready(redis_client, "mails") == others + waits


def test_limits_of_rows_count_from_their_publish_and_each_for_its_own_key(alias, redis_client, mq_settings):
    mq_settings(QUEUES={"mails": {"OUTBOX": True}})
    mails = queues["mails"]
    with transaction.atomic(using=alias):
        for unique, options in (("a", {"at_most": 600}), ("b", {}), ("c", {"at_most": 700})):
            for delay in (60, 600):
                mails.publish("name", 1, using=alias, delay=delay, unique=unique, **options)
    first = {row.message_id: row.due_ms for row in rows(alias)}
    run(relay(alias))
    for unique, later in (("a", 540_000), ("b", None), ("c", 640_000)):
        found = mails.find(unique=unique)
        mails.publish("name", 2, delay=3600, unique=unique, using=alias, outbox=False)
        due_ms = mails.find(unique=unique).due_ms
        earliest = min(list(first.values())["abc".index(unique) * 2 :][:2])
        assert (due_ms == earliest + later) if later else due_ms > found.due_ms + 2_000_000


@pytest.fixture
def held_up(alias, mq_settings):
    """Two messages with one unique key, of which the second is refused, and rows behind them. Return their ids."""
    mq_settings(QUEUES={"mails": {"OUTBOX": True, "ORDERED": True}})
    unique = {"key": "a", "unique": "u", "unique_for": "handled", "on_conflict": "error"}
    with transaction.atomic(using=alias):
        ids = [queues["mails"].publish("name", n, using=alias, **unique) for n in range(2)]
        return ids + publish(alias, "mails", 3, key="a") + publish(alias, "mails", 2, key="b")


@pytest.mark.parametrize("dies", [False, True])
def test_on_an_ordered_queue_rows_of_the_same_claim_wait_for_one_that_is_refused(
    alias, redis_client, held_up, monkeypatch, dies
):
    first, refused, *waits, three, four = held_up
    if dies:
        kill_at(partition(alias, "mails"), "split", monkeypatch)

    run(relay(alias))

    assert ready(redis_client, "mails") == [first, three, four]
    assert [row.message_id for row in rows(alias)] == [refused, *waits]
    assert [row.error for row in rows(alias)] == [TAKEN, "", "", ""]

    outbox_views.discard(alias, [rows(alias).get(message_id=refused).pk])
    run(relay(alias))
    assert ready(redis_client, "mails") == [first, three, four, *waits]
    assert not rows(alias).exists()


@on_each_database
def test_an_identity_is_made_once(alias):
    assert (
        OutboxTables(alias).outbox_id()
        == OutboxTables(alias).outbox_id()
        == OutboxIdentity.objects.using(alias).get().uuid.hex
    )


@pytest.mark.single_server(why="WAIT is about the replicas of one server")
def test_rows_stay_until_a_replica_has_the_messages(alias, redis_client, monkeypatch):
    """Without an answer of a replica nothing is published again, and no database is taken for a copy."""
    monkeypatch.setattr(PartitionRelay, "_waits_for_replica", lambda _: True)
    monkeypatch.setattr("mq_django.transport.sessions.REPLICA_MS", 1)
    ids = publish(alias, "mails", 3)
    found = partition(alias, "mails")
    assert not found.advance()
    assert not found.advance()
    assert rows(alias).count() == 3
    assert ready(redis_client, "mails") == ids

    # Another process goes on, which does not know what was confirmed.
    other = partition(alias, "mails")
    other.resume(other._tables.read(states(alias).get()))
    assert not other.advance()
    assert states(alias).get().problem == ""

    monkeypatch.setattr("mq_django.transport.sessions.ReplicaTransport.is_confirmed", lambda _: True)
    assert other.advance()
    assert ready(redis_client, "mails") == ids
    assert not rows(alias).exists()
