"""Messages whose handler has arrived."""

from itertools import count
from types import SimpleNamespace

import pytest

from mq_django.conf import get_config
from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.worker import progress
from mq_django.consumers.worker.progress import BATCH, Releaser
from mq_django.core.messages import SetAside
from mq_django.registry import Handler, _handlers, register
from mq_django.stores import open_store
from mq_django.stores.base import Settlement
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session


@pytest.fixture
def releaser(mq_settings, monkeypatch):
    mq_settings(QUEUES={"default": {}, "emails": {}})
    for queue in ("default", "emails"):
        monkeypatch.setitem(_handlers, (queue, "late"), None)
        del _handlers[queue, "late"]
        register(Handler(name="late", queue=queue, call=print))
    session = Session(get_client("chores"))
    shared_state = SharedState.create(1)
    found = Releaser(
        {n: open_store(config, session) for n, config in enumerate(get_config().queues.values())}, shared_state
    )
    found.shared_state = shared_state
    yield found
    shared_state.close()
    session.release()


def set_aside(store, publish, **options):
    publish(name="late", **options)
    store.create_groups()
    (delivery,) = store.take("other", count=1)
    store.settle("other", [Settlement(delivery, SetAside())])


def test_at_its_start_a_consumer_takes_up_what_it_knows(releaser, store, publish):
    set_aside(store, publish)
    releaser.run_once()
    assert (store.depths().unhandled, store.depths().ready) == (0, 1)


def test_later_it_does_so_when_something_was_seen(releaser, store, publish):
    releaser.run_once()
    set_aside(store, publish)
    releaser.run_once()
    assert store.depths().unhandled == 1
    releaser.shared_state.set_unhandled(0, True)
    releaser.run_once()
    assert store.depths().unhandled == 0


@pytest.fixture
def ticks(monkeypatch):
    """Each look at the time is a second later than the one before."""
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=(seconds := count(1)).__next__))
    return seconds


def test_what_older_consumers_set_aside_again_waits_for_the_next_round(releaser, monkeypatch, ticks):
    store, released = releaser._stores[0], []
    monkeypatch.setattr(store, "release_unhandled", lambda names, limit: released.append(limit) or limit)
    monkeypatch.setattr(store, "depths", lambda: SimpleNamespace(unhandled=2 * BATCH + 1))
    releaser.run_once()
    assert len(released) == 4
    # Each portion is progress, so that nobody takes it for stuck.
    assert next(ticks) == 4


def test_asked_to_stop_it_releases_no_more(releaser, monkeypatch):
    store, released = releaser._stores[0], []

    def release(names, limit):
        released.append(limit)
        releaser.stop()
        return limit

    monkeypatch.setattr(store, "release_unhandled", release)
    monkeypatch.setattr(store, "depths", lambda: SimpleNamespace(unhandled=10 * BATCH))
    releaser.run_once()
    assert len(released) == 1
