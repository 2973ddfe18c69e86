"""Unhandled messages become ready while consumers in other programs announce that they handle them."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from mq_django.conf import get_config
from mq_django.consumers.supervisor import services
from mq_django.consumers.supervisor.services import AGAIN, PORTION, RELEASER_IDLE, TICK, AnnouncedReleaser
from mq_django.core.messages import SetAside
from mq_django.stores import open_store
from mq_django.stores.base import Settlement
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled


@pytest.fixture(params=["stream", "rsmq"])
def releaser(mq_settings, namespace, request):
    options = {"STORE": "rsmq", "NAMESPACE": f"{namespace}rsmq"} if request.param == "rsmq" else {}
    mq_settings(QUEUES={"default": options, "emails": {}})
    found = AnnouncedReleaser(dict(enumerate(get_config().queues.values())))
    yield found
    found._stores[0]._transport.release()


@pytest.fixture
def stores(releaser):
    return [open_store(config, Pooled(get_client("produce"))) for config in get_config().queues.values()]


def set_aside(store, publish, *names):
    for name in names:
        publish(name=name, queue=store.config.name)
    if hasattr(store, "create_groups"):
        store.create_groups()
    store.settle("other", [Settlement(item, SetAside()) for item in store.take("other", count=10)])


@pytest.mark.parametrize(
    ("announced", "left"), [({"theirs", "also.theirs"}, 1), ({"*"}, 0)], ids=["names", "a star for all of them"]
)
def test_only_announced_names_are_released(releaser, stores, publish, announced, left):
    set_aside(stores[0], publish, "theirs", "nobodys")
    releaser.announced(0, announced)
    releaser.seen(0, 2)
    assert AGAIN <= releaser.run_once() <= TICK
    assert (stores[0].depths().unhandled, stores[0].depths().ready) == (left, 2 - left)
    assert releaser.run_once() == TICK


@pytest.mark.parametrize(("names", "unhandled"), [((), 5), ({"a"}, 0)])
def test_it_sends_nothing_when_no_name_is_announced_or_nothing_is_unhandled(releaser, names, unhandled, monkeypatch):
    monkeypatch.setattr(releaser._stores[0], "release_unhandled", pytest.fail)
    releaser.announced(0, names)
    releaser.seen(0, unhandled)
    assert releaser.run_once() == RELEASER_IDLE


@pytest.fixture
def calls(releaser, monkeypatch):
    """The limits of all releases, each of which finds as many messages and takes no time."""
    monkeypatch.setattr(services, "time", SimpleNamespace(monotonic=lambda: 0.0))
    found = []
    for store in releaser._stores.values():
        monkeypatch.setattr(store, "release_unhandled", lambda names, limit: found.append(limit) or limit)
    return found


def test_a_round_ends_although_another_consumer_sets_everything_aside_again(releaser, calls):
    releaser._stores[0].config = replace(releaser._stores[0].config, external=True)
    releaser.announced(0, {"a"})
    releaser.seen(0, 1200)
    assert releaser.run_once() == AGAIN
    assert calls == [500] * 3


@pytest.mark.parametrize(("names", "limit"), [({"a"}, PORTION), ({"*"}, PORTION), (set(map(str, range(200))), 1)])
def test_a_queue_that_our_consumers_share_gets_small_portions(releaser, calls, names, limit):
    releaser.announced(0, names)
    releaser.seen(0, 1200)
    assert releaser.run_once() == AGAIN
    assert calls == [limit]
