"""Messages whose handler has arrived."""

import pytest

from mq_django.conf import get_config
from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.worker.progress import Releaser
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
