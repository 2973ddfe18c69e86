"""A private Redis for each process that runs tests, and a namespace of its own for each test."""

import logging
import os
import secrets
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from asgiref.sync import SyncToAsync
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.core.management.commands import flush
from django.core.management.sql import emit_post_migrate_signal
from django.db import connection, connections
from django.db.models import Model
from pytest_django import Settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from mq_django import registry
from mq_django.errors import NoServer
from mq_django.inspector import consumers
from mq_django.transport.private_server import PrivateServer, configured_url, find_server
from mq_django.transport.sessions import Session
from tests import leftovers, on_cluster, one_slot
from tests.cluster_rig.private_cluster import PrivateCluster
from tests.clusters import cluster_binary, delete_keys

# For each connection, redis-py parses the files about its distribution.
redis.utils.get_lib_version = cache(redis.utils.get_lib_version)

# A heartbeat that a test has written is a recent one until the test ends, however busy the machine is.
consumers.ALIVE_MS = 600_000

#: The port of other people's Redis. No test may touch it.
FORBIDDEN_PORT = 6379

MQSettings = Callable[..., dict[str, Any]]

#: For tests of our own plugin, and for those of several databases.
pytest_plugins = ["pytester", "tests.databases.fixtures"]


def refuse_default_port(url: str) -> None:
    """End the run when a URL points at the port where somebody's real data may be."""
    parts = urlsplit(url)
    if parts.scheme != "unix" and (parts.port or FORBIDDEN_PORT) == FORBIDDEN_PORT:
        pytest.exit(f"MQ_REDIS_URL points at port {FORBIDDEN_PORT}; tests need a Redis of their own.", 2)


def pytest_configure() -> None:
    """Let Ctrl-C reach the programs that tests start: a shell's job in the background would have them ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart(session: pytest.Session) -> None:
    """End the run at once where there is no Redis to be had: without one next to nothing would be tested."""
    url = configured_url()
    if url:
        refuse_default_port(url)
        if session.config.getoption("numprocesses", None):
            # Some tests change the settings of their server.
            pytest.exit("With MQ_REDIS_URL all tests share one Redis: run them in one process, -n 0.", 2)
        return
    try:
        find_server()
    except NoServer as error:
        pytest.exit(str(error), 2)


@pytest.hookimpl(trylast=True)  # after the plugin that shuffles
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the longest tests.

    On a Redis Cluster, skip what says why it needs one server: `@pytest.mark.single_server(why="...")`.
    """
    for item in items:
        reasons = reasons_of(item, "single_server")
        if reasons and on_cluster.URL:
            item.add_marker(pytest.mark.skip(reason=f"not on a Redis Cluster: {reasons[0]}"))
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def reasons_of(item: pytest.Item, name: str) -> list[str]:
    """Return the reasons of a mark of a test, the closest first. Each mark must have one."""
    reasons = []
    for mark in item.iter_markers(name):
        if mark.args or set(mark.kwargs) != {"why"} or not mark.kwargs["why"].strip():
            raise pytest.UsageError(f"{item.nodeid}: the mark {name} needs its reason: {name}(why=...)")
        reasons.append(mark.kwargs["why"])
    return reasons


@pytest.fixture(autouse=True)
def _leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test that leaves something behind. It comes first, so that it looks when all others have ended."""
    before = leftovers.Before()
    yield
    left = before.left()
    if (client := request.node.funcargs.get("redis_client")) is not None:
        left += leftovers.keys_in(client)
    assert not left, "; ".join(left)


@pytest.fixture
def monkeypatch(_leaves_nothing: None, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Undo what it has changed before the test is looked at."""
    return monkeypatch


@pytest.fixture(autouse=True, scope="session")
def _database_first(django_db_setup: None) -> None:
    """Make the database of the tests before any test can open another one, whose connection Django would keep."""


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give pages, searches and rounds time: none ends early on a busy machine. A test of these limits sets its own."""
    monkeypatch.setattr("mq_django.inspector.stream_reader.SECONDS", 30.0)
    monkeypatch.setattr("mq_django.admin.ui.page.SECONDS", 30.0)
    monkeypatch.setattr("mq_django.consumers.service.BUDGET", 30.0)
    # A page shows what a test has just done.
    monkeypatch.setattr("mq_django.admin.ui.live.SHARED_FOR", 0.0)


@pytest.fixture(autouse=True)
def _own_logs() -> Iterator[None]:
    """Take back what `runconsumer` does with the logs of its process: the stream may end with the test."""
    logger = logging.getLogger("mq_django")
    handlers, level = logger.handlers, logger.level
    yield
    if logger.handlers is not handlers:
        logger.handlers, logger.propagate = handlers, True
        logger.setLevel(level)


@pytest.fixture(autouse=True)
def _databases_without_errors() -> None:
    """Forget the errors of earlier tests: a consumer looks closer at a connection that had one, and may not use it."""
    for found in connections.all(initialized_only=True):
        found.errors_occurred = False
    # The thread of `sync_to_async` stays. A test without a database may not look whether a connection is usable.
    pool = SyncToAsync.single_thread_executor
    if pool._threads:
        pool.submit(connections.close_all).result(timeout=60)


@pytest.fixture(autouse=True)
def mixed_trips(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Fail a test that sends a pipeline for several hash slots: for several queues there is `Transport.pipelines()`."""
    found = one_slot.watch(monkeypatch)
    yield found
    assert not found, f"pipelines for more than one hash slot, or scripts without a key: {found[:3]}"


@pytest.fixture
def sent_commands(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list, to which each command is added that this process sends."""
    found: list[Any] = []
    send = Session.send

    def watched(session: Session, commands: Any) -> None:
        found.extend(commands)
        send(session, commands)

    monkeypatch.setattr(Session, "send", watched)
    return found


@pytest.fixture(autouse=True, scope="session")
def _routed(request: pytest.FixtureRequest) -> None:
    if on_cluster.URL:
        on_cluster.route_wires(request.getfixturevalue("redis_url"))


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> None:
    """Tell consumers that run as processes of their own where this process has its database."""
    name = str(connection.settings_dict["NAME"])
    # If no test uses one, it was not created.
    assert name == ":memory:" or Path(name).exists()
    os.environ["MQ_DJANGO_TEST_DATABASE"] = name
    flush.emit_post_migrate_signal = Restored()


class Restored:
    """Puts back what each database has after its migrations, when the tables are emptied after a test.

    Django's own signal finds out for each model which rows are missing, which takes longer than most tests.
    """

    def __init__(self) -> None:
        self._rows: dict[str, list[list[Model]]] = {}

    def __call__(self, verbosity: int, interactive: bool, db: str, **options: Any) -> None:
        if db not in self._rows:
            emit_post_migrate_signal(verbosity, interactive, db, **options)
            self._rows[db] = [list(model._default_manager.using(db)) for model in (ContentType, Permission)]
            return
        ContentType.objects.clear_cache()
        for rows in self._rows[db]:
            type(rows[0])._default_manager.using(db).bulk_create(rows)


@pytest.fixture(scope="session")
def redis_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of the Redis of this process: MQ_REDIS_URL or MQ_CLUSTER_URL, or one started for it."""
    if on_cluster.URL == on_cluster.OWN:
        yield request.getfixturevalue("session_cluster").url
        return
    url = on_cluster.URL or configured_url()
    if url:
        yield url
        return
    with PrivateServer() as server:
        yield server.url


@pytest.fixture(scope="session")
def session_client(redis_url: str) -> Iterator[redis.Redis]:
    if on_cluster.URL:
        with on_cluster.raw_client(redis_url) as client:
            yield client
        return
    with redis.Redis.from_url(redis_url, protocol=2, socket_timeout=10, retry=Retry(NoBackoff(), 0)) as client:
        yield client


@pytest.fixture
def redis_client(session_client: redis.Redis) -> redis.Redis:
    """A raw client: bytes, RESP2 shapes, no retries."""
    return session_client


@pytest.fixture
def namespace(redis_client: redis.Redis) -> Iterator[str]:
    """A namespace for this test alone; its keys go when the test ends."""
    name = f"t{secrets.token_hex(6)}"
    yield name
    # Every key of a namespace starts with it, some inside a hash tag; so do namespaces that are made of it.
    starts = (name.encode(), b"{" + name.encode())
    keys = [key for key in redis_client.scan_iter(match=f"*{name}*", count=1000) if key.startswith(starts)]
    if isinstance(redis_client, redis.RedisCluster):
        for key in keys:
            redis_client.delete(key)
        return
    for start in range(0, len(keys), 500):
        redis_client.delete(*keys[start : start + 500])


@pytest.fixture
def mq_settings(settings: Settings, redis_url: str, namespace: str) -> MQSettings:
    """Configure two queues in this test's namespace; call it to change settings.

    `mq_settings(QUEUES={...})` replaces top-level keys of MQ_DJANGO and returns the whole.
    """

    def configure(**overrides: Any) -> dict[str, Any]:
        values = {
            "CONNECTION": redis_url,
            "NAMESPACE": namespace,
            "QUEUES": {"default": {}, "emails": {}},
            **overrides,
        }
        settings.MQ_DJANGO = on_cluster.tagged(values) if on_cluster.URL else values
        return values

    configure()
    return configure


@pytest.fixture(scope="session")
def session_cluster() -> Iterator[PrivateCluster]:
    """A cluster of three masters, started for the first test that asks for one: tests/clusters.py says of what."""
    with PrivateCluster(binary=cluster_binary()) as cluster:
        yield cluster


@pytest.fixture
def cluster(session_cluster: PrivateCluster, mq_settings: MQSettings) -> Iterator[PrivateCluster]:
    """A cluster that MQ_DJANGO names; its keys go when the test ends.

    `mq_settings(CONNECTION=cluster.url, ...)` changes other settings. The tests of a process share it: one that moves
    slots moves them back, and one that kills a node starts a `PrivateCluster` of its own.
    """
    mq_settings(CONNECTION=session_cluster.url)
    yield session_cluster
    delete_keys(session_cluster)


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch, mq_settings: MQSettings) -> None:
    """Let a test register handlers, subscribers and schedules of its own."""
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    monkeypatch.setattr(registry, "_starts", {})
    monkeypatch.setattr(registry, "_schedules", {})
    monkeypatch.setattr(registry, "_kinds", {})
    monkeypatch.setattr(registry, "_batches", {})
