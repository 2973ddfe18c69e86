"""The pages over queues of other stores: groups of topics, and queues in RSMQ's format."""

import pytest

from mq_django import queues, topics
from mq_django.admin.ui.text import to_url
from mq_django.core.outcomes import Bury, Retry
from mq_django.inspector import dead_letters
from mq_django.stores.base import Settlement
from tests.admin.conftest import BASE
from tests.seeding import opened

pytestmark = pytest.mark.cluster

ME = "host-1-me"


@pytest.fixture(params=["orders:billing", "jobs"])
def name(request, mq_settings, namespace):
    mq_settings(QUEUES={"emails": {}, "jobs": {"STORE": "rsmq", "NAMESPACE": f"{namespace}:r"}}, TOPICS={"orders": {}})
    return request.param


@pytest.fixture
def held(name):
    """One message of each place: ready, pending, delayed, dead."""
    store = opened(name)
    publish = queues["jobs"].publish_many if name == "jobs" else topics["orders"].publish_many
    publish([("welcome", {"n": n}) for n in range(4)], on_commit=False)
    first, second, third = store.take(ME, count=3)
    store.settle(ME, [Settlement(first, Bury("no"))])
    store.settle(ME, [Settlement(second, Retry(), 60_000)])
    return first.message, second.message, third.message


def test_a_dead_letter_can_be_redriven_and_a_message_that_waits_cancelled(operator, name, held):
    dead, delayed, _ = held
    entry = dead_letters.find(name, dead.id)
    assert dead.id in operator.get(f"{BASE}{name}/message/dead/{entry}/").content.decode()
    assert delayed.id in operator.get(f"{BASE}{name}/delayed/").content.decode()
    store = opened(name)
    assert (store.depths().ready, store.depths().delayed, store.depths().dead) == (1, 1, 1)
    chosen = {"action": "redrive", "_selected_action": [entry], "confirmed": "yes"}
    assert operator.post(f"{BASE}{name}/dead/chosen/", chosen).status_code == 302
    chosen = {"action": "cancel", "_selected_action": [to_url(delayed.id.encode())], "confirmed": "yes"}
    assert operator.post(f"{BASE}{name}/delayed/chosen/", chosen).status_code == 302
    assert (store.depths().ready, store.depths().delayed, store.depths().dead) == (2, 0, 0)


def test_a_dead_letter_is_edited_and_goes_back_as_a_new_message(operator, name, held):
    dead, *_ = held
    url = f"{BASE}{name}/dead/{dead_letters.find(name, dead.id)}/edit/"

    asked = operator.post(url, {"data": '{"n": 99}'})
    done = operator.post(url, dict(asked.context["fields"]), follow=True)

    assert "It was resubmitted as message" in done.content.decode()
    store = opened(name)
    found = {item.message.id: item.message for item in store.take("other", count=9)}
    (message,) = [message for message in found.values() if message.data == {"n": 99}]
    assert message.id != dead.id
    assert (message.name, message.attempt) == ("welcome", 1)
    assert store.depths().dead == 0


def test_many_dead_letters_of_it_are_redriven_in_the_background(operator, name, held):
    url = f"{BASE}{name}/dead/all/redrive/"

    done = operator.post(url, dict(operator.get(url).context["fields"]), follow=True)

    assert "Redriven: 1 dead letters." in done.content.decode()
    store = opened(name)
    assert (store.depths().ready, store.depths().dead) == (2, 0)


def test_its_messages_tell_of_their_attempts_and_who_holds_them(operator, name, held):
    dead, delayed, pending = held
    assert ME in operator.get(f"{BASE}{name}/message/dead/{dead_letters.find(name, dead.id)}/").content.decode()
    assert ME in operator.get(f"{BASE}{name}/message/delayed/{to_url(delayed.id.encode())}/").content.decode()

    (row,) = operator.get(f"{BASE}{name}/pending/").context["rows"]
    page = operator.get(row["url"]).content.decode()

    assert pending.id in page
    assert f"Consumer {ME} holds it and is gone" in page


def test_each_message_is_found_by_its_id_where_it_is(operator, name, held):
    dead, delayed, pending = held
    for message, place in ((dead, "/dead/"), (delayed, "/delayed/"), (pending, "/pending/")):
        found = operator.get(f"{BASE}{name}/dead/", {"id": message.id})
        if place == "/pending/" and name != "jobs":
            # Of a log one has to look through what it holds.
            assert found.status_code == 200
            found = operator.get(f"{BASE}{name}/pending/", {"id": message.id})
            assert message.id in found.content.decode()
        else:
            assert place in found.url
