"""One read waits for the messages of all queues that are at rest; no message waits for another queue, or is lost."""

import math
import threading

import pytest

from mq_django import queues
from mq_django.conf import get_config
from mq_django.consumers.worker import fetchers, resting
from mq_django.consumers.worker.consumer import Fetchers
from mq_django.consumers.worker.fetchers import Fetcher
from mq_django.consumers.worker.resting import RestingQueues
from mq_django.core.keys import GROUP
from mq_django.errors import ConnectionLost
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session
from tests.consumers.rig import Rig
from tests.waiting import wait_until

pytestmark = pytest.mark.single_server(why="on a cluster no read is for several queues")

NAMES = ("a", "b")


class Rest:
    """Two queues, whose fetchers a test turns by hand, and what reads for them while they rest."""

    def __init__(self):
        self.session = Session(get_client("consume"))
        self.service = RestingQueues(self.session, "me", first="a")
        self.rigs = [Rig(threads=2, queue=name, act=lambda message: None) for name in NAMES]
        self.may_fetch = dict.fromkeys(NAMES, True)
        self.fetchers = [self._fetcher(rig) for rig in self.rigs]
        for rig in self.rigs:
            rig.store.create_groups()

    def _fetcher(self, rig):
        name = rig.config.name
        may_fetch = lambda: self.may_fetch[name]  # noqa: E731
        demand = rig.demand_of(name)
        return Fetcher(rig.reader, rig.session, demand=demand, may_fetch=may_fetch, share=1, resting=self.service)

    def begin(self):
        """Let both queues rest: a take and a read in vain, and a round that covers them. Then no check is due."""
        for fetcher in self.fetchers:
            for _ in range(3):
                fetcher.run_once()
        self.service.run_once()
        assert self.covered() == list(NAMES)
        self.service._check_at = math.inf

    def covered(self):
        return [name for name, fetcher in zip(NAMES, self.fetchers, strict=True) if self.service.covers(fetcher)]

    def fetched(self):
        return [rig.threads._jobs.qsize() for rig in self.rigs]

    def close(self):
        for rig in self.rigs:
            rig.close()
        self.session.close()


@pytest.fixture
def rest(mq_settings, monkeypatch):
    for module in (fetchers, resting):
        monkeypatch.setattr(module, "BLOCK_MS", 50)
    mq_settings(QUEUES={name: {} for name in NAMES})
    found = Rest()
    yield found
    found.close()


def reads(commands):
    return [command[command.index("STREAMS") + 1 :] for command in commands if command[0] == "XREADGROUP"]


def test_a_message_of_a_queue_at_rest_is_passed_on_at_once_and_its_fetcher_reads_on(rest, sent_commands):
    rest.begin()
    queues["b"].publish("act", 1)
    sent_commands.clear()
    rest.service.run_once()
    assert [len(streams) // 2 for streams in reads(sent_commands)] == [2]
    assert (rest.fetched(), rest.covered()) == ([0, 1], ["a"])
    queues["b"].publish("act", 2)
    rest.fetchers[1].run_once()
    assert rest.fetched() == [0, 2]


def test_a_read_wakes_for_a_message_that_comes_later(rest, monkeypatch):
    rest.begin()
    # Longer than it takes to see the read.
    monkeypatch.setattr(fetchers, "BLOCK_MS", 600_000)
    thread = threading.Thread(target=rest.service.run_once)
    thread.start()
    wait_until(lambda: any(each["cmd"] == "xreadgroup" for each in get_client("chores").client_list()))
    queues["a"].publish("act", 1)
    thread.join(30)
    assert not thread.is_alive()
    assert rest.fetched() == [1, 0]


def test_a_fetcher_that_rests_has_no_connection_and_sends_nothing(rest, monkeypatch, sent_commands):
    rest.begin()
    monkeypatch.setattr(fetchers, "REST", 0.01)
    sent_commands.clear()
    for fetcher in rest.fetchers:
        for _ in range(5):
            fetcher.run_once()
    assert sent_commands == []
    assert [rig.session.socket for rig in rest.rigs] == [None, None]


def test_what_a_read_does_not_see_is_looked_for(rest, redis_client):
    rest.begin()
    redis_client.xadd(rest.rigs[1].config.keys.front, {"name": "act", "data": "1"})
    rest.service._check_at = 0.0
    rest.service.run_once()
    assert rest.covered() == ["a"]
    rest.fetchers[1]._reader.busy = True
    rest.fetchers[1].run_once()
    assert sum(rest.fetched()) <= 1


def test_a_paused_queue_is_not_read_and_the_other_is(rest, sent_commands):
    rest.begin()
    rest.may_fetch["a"] = False
    for name in NAMES:
        queues[name].publish("act", 1)
    rest.service.run_once()
    assert (rest.fetched(), rest.covered()) == ([0, 1], [])
    rest.may_fetch["a"] = True
    rest.fetchers[0].run_once()
    rest.fetchers[0].run_once()
    assert rest.fetched() == [1, 1]


def test_without_room_nothing_is_read(rest, monkeypatch, sent_commands):
    rest.begin()
    for name in NAMES:
        queues[name].publish("act", 1)
    monkeypatch.setattr(fetchers.Demand, "messages", lambda *_: 0)
    sent_commands.clear()
    assert rest.service.run_once() == resting.NO_ROOM
    assert (sent_commands, rest.covered()) == ([], list(NAMES))


def test_an_error_of_one_queue_gives_all_back_to_their_fetchers(rest, redis_client):
    rest.begin()
    redis_client.delete(rest.rigs[0].config.keys.ready)
    rest.service.run_once()
    assert rest.covered() == []
    for fetcher in rest.fetchers:
        assert fetcher._roused.is_set()
    queues["b"].publish("act", 1)
    for _ in range(2):
        for fetcher in rest.fetchers:
            fetcher.run_once()
    assert rest.fetched() == [0, 1]
    # The group was created again, and for a while each fetcher waits by itself.
    queues["a"].publish("act", 1)
    rest.fetchers[0].run_once()
    rest.service.run_once()
    assert (rest.fetched(), rest.covered()) == ([1, 1], [])


def test_what_was_read_and_whose_reply_is_lost_is_found_by_the_fetchers(rest, redis_client):
    rest.begin()
    queues["a"].publish("act", 1)
    redis_client.xreadgroup(GROUP, "me", {rest.rigs[0].config.keys.ready: ">"})
    rest.service.recover(ConnectionLost("gone"))
    assert rest.covered() == []
    for fetcher in rest.fetchers:
        fetcher.run_once()
    assert rest.fetched() == [1, 0]


def test_a_delivery_that_is_being_passed_on_is_not_taken_for_a_lost_one(rest, redis_client):
    rest.begin()
    rest.rigs[0].reader.check_soon()
    rest.rigs[0].reader.busy = False
    queues["a"].publish("act", 1)
    redis_client.xreadgroup(GROUP, "me", {rest.rigs[0].config.keys.ready: ">"})
    rest.fetchers[0]._roused.set()
    rest.fetchers[0].run_once()
    assert rest.fetched() == [0, 0]
    # The next round leaves it to its fetcher, which looks for what was lost.
    rest.service.run_once()
    rest.fetchers[0].run_once()
    assert rest.fetched() == [1, 0]


def test_an_error_while_messages_are_passed_on_has_them_looked_for(rest, monkeypatch, caplog):
    rest.begin()
    for name in NAMES:
        queues[name].publish("act", 1)

    def fails(*_):
        raise ValueError("broken")

    monkeypatch.setattr(rest.rigs[0].reader, "pass_on", fails)
    rest.service.run_once()
    assert rest.fetched() == [0, 1]
    assert "a failed" in caplog.text
    rest.fetchers[0].run_once()
    assert rest.fetched() == [1, 1]


def test_only_plain_queues_rest_and_not_a_single_one(mq_settings):
    def resting_of(**options):
        mq_settings(QUEUES=options)
        configs = list(get_config().queues.values())
        found = Fetchers("me", configs, [], None, None)._open_resting(range(len(configs)))
        for each in found.values():
            each.close()
        return len(found)

    assert resting_of(a={}, b={}) == 1
    assert resting_of(a={}) == 0
    assert resting_of(a={}, b={"ORDERED": True}, c={"RATE_LIMIT": "1/s"}, d={"STORE": "rsmq"}) == 0
