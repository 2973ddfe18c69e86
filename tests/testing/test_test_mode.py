"""Which server the tests of a process use in place of the configured one. By each runner: test_kit.py."""

import os

import pytest
import redis

from mq_django.conf import get_config
from mq_django.errors import ConfigurationError, ConnectionLost, NoServer
from mq_django.transport import test_server
from mq_django.transport.private_server import PrivateServer


@pytest.fixture(scope="module")
def container():
    """A server that a service container would have."""
    with PrivateServer(tcp=True) as server:
        yield server


@pytest.fixture
def database(container):
    """A client of the database that a process without a number uses."""
    with redis.Redis.from_url(f"{container.url}/1") as client:
        yield client
        for key in client.scan_iter():
            client.delete(key)


@pytest.fixture
def find(monkeypatch, mq_settings):
    """Return a function that finds the server of a worker, in a process that has none, and returns what it inherits."""
    for name in ("worker", "client", "private"):
        monkeypatch.setattr(test_server._Server, name, None)
    for name, value in (("url", ""), ("database", 0), ("used", False)):
        monkeypatch.setattr(test_server._Server, name, value)
    monkeypatch.setenv(test_server.INHERITED, "")
    monkeypatch.setattr(test_server, "use_moved_clock", lambda: None)

    def find(url, worker="", **settings):
        monkeypatch.setenv("MQ_REDIS_URL", url)
        mq_settings(**settings)
        os.environ[test_server.INHERITED] = ""
        test_server._find_server(get_config(), worker)
        test_server._Server.client.close()
        return os.environ[test_server.INHERITED]

    return find


def test_each_worker_has_a_database(find, container, database):
    assert find(container.url, "gw0") == f"gw0 2 {container.url}"
    assert find(container.url, "gw1") == f"gw1 3 {container.url}"
    assert find(container.url) == f" 1 {container.url}"
    assert database.get(test_server.MARK) == b"1"


def test_a_database_with_messages_is_refused(find, container, database, namespace):
    key = f"{namespace}:{{emails}}:ready"
    database.set(key, "theirs")
    with pytest.raises(ConfigurationError, match=rf"has messages that no test has published: the key '{key}'"):
        find(container.url)
    assert database.get(key) == b"theirs"


def test_what_a_killed_run_has_left_is_deleted_and_nothing_else(find, container, database, namespace):
    database.mset({f"{namespace}:{{emails}}:left": "theirs", test_server.MARK: "1", "session:1": "another program's"})
    find(container.url)
    assert set(database.scan_iter()) == {test_server.MARK.encode(), b"session:1"}


def test_a_variable_that_is_no_url_is_named(find):
    with pytest.raises(ConfigurationError, match="MQ_REDIS_URL must start with one of redis://, rediss://, unix://"):
        find("127.0.0.1:7000")


def test_the_configured_database_is_refused(find, container):
    own = f"{container.url}/1".replace("127.0.0.1", "localhost")
    with pytest.raises(ConfigurationError, match=r'which MQ_DJANGO\["CONNECTION"\] names for the project\'s own mess'):
        find(container.url, CONNECTION=own)


def test_a_database_that_the_server_does_not_have_is_an_error(find, container):
    with pytest.raises(ConnectionLost, match=r"Database 16 of 127\.0\.0\.1.* cannot be used for tests"):
        find(f"{container.url}/15")


def test_the_setting_comes_first_and_may_name_a_cache(find, container, settings):
    url = f"{container.url}/4"
    assert find("redis://127.0.0.1:1/0", TEST={"CONNECTION": url}) == f" 1 {url}"
    settings.CACHES = {"tests": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": f"{container.url}/7"}}
    assert find("redis://127.0.0.1:1/0", TEST={"CONNECTION": "tests"}) == " 1 tests"
    with redis.Redis.from_url(f"{container.url}/7") as client:
        assert client.get(test_server.MARK) == b"1"


def test_without_a_server_on_the_machine_there_is_advice(find, monkeypatch):
    def fail(server):
        raise NoServer("There is none.")

    monkeypatch.setattr(PrivateServer, "start", fail)
    with pytest.raises(NoServer, match=r"Tests need a Redis server, because .* There is none\. .*MQ_REDIS_URL"):
        find("")
