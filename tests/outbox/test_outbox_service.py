"""The service that relays rows: notifications wake it, and what fails holds up only itself."""

import threading

import pytest
from django.db import connections, transaction

from mq_django import queues
from mq_django.conf import get_config
from mq_django.consumers.supervisor import outbox_service
from mq_django.consumers.supervisor.outbox_service import OutboxService, outbox_services
from mq_django.outbox import insertion
from mq_django.signals import message_published
from tests.hearing import hears
from tests.outbox.relays import claimed, partition, publish, ready, rows
from tests.waiting import wait_until


@pytest.fixture
def only(monkeypatch):
    """Let services look at the database of the test only."""

    def choose(alias):
        monkeypatch.setattr(outbox_service, "outbox_aliases", lambda **_: [alias])
        return alias

    return choose


def service():
    return OutboxService(dict(get_config().queues))


def test_a_committed_message_is_published_at_once(alias, only, mq_settings, redis_client, monkeypatch):
    """Long before the service would look by itself."""
    only(alias)
    monkeypatch.setattr(outbox_service, "POLL", 600.0)
    mq_settings(QUEUES={"mails": {"OUTBOX": True}})
    found = outbox_services()
    for each in found:
        each.start()
    try:
        wait_until(lambda: found[1].is_subscribed)
        wait_until(lambda: found[0]._relays and found[0]._sleeping)
        with transaction.atomic(using=alias):
            ids = publish(alias, "mails", 3)
        wait_until(lambda: ready(redis_client, "mails") == ids)
    finally:
        for each in found:
            each.stop()
            assert each.join(10.0)


@pytest.mark.usefixtures("quick")
def test_an_unreachable_server_holds_up_only_its_queues(sqlite, only, mq_settings, redis_client, caplog):
    only(sqlite)
    away = "redis://user:hunter2@127.0.0.1:1/0"
    mq_settings(QUEUES={"away": {"OUTBOX": True, "CONNECTION": away}, "mails": {"OUTBOX": True}})
    publish(sqlite, "away", 2)
    ids = publish(sqlite, "mails", 2)
    found = service()

    while found.run_once() == 0.0:
        pass

    assert ready(redis_client, "mails") == ids
    assert rows(sqlite).count() == 2
    (line,) = (message for message in caplog.messages if "outbox" in message)
    assert line.startswith("Messages of the outbox cannot be published to Redis at 127.0.0.1:1, and wait: ")
    assert "hunter2" not in caplog.text


@pytest.mark.usefixtures("quick")
def test_a_queue_that_fails_is_not_tried_all_the_time(sqlite, only, mq_settings, redis_client, monkeypatch, caplog):
    only(sqlite)
    mq_settings(QUEUES={"mails": {"OUTBOX": True}})
    for name in ("FIRST_BACKOFF", "MAX_BACKOFF"):
        monkeypatch.setattr(outbox_service, name, 600.0)
    publish(sqlite, "mails", 2)
    redis_client.set(queues["mails"].config.keys.ready, "no stream")
    found, tries = service(), []
    real = found._back_off_from
    monkeypatch.setattr(found, "_back_off_from", lambda name: (tries.append(name), real(name)))

    for _ in range(5):
        found.run_once()

    assert tries == ["mails"]
    assert caplog.messages[0].startswith("Messages of the outbox cannot be published to mails, and wait: ")
    assert rows(sqlite).filter(batch=0).count() == 0
    redis_client.delete(queues["mails"].config.keys.ready)
    # As if the time were over.
    found._failed.clear()
    found.run_once()
    assert len(ready(redis_client, "mails")) == 2


@pytest.mark.usefixtures("quick")
def test_a_connection_is_not_made_in_each_round(postgres_alias, only, django_db_blocker, mq_settings):
    """Also with CONN_MAX_AGE 0."""
    only(postgres_alias)
    mq_settings(QUEUES={"mails": {"OUTBOX": True}})
    found, used = service(), []

    def rounds():
        for _ in range(3):
            found.run_once()
            used.append(connections[postgres_alias].connection)
        found.close()

    with django_db_blocker.unblock():
        thread = threading.Thread(target=rounds)
        thread.start()
        thread.join(30.0)

    assert used[0] is not None
    assert used[0] is used[1] is used[2]


@pytest.mark.usefixtures("quick")
def test_a_key_of_another_type_for_rows_that_stay_holds_up_no_publish(sqlite, only, mq_settings, redis_client):
    only(sqlite)
    mq_settings(QUEUES={"mails": {"OUTBOX": {"KEEP_UNTIL": "handled"}}})
    redis_client.set(queues["mails"].config.keys.ended, "mine")
    found, ids = service(), []

    for _ in range(3):
        ids += publish(sqlite, "mails", 1)
        found.run_once()

    assert ready(redis_client, "mails") == ids


@pytest.mark.usefixtures("quick")
def test_the_signal_is_sent_when_the_relay_has_published(sqlite, only, mq_settings):
    only(sqlite)
    mq_settings(QUEUES={"mails": {"OUTBOX": True}})
    with hears(message_published) as told:
        (message_id,) = publish(sqlite, "mails", 1)
        assert told == []
        service().run_once()
    assert [(given["sender"].__name__, given["message_id"]) for given in told] == [("Queue", message_id)]


@pytest.mark.usefixtures("quick")
def test_without_the_option_the_claim_of_a_relay_that_stopped_is_not_left_until_the_next_rare_look(
    sqlite, only, mq_settings, redis_client
):
    only(sqlite)
    mq_settings(QUEUES={"mails": {}})
    ids = publish(sqlite, "mails", 2, outbox=True)
    claimed(partition(sqlite, "mails"))
    found = service()

    assert found.run_once() == outbox_service.POLL
    # As if the time were over.
    found._relays[sqlite]._take_over = 0.0
    assert found.run_once() == 0.0
    assert ready(redis_client, "mails") == ids
    assert found.run_once() == outbox_service.RARE_POLL


def test_without_the_option_nothing_is_subscribed_before_an_outbox_is_found(sqlite, mq_settings, monkeypatch):
    mq_settings(QUEUES={"mails": {}})
    there = []
    monkeypatch.setattr(outbox_service, "outbox_aliases", lambda **_: there)
    monkeypatch.setattr(outbox_service, "RARE_SEARCH", 0.0)
    (found,) = outbox_services()
    found.start()
    try:
        wait_until(lambda: found._sleeping)
        assert found.listener._thread is None
        there.append(sqlite)
        found.wake()
        wait_until(lambda: found.listener.is_subscribed)
    finally:
        found.stop()
        assert found.join(10.0)
    assert found.listener.join(0.0)


def test_a_database_that_lets_it_wait_does_not_count_as_stuck(sqlite, only, mq_settings, monkeypatch):
    only(sqlite)
    mq_settings(QUEUES={"mails": {"OUTBOX": True}})
    waiting, ends = threading.Event(), threading.Event()

    def wait():
        waiting.set()
        assert ends.wait(30)
        return []

    found = service()
    found.run_once()
    monkeypatch.setattr(found._relays[sqlite], "steps", wait)
    found.start()
    assert waiting.wait(30)
    (before,) = found.progress().values()
    wait_until(lambda: found.progress()["outbox"] != before)
    ends.set()
    found.stop()
    assert found.join(10.0)


def test_databases_that_cannot_be_used_concern_only_those_who_use_an_outbox(monkeypatch, caplog):
    def fail(alias):
        raise RuntimeError("no database")

    monkeypatch.setattr(insertion, "has_table", fail)
    caplog.set_level("INFO", "mq_django")
    assert insertion.outbox_aliases(is_used=False) == []
    assert {record.levelname for record in caplog.records} == {"INFO"}
    with pytest.raises(RuntimeError):
        insertion.outbox_aliases()
