"""`runconsumer` and a Redis that it cannot reach, or may not use, when it starts."""

import re
import signal

import pytest
import redis
from django.core.management import CommandError, call_command

from mq_django.conf import get_config
from mq_django.consumers.supervisor import preflight
from mq_django.consumers.supervisor.preflight import await_server
from mq_django.errors import ConnectionLost
from mq_django.producers import queues
from mq_django.transport.private_server import PrivateServer
from tests.waiting import wait_until


@pytest.fixture
def server():
    with PrivateServer(tcp=True) as found:
        yield found


def errors(tree):
    return [line for line in tree.logged().splitlines() if re.search(r" (ERROR|WARNING|CRITICAL) ", line)]


def test_it_says_once_what_it_cannot_reach_and_works_when_that_is_there(trees, publish, history):
    with PrivateServer(tcp=True) as late:
        late.stop()
        tree = trees(CONNECTION=late.url)
        at = late.url.removeprefix("redis://")
        wait_until(lambda: "Still trying" in tree.logged(), timeout=20)
        assert tree.process.poll() is None
        late.start()
        # The test's settings name that server, too.
        publish()
        history.wait_for("effect")
        assert len(errors(tree)) == 2, tree.logged()
        assert f"ERROR   Cannot reach Redis at {at}: Connection refused. Still trying." in errors(tree)[0]
        assert "all messages are lost when it restarts" in errors(tree)[1]
        assert tree.stop() == 0


class Signals:
    """Signals that have arrived, one for each wait."""

    def __init__(self, *numbers):
        self._numbers = list(numbers)

    def wait(self, _):
        return [self._numbers.pop(0)]


@pytest.fixture
def unreachable(mq_settings):
    mq_settings(CONNECTION="redis://127.0.0.1:1")
    return list(get_config().queues.values())


def test_it_can_be_stopped_while_it_waits(unreachable, caplog):
    for number in (signal.SIGTERM, signal.SIGINT):
        assert not await_server(unreachable, Signals(0, signal.SIGHUP, number))
    # Each time it has said once what it cannot reach.
    assert caplog.text.count("Cannot reach Redis at 127.0.0.1:1: Connection refused. Still trying.") == 2


def test_draining_ends_when_there_is_nothing_to_reach(unreachable, monkeypatch, signal_state):
    with pytest.raises(ConnectionLost, match=r"Cannot reach Redis at 127\.0\.0\.1:1"):
        await_server(unreachable, Signals(0, 0), patience=-1)
    monkeypatch.setattr(preflight, "PATIENCE", -1)
    with pytest.raises(CommandError, match=r"Cannot reach Redis at 127\.0\.0\.1:1"):
        call_command("runconsumer", "--drain")


def test_a_queue_that_its_user_may_not_use_holds_up_no_other(trees, server, history, mq_settings):
    with redis.Redis.from_url(server.url) as client:
        namespace = mq_settings()["NAMESPACE"]
        rules = [f"~{namespace}:{{default}}:*", f"&{namespace}:{{default}}:*", "+@all"]
        client.execute_command("ACL", "SETUSER", "shop", "on", ">secret", "resetchannels", *rules)
    url = server.url.replace("redis://", "redis://shop:secret@")
    limits = {"mq_django.consumers.supervisor.supervisor:LAST_RECLAIM": 0.5}  # of the other queue, in vain
    tree = trees(limits=limits, CONNECTION=url, QUEUES={"default": {}, "other": {}})
    queues["default"].publish("act", {"do": []})
    history.wait_for("effect")
    assert re.search(r"ERROR +Queue other: .*no permissions", tree.logged())
    assert tree.stop() == 0
