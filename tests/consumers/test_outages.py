"""Redis goes away and comes back, in every way there is; consumers hold what they have, and go on."""

import contextlib
import shutil
import signal

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from mq_django.errors import RedisOutOfMemory, StoreError
from mq_django.inspector import actions
from mq_django.producers import queues
from mq_django.transport import scripts
from mq_django.transport.connections import TIMEOUTS
from mq_django.transport.private_server import PrivateServer
from mq_django.transport.scripts import load
from tests.consumers.trees import kill
from tests.proxy import Proxy
from tests.waiting import wait_until

pytestmark = pytest.mark.single_server(why="it stops a server of its own, behind a proxy")


class Site:
    """A server of its own behind a proxy, and a client that goes around it."""

    def __init__(self, tmp_path):
        self.directory = tmp_path / "redis"
        self.directory.mkdir()
        self.server = PrivateServer(
            tcp=True,
            directory=self.directory,
            append_only=True,
            settings={"appendfsync": "always", "lua-time-limit": "100", "enable-debug-command": "yes"},
        ).start()
        self.proxy = Proxy(self.server.url)

    def client(self, timeout=20):
        return redis.Redis.from_url(self.server.url, socket_timeout=timeout, retry=Retry(NoBackoff(), 0))

    def close(self):
        self.proxy.close()
        self.server.stop()


@pytest.fixture
def site(tmp_path):
    found = Site(tmp_path)
    yield found
    found.close()


@contextlib.contextmanager
def killed(site):
    site.server.kill()
    yield
    site.server.start()


@contextlib.contextmanager
def restarted_while_loading(site):
    with site.client() as client:
        client.execute_command("DEBUG", "POPULATE", 1000, "ballast")
    site.server.kill()
    site.server.settings["key-load-delay"] = "1000"
    yield
    site.server.start()


@contextlib.contextmanager
def stopped(site):
    kill(site.server.pid, signal.SIGSTOP)
    yield
    kill(site.server.pid, signal.SIGCONT)


@contextlib.contextmanager
def forgotten(site):
    """Connections hang that were there; new ones work."""
    site.proxy.forget_all()
    yield


@contextlib.contextmanager
def reset(site):
    site.proxy.reset_all()
    yield


@contextlib.contextmanager
def demoted(site):
    with site.client() as client:
        client.replicaof("127.0.0.1", 1)
        yield
        client.replicaof("NO", "ONE")


@contextlib.contextmanager
def disk_broken(site):
    """Snapshots fail, and Redis refuses every write with MISCONF."""
    with site.client() as client:
        client.config_set("appendonly", "no")
        client.config_set("save", "3600 1")
        shutil.rmtree(site.directory)
        with contextlib.suppress(redis.ResponseError):
            client.bgsave()
        wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
        yield
        client.config_set("stop-writes-on-bgsave-error", "no")
        # It does not end before it has saved.
        client.config_set("save", "")


@contextlib.contextmanager
def scripts_forgotten(site):
    with site.client() as client:
        client.script_flush()
        yield


@contextlib.contextmanager
def busy(site):
    """A script of somebody else does not end, and Redis answers BUSY."""
    with site.client(timeout=0.2) as client, contextlib.suppress(redis.exceptions.TimeoutError):
        client.eval("while true do end", 0)
    yield
    with site.client() as client:
        client.script_kill()


#: In this order: the loading stays slow, and a server whose disk is broken does not start again.
OUTAGES = [reset, forgotten, stopped, demoted, scripts_forgotten, busy, killed, restarted_while_loading, disk_broken]


def test_consumers_work_again_and_nothing_is_lost_or_doubled(trees, publish, history, site, tmp_path, monkeypatch):
    monkeypatch.setitem(TIMEOUTS, "produce", (2.0, 0.5))  # tried until it succeeds
    # The listener may not know yet that its connection is gone, and a reader waits for its reply.
    limits = {
        "mq_django.consumers.supervisor.promoter:POLL": 0.5,
        "mq_django.transport.connections:TIMEOUTS": {**TIMEOUTS, "consume": (1.0, 1.5), "chores": (1.0, 1.5)},
    }
    tree = trees("--processes", "2", limits=limits, CONNECTION=site.proxy.url)
    tree.wait_until_ready(2)
    children = set(tree.children())
    for outage in OUTAGES:
        go = tmp_path / outage.__name__
        running = [publish_when_possible(publish, ["wait", str(go)]) for _ in range(4)]
        wait_until(lambda: history.counts("start").keys() >= set(running))  # noqa: B023
        delayed = publish_when_possible(publish, delay=0.3)
        with outage(site):
            # What runs ends while Redis is away; its outcomes wait.
            go.touch()
            wait_until(lambda: history.counts().keys() >= set(running), message=outage.__name__)  # noqa: B023
        later = publish_when_possible(publish)
        wait_until(lambda: history.counts().keys() >= {later, delayed}, message=outage.__name__)  # noqa: B023
        with site.client() as client:
            wait_until(lambda: nothing_left(client), message=outage.__name__)
        assert set(tree.children()) == children, outage
        assert history.counts("start") == dict.fromkeys(history.counts(), 1), outage


def publish_when_possible(publish, *steps, **options):
    def attempt():
        with contextlib.suppress(StoreError):
            return publish(*steps, **options)

    return wait_until(attempt)


def nothing_left(client):
    ready = next(iter(client.scan_iter(match="*default}:ready")), None)
    return ready is not None and client.xlen(ready) == 0


COMMANDS = ["XREADGROUP", "settle", "stream_fetch", "settle", "members_heartbeat", "waiting_promote"]


def words_of(script):
    """Return what a request for a script has: a new connection sends it in full, and by its hash from then on."""
    hashes = (script.sha, scripts._several(script.sha))
    return (script.text.partition("\n")[0].encode(), *(sha.encode() for sha in hashes))


def test_a_reply_that_is_lost_loses_and_doubles_nothing(trees, publish, history, site):
    trees("--processes", "1", CONNECTION=site.proxy.url)
    publish()
    history.wait_for("effect")
    ids = []
    for name in COMMANDS * 2:
        script = None if name.isupper() else load(name)
        words = words_of(script) if script else (name.encode(),)
        before = site.proxy.lost_replies
        site.proxy.lose_reply_to(*words)
        ids += [publish(), publish(["once", ["raise", "x"]]), publish(delay=0.05)]
        wait_until(lambda: site.proxy.lost_replies > before, message=name)  # noqa: B023
    history.wait_for("effect", 1 + len(ids))
    with site.client() as client:
        wait_until(lambda: nothing_left(client))
    assert {message_id: history.counts()[message_id] for message_id in ids} == dict.fromkeys(ids, 1)


def test_out_of_memory_producers_are_told_and_consumers_drain(trees, publish, history, site, mq_settings):
    tree = trees(CONNECTION=site.proxy.url)
    publish()
    history.wait_for("effect")
    with site.client() as client:
        actions.pause("default")
        ids = [publish(["once", ["raise", "x"]]) for _ in range(20)]
        client.config_set("maxmemory", "1")
        with pytest.raises(RedisOutOfMemory):
            publish()
        actions.resume("default")
        history.wait_for("effect", 21)
        wait_until(lambda: nothing_left(client))
        client.config_set("maxmemory", "0")
        assert sum(history.counts()[message_id] for message_id in ids) == 20
        assert "was taken for dead" not in tree.logged()
        assert tree.stop() == 0
        # Consumers that start on a full Redis empty a new queue.
        new = mq_settings(QUEUES={"a": {}}, CONNECTION=site.proxy.url)
        later = [publish(queue="a") for _ in range(20)]
        client.config_set("maxmemory", "1")
        tree = trees(**new)
        wait_until(lambda: history.counts().keys() >= set(later))
        client.config_set("maxmemory", "0")
    assert [history.counts()[message_id] for message_id in later] == [1] * 20
    assert "Traceback" not in tree.logged()


KEYS = ["ready", "front", "due", "waiting", "dead", "control", "consumers", "unhandled"]


def test_keys_of_the_wrong_type_stop_their_queue_and_no_other_and_a_flush_is_told_and_survived(
    trees, publish, history, site
):
    tree = trees("--processes", "1", CONNECTION=site.proxy.url, QUEUES={"a": {}, "b": {"VISIBILITY_TIMEOUT": 5}})
    publish(queue="a")
    publish(queue="b")
    history.wait_for("effect", 2)
    with site.client() as client:
        names = [str(getattr(queues["a"].config.keys, key)) for key in KEYS]
        saved = {name: client.dump(name) for name in names}
        with client.pipeline() as pipeline:
            pipeline.delete(*names)
            pipeline.mset(dict.fromkeys(names, "x"))
            pipeline.execute()
        with pytest.raises(StoreError):
            publish(["raise", "x"], queue="a")
        there = [publish(queue="b"), publish(queue="b", delay=0.2), publish(["once", ["raise", "x"]], queue="b")]
        wait_until(lambda: history.counts().keys() >= set(there))
        # In one step: a supervisor that finds itself missing begins anew.
        with client.pipeline() as pipeline:
            pipeline.delete(*names)
            for name, value in saved.items():
                if value:
                    pipeline.restore(name, 0, value)
            pipeline.execute()
    after = publish(queue="a")
    wait_until(lambda: after in history.counts())
    assert all(history.counts()[message_id] == 1 for message_id in there)
    assert len(tree.children()) == 1
    with site.client() as client:
        running = publish(["sleep", 0.5], queue="b")
        wait_until(lambda: history.counts("start")[running])
        client.flushall()
    wait_until(lambda: "data_loss_suspected" in tree.logged())
    after = publish(queue="b")
    wait_until(lambda: after in history.counts())
    assert tree.stop() == 0
