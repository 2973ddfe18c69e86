"""Backup and restore of Redis, as docs/deployment.md describes it, with messages in every place."""

import shutil
from io import StringIO

import pytest
import redis
from django.core.management import call_command

from mq_django.producers import topics
from mq_django.transport.private_server import PrivateServer
from tests.seeding import bury, publish, set_aside
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

TOPICS = {"news": {}}


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    with PrivateServer(directory=folder, append_only=True) as started:
        yield started


def client_of(server):
    return redis.Redis.from_url(server.url)


def fill(server, trees, mq_settings, history, door):
    """Put messages into every place; return their ids, and that of a dead letter."""
    tree = trees(CONNECTION=server.url, TOPICS=TOPICS)
    pending = publish("default", "act", {"do": [["wait", str(door)]]})
    history.wait_for("start")
    tree.kill_all()
    mq_settings(CONNECTION=server.url, TOPICS=TOPICS)
    # These two take everything that is ready.
    dead, unhandled = bury("default", "act", {}), set_aside("default", "act", {})
    ids = [
        pending,
        unhandled,
        publish("default", "act", {}),
        publish("default", "act", {}, priority=5),
        publish("default", "act", {}, delay=1),
        str(topics["news"].publish("act", {}, on_commit=False)),
    ]
    return ids, dead


def snapshot(server, target):
    """Copy a snapshot, as `redis-cli --rdb` does."""
    with client_of(server) as client:
        before = client.lastsave()
        # Its time is in seconds.
        wait_until(lambda: client.time()[0] > before.timestamp())
        client.bgsave()
        wait_until(lambda: client.lastsave() > before)
    target.mkdir()
    shutil.copy(server.directory / "dump.rdb", target)


def append_only_files(server, target):
    """Copy the append-only files, while Redis cannot replace them."""
    with client_of(server) as client:
        client.config_set("auto-aof-rewrite-percentage", 0)
        wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
        target.mkdir()
        shutil.copytree(server.directory / "appendonlydir", target / "appendonlydir")


def restored_from_snapshot(target):
    """Start a server without an append-only file, let it write one, and start it with that."""
    server = PrivateServer(directory=target, append_only=False).start()
    with client_of(server) as client:
        client.config_set("appendonly", "yes")
        wait_until(lambda: not _rewrites(client.info("persistence")), timeout=30)
    server.kill()
    (target / "dump.rdb").unlink()
    server.settings["appendonly"] = "yes"
    return server.start()


def _rewrites(info):
    return info["aof_rewrite_in_progress"] or info["aof_rewrite_scheduled"]


def restored_from_append_only_files(target):
    return PrivateServer(directory=target, append_only=True).start()


@pytest.mark.parametrize(
    ("copy", "restore"),
    [(snapshot, restored_from_snapshot), (append_only_files, restored_from_append_only_files)],
    ids=["snapshot", "append-only files"],
)
def test_what_is_restored_is_handled_once(server, trees, mq_settings, history, tmp_path, copy, restore):
    door = tmp_path / "door"
    ids, dead = fill(server, trees, mq_settings, history, door)
    copy(server, tmp_path / "copy")
    too_late = publish("default", "act", {})
    server.kill()
    door.touch()
    restored = restore(tmp_path / "copy")
    try:
        tree = trees(CONNECTION=restored.url, TOPICS=TOPICS)
        wait_until(lambda: set(ids) <= set(history.counts()), timeout=40, message=f"effects of {ids}")
        call_command("mq", "redrive", "default", dead, stdout=StringIO())
        wait_until(lambda: dead in history.counts())
        assert tree.stop() == 0
        assert history.counts() == dict.fromkeys([*ids, dead], 1)
        assert too_late not in history.counts()
    finally:
        restored.stop()


def test_a_server_with_an_append_only_file_does_not_read_a_snapshot(server, mq_settings, tmp_path):
    """That is why the page restores in two steps."""
    mq_settings(CONNECTION=server.url)
    publish("default", "act", {})
    snapshot(server, tmp_path / "copy")
    with PrivateServer(directory=tmp_path / "copy", append_only=True) as other, client_of(other) as client:
        assert client.dbsize() == 0
