"""The server that tests use in place of the configured ones, and the time that they see in it.

Each parallel process of a test run has its own: a private server, or a database of the server in MQ_REDIS_URL. Programs
that a test starts inherit it through the environment.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import redis

from mq_django.conf import EMBEDDED, URL_SCHEMES, Config, get_config
from mq_django.core import clock
from mq_django.errors import ConfigurationError, ConnectionLost, NoServer
from mq_django.transport import test_mode
from mq_django.transport.cluster_topology import is_cluster
from mq_django.transport.failures import address, translated
from mq_django.transport.locations import make_cluster, make_pool, pool_of_url
from mq_django.transport.private_server import PrivateServer, configured_url
from mq_django.transport.scripts import MOVED_CLOCK, use_moved_clock

#: The environment variable with the server of a process: worker, number of the database after the URL's, URL.
INHERITED = "MQ_DJANGO_TEST_SERVER"
#: A key of a database that tests may use, because they have found it without messages.
MARK = "mq_django:tests"

NO_SERVER = (
    "Tests need a Redis server, because they never use the configured one. {reason} In CI, a service container can be "
    'named in MQ_REDIS_URL or in MQ_DJANGO["TEST"]["CONNECTION"].'
)
OTHER_SERVER = 'Name another one in MQ_DJANGO["TEST"]["CONNECTION"] or MQ_REDIS_URL, or none, to have one started.'

#: Options of the client for what tests do besides publishing and handling.
_CONTROL: Mapping[str, Any] = {"protocol": 2, "socket_timeout": 5, "socket_connect_timeout": 2}


class _Server:
    """The server of this process."""

    #: The worker that it belongs to; None: there is no server yet.
    worker: str | None = None
    url = ""
    database = 0
    private: PrivateServer | None = None
    #: A client for the clock, which notes no use.
    client: redis.Redis | None = None
    #: Something was sent to it since forget_use().
    used = False
    is_unreachable = False


class _TestConnection:
    """A connection that notes that it was used, so that tests that send nothing pay nothing for the cleaning."""

    def send_packed_command(self, *args: Any, **options: Any) -> None:
        _Server.used = True
        if _Server.client is not None:
            follow_python(_Server.client)
        if _Server.is_unreachable:
            self.disconnect()  # type: ignore[attr-defined]  # redis-py's
            raise redis.ConnectionError("the test lets Redis be unreachable")
        super().send_packed_command(*args, **options)  # type: ignore[misc]  # redis-py's


def make_test_pool(config: Config, ours: Mapping[str, Any]) -> redis.ConnectionPool:
    """Return a new pool to the server of the tests, with these options of redis-py.

    Raises:
        NoServer: there is no server on this machine.
        ConfigurationError: the server for tests is also a configured one, or has messages that no test has published.
        ConnectionLost: it cannot be reached.
    """
    worker = test_mode.worker()
    if _Server.worker != worker:
        _find_server(config, worker)
    pool = _pool(config, ours)
    pool.connection_class = type("TestConnection", (_TestConnection, pool.connection_class), {})
    return pool


def control_client() -> redis.Redis:
    """Return the client for what tests do with their server besides publishing and handling.

    Raises the errors of make_test_pool().
    """
    if _Server.client is None or _Server.worker != test_mode.worker():
        _find_server(get_config(), test_mode.worker())
    assert _Server.client is not None
    return _Server.client


def is_private() -> bool:
    """Return whether the server was started by this process, so that all its keys belong to tests."""
    return _Server.private is not None


def was_used() -> bool:
    """Return whether this process has sent anything since the last call of `forget_use()`."""
    return _Server.used


def forget_use() -> None:
    """Note that the server has no keys of tests."""
    _Server.used = False


@contextmanager
def standing_time() -> Iterator[None]:
    """Let the time in Redis stand still while a block runs, if this process runs tests.

    Raises the errors of make_test_pool(), and ConnectionLost.
    """
    if not test_mode.is_on():
        yield
        return
    with translated():
        client, ended = control_client(), ExitStack()
        ended.enter_context(standing(client))
    with ended:
        yield


@contextmanager
def unreachable() -> Iterator[None]:
    """Let each connection of this process fail while a block runs."""
    before, _Server.is_unreachable = _Server.is_unreachable, True
    try:
        yield
    finally:
        _Server.is_unreachable = before


def key_patterns(config: Config) -> list[str]:
    """Return the patterns of all keys of the queues and topics."""
    namespaces = {config.namespace, *(each.namespace for each in (*config.queues.values(), *config.topics.values()))}
    return sorted(f"{start}:*" for name in namespaces for start in (name, f"{{{name}}}"))


def _find_server(config: Config, worker: str) -> None:
    """Inherit the server of this worker, or find one."""
    _Server.private = None
    owner, _, rest = os.environ.get(INHERITED, "").partition(" ")
    # A program that a process of Django's test runner has started does not know its number.
    inherits = rest and (owner == worker or (not worker and owner.startswith("django")))
    if inherits:
        database, _, _Server.url = rest.partition(" ")
        _Server.database = int(database)
    elif named := config.test_connection or _url_of_environment():
        _Server.url, _Server.database = named, 2 + int("".join(filter(str.isdigit, worker)) or -1)
        _claim(config)
    else:
        _start()
    _Server.worker = worker
    use_moved_clock()
    _Server.client = redis.Redis(connection_pool=_pool(config, _CONTROL))
    if inherits:
        with translated():
            inherit_time(_Server.client)
    os.environ[INHERITED] = f"{worker} {_Server.database} {_Server.url}"


def _url_of_environment() -> str | None:
    url = configured_url()
    if url is not None and not url.startswith(URL_SCHEMES):
        raise ConfigurationError(f"MQ_REDIS_URL must start with one of {', '.join(URL_SCHEMES)}")
    return url


def _start() -> None:
    server = PrivateServer()
    try:
        server.start()
    except NoServer as error:
        raise NoServer(NO_SERVER.format(reason=error)) from error
    _Server.private, _Server.url, _Server.database = server, server.url, 0


def _pool(config: Config, ours: Mapping[str, Any]) -> redis.ConnectionPool:
    """Return a pool to the database of this worker."""
    if not _Server.url.startswith(URL_SCHEMES):
        return make_pool(config, ours, _Server.url)
    pool = pool_of_url(_Server.url, "MQ_REDIS_URL", ours)
    # Parallel workers count from the database that the URL names.
    pool.connection_kwargs["db"] = int(pool.connection_kwargs.get("db") or 0) + _Server.database
    return pool


def _claim(config: Config) -> None:
    """Refuse a database that is configured for the queues, or has messages that no test has published."""
    pool = _pool(config, _CONTROL)
    node, number = address(pool), pool.connection_kwargs.get("db") or 0
    for connection in config.connections():
        if _is_same(pool, config, connection):
            raise ConfigurationError(
                f"Tests would use database {number} of {node}, which {config.where_is(connection)} names for the "
                f"project's own messages. {OTHER_SERVER}"
            )
    with redis.Redis(connection_pool=pool) as client:
        try:
            is_ours = client.get(MARK) is not None
            for pattern in key_patterns(config):
                for key in client.scan_iter(match=pattern, count=1000):
                    if not is_ours:
                        raise ConfigurationError(
                            f"Database {number} of {node} has messages that no test has published: the key "
                            f"{key.decode(errors='replace')!r}. Tests would handle and delete them. {OTHER_SERVER}"
                        )
                    # A test run that was killed has left it.
                    client.unlink(key)
            client.set(MARK, "1")
        except (redis.RedisError, OSError) as error:
            raise ConnectionLost(f"Database {number} of {node} cannot be used for tests: {error}") from error


def _is_same(pool: redis.ConnectionPool, config: Config, connection: str) -> bool:
    """Return whether a configured connection leads to the database of a pool."""
    if (connection or config.connection) == EMBEDDED:
        return _Server.url == EMBEDDED
    try:
        if is_cluster(connection or config.connection):
            nodes = make_cluster(config, {}, connection).nodes
            return any(_node(pool)[1] == ("localhost" if host == "127.0.0.1" else host, port) for host, port in nodes)
        other = make_pool(config, {}, connection)
    except ConfigurationError:
        return False
    return _node(pool) == _node(other)


def _node(pool: redis.ConnectionPool) -> tuple[object, ...]:
    options = pool.connection_kwargs
    host = options.get("host") or "localhost"
    at = options.get("path") or ("localhost" if host == "127.0.0.1" else host, options.get("port") or 6379)
    return (vars(pool).get("service_name"), at, int(options.get("db") or 0))


# The time that tests see in Redis and in mq_django.
#
# A test moves it by the kit. It also follows libraries that replace Python's clock, such as freezegun and time-machine.


#: Milliseconds by which Python's clock may differ from the real one before it counts as replaced.
TOLERANCE_MS = 2000
#: The most keys whose lifetimes are changed in one round trip.
BATCH = 500


#: Seconds by a clock that these libraries do not replace. Windows has none.
_elapsed: Callable[[], float] = (lambda: os.times().elapsed) if os.name == "posix" else time.monotonic


class _Moved:
    """By how many milliseconds the time is moved."""

    #: By the test.
    by_test_ms = 0
    #: By a library that replaces Python's clock.
    by_python_ms = 0
    #: The time of the start, and _elapsed() at that time.
    start_ms, start = time.time_ns() // 1_000_000, _elapsed()


def follow_python(client: redis.Redis) -> None:
    """Let Redis follow Python's clock if that was replaced, moved or restored since the last call.

    Args:
        client: of the server of the tests.
    """
    real_ms = _Moved.start_ms + round((_elapsed() - _Moved.start) * 1000)
    ahead_ms = time.time_ns() // 1_000_000 - real_ms
    by_python_ms = ahead_ms if abs(ahead_ms) > TOLERANCE_MS else 0
    if abs(by_python_ms - _Moved.by_python_ms) > TOLERANCE_MS:
        _Moved.by_python_ms = by_python_ms
        _tell(client)


def move(client: redis.Redis, by_ms: int) -> None:
    """Move the time on, and let keys expire that much earlier.

    Args:
        client: of the server of the tests.
        by_ms: how far, at least 0.
    """
    _Moved.by_test_ms += by_ms
    clock.set_shift(_Moved.by_test_ms / 1000)
    _tell(client)
    keys = list(client.scan_iter(count=1000))
    for start in range(0, len(keys), BATCH):
        batch = keys[start : start + BATCH]
        with client.pipeline(transaction=False) as pipeline:
            for key in batch:
                pipeline.pttl(key)
            lifetimes = dict(zip(batch, pipeline.execute(), strict=True))
        with client.pipeline(transaction=False) as pipeline:
            for key, left_ms in lifetimes.items():
                if left_ms >= 0:
                    pipeline.pexpire(key, max(0, left_ms - by_ms))
            pipeline.execute()


def now_ms(client: redis.Redis) -> int:
    """Return the time in Redis in milliseconds since 1970."""
    return _server_ms(client) + _Moved.by_test_ms + _Moved.by_python_ms


@contextmanager
def standing(client: redis.Redis) -> Iterator[None]:
    """Let the time in Redis stand still while a block runs, unless the block moves it."""
    client.set(MOVED_CLOCK, f"={now_ms(client)}")
    try:
        yield
    finally:
        _tell(client)


def inherit_time(client: redis.Redis) -> None:
    """Move the time of this process as far as that of the test which has started it.

    Args:
        client: of the server of the tests.
    """
    found = client.get(MOVED_CLOCK) or b"0"
    moved = found.decode() if isinstance(found, bytes) else found
    _Moved.by_test_ms = int(moved.removeprefix("=")) - (_server_ms(client) if moved.startswith("=") else 0)
    clock.set_shift(_Moved.by_test_ms / 1000)


def reset(client: redis.Redis) -> None:
    """Set the time back to that of Python."""
    _Moved.by_test_ms = 0
    clock.set_shift(0)
    _tell(client)


def is_moved() -> bool:
    """Return whether a test has moved the time."""
    return _Moved.by_test_ms != 0


def _server_ms(client: redis.Redis) -> int:
    seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000


def _tell(client: redis.Redis) -> None:
    client.set(MOVED_CLOCK, _Moved.by_test_ms + _Moved.by_python_ms)
