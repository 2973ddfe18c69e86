"""What CONNECTION says about the server is kept, and what it says about everything else is not."""

import os
import sys
import threading
from inspect import signature

import pytest
import redis
from django_redis.pool import ConnectionFactory
from redis.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection

from mq_django.checks import check_connection
from mq_django.errors import ConfigurationError
from mq_django.producers.queues import queues
from mq_django.transport import locations
from mq_django.transport.connections import TIMEOUTS, get_client
from mq_django.transport.sessions import Session
from tests.shell import ran

pytestmark = pytest.mark.versions

#: What would break a queue: answers of another form, time limits of others, retries, too few connections.
FOREIGN = {
    "max_connections": 1,
    "timeout": 0.01,
    "socket_timeout": 99.0,
    "socket_connect_timeout": 99.0,
    "retry_on_timeout": True,
    "protocol": 3,
    "decode_responses": True,
    "encoding": "utf-16",
    "health_check_interval": 1,
    "client_name": "theirs",
    "socket_read_size": 1,
}

PLACE = "db.example:7000/3"
TLS = "ssl_cert_reqs=none&ssl_ca_certs=/etc/ca.pem&ssl_check_hostname=false"


def query(url: str) -> str:
    return url + ("&" if "?" in url else "?") + "&".join(f"{name}={value}" for name, value in FOREIGN.items())


@pytest.fixture
def use_alias(settings, mq_settings):
    def configure(location, **options):
        settings.CACHES = {
            "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
            "mq": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": location, "OPTIONS": options},
        }
        mq_settings(CONNECTION="mq")

    return configure


@pytest.fixture(params=["url", "alias", "alias_url", "blocking_alias"])
def use_foreign(request, mq_settings, use_alias, redis_url):
    """Configure the server of this run with everything that is not the business of a URL or an alias."""

    def configure(url=redis_url):
        if request.param == "url":
            mq_settings(CONNECTION=query(url))
        elif request.param == "alias_url":
            use_alias(query(url))
        else:
            # A plain pool of redis-py takes no timeout.
            foreign = {**FOREIGN} if request.param == "blocking_alias" else {**FOREIGN, "timeout": None}
            kind = {"CONNECTION_POOL_CLASS": "redis.BlockingConnectionPool"} if "blocking" in request.param else {}
            use_alias([url], CONNECTION_POOL_KWARGS=foreign, SOCKET_TIMEOUT=99, PARSER_CLASS="no.such", **kind)

    return configure


def options_of(role="produce"):
    pool = get_client(role).connection_pool
    return {**pool.connection_kwargs, "max_connections": pool.max_connections}


def test_pools_timeouts_and_protocol_are_ours(use_foreign, subtests):
    use_foreign()
    for role in TIMEOUTS:
        with subtests.test(role):
            options = options_of(role)
            assert [name for name, value in FOREIGN.items() if options.get(name) == value] == []
            assert (options["socket_connect_timeout"], options["socket_timeout"]) == TIMEOUTS[role]
            assert (options["protocol"], options["retry"].get_retries()) == (2, 0)
            assert type(get_client(role).connection_pool) is redis.ConnectionPool
    assert queues["emails"].publish("welcome", {"user_id": 7})
    # Hundreds of connections at once.
    sessions = [Session(get_client("consume")) for _ in range(120)]
    threads = [threading.Thread(target=session.pipeline, args=([("PING",)],)) for session in sessions]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(session.socket is not None for session in sessions)
    finally:
        for session in sessions:
            session.close()


WHERES = {
    f"redis://{PLACE}": {"host": "db.example", "port": 7000, "db": 3},
    "redis://u%40x:p%2Fw@[::1]": {"host": "::1", "username": "u@x", "password": "p/w"},
    "redis://db.example?db=4": {"host": "db.example", "db": 4},
    "unix:///run/a%20b.sock?db=2&password=s": {"path": "/run/a b.sock", "db": 2, "password": "s"},
    f"rediss://{PLACE}?{TLS}": {"db": 3, "ssl_cert_reqs": "none", "ssl_ca_certs": "/etc/ca.pem"},
}


def test_where_the_server_is_and_how_to_log_in_is_kept(mq_settings, use_alias, subtests):
    for url in WHERES:
        for by_alias in [False, True]:
            with subtests.test(url=url, by_alias=by_alias):
                if by_alias:
                    use_alias(query(url))
                else:
                    mq_settings(CONNECTION=query(url))
                options = options_of()
                assert {name: options.get(name) for name in WHERES[url]} == WHERES[url]
                kind = {"redis": Connection, "rediss": SSLConnection, "unix": UnixDomainSocketConnection}[
                    url.partition(":")[0]
                ]
                assert kind in get_client("produce").connection_pool.connection_class.__bases__


def test_an_alias_keeps_its_log_in_tls_and_database(use_alias):
    login = {"db": 5, "ssl_ca_certs": "/etc/ca.pem", "username": "u", "connection_class": SSLConnection}
    use_alias("redis://db.example", PASSWORD="p", CONNECTION_POOL_KWARGS=login)
    options = options_of()
    assert {name: options.get(name) for name in ("db", "username", "password", "ssl_ca_certs")} == {
        "db": 5,
        "username": "u",
        "password": "p",
        "ssl_ca_certs": "/etc/ca.pem",
    }
    assert SSLConnection in get_client("produce").connection_pool.connection_class.__bases__


def test_sentinels_are_asked_with_our_protocol_and_patience(use_alias):
    use_alias(
        "redis://mymaster/2",
        CONNECTION_FACTORY="django_redis.pool.SentinelConnectionFactory",
        CONNECTION_POOL_CLASS="redis.sentinel.SentinelConnectionPool",
        CONNECTION_POOL_KWARGS={"protocol": 3, "max_connections": 1, "ssl": True},
        SENTINELS=[("127.0.0.1", 1)],
        SENTINEL_KWARGS={"password": "s", "protocol": 3, "socket_timeout": 99},
        PASSWORD="p",
    )
    pool = get_client("produce").connection_pool
    assert isinstance(pool, redis.sentinel.SentinelConnectionPool)
    assert issubclass(pool.connection_class, SSLConnection)
    assert options_of()["password"] == "p"
    assert (pool.service_name, pool.connection_kwargs["db"], pool.connection_kwargs["protocol"]) == ("mymaster", 2, 2)
    asked = pool.sentinel_manager.sentinels[0].connection_pool.connection_kwargs
    assert (asked["password"], asked["protocol"], asked["socket_timeout"]) == ("s", 2, 1.0)


def test_every_option_of_redis_py_is_ours_or_says_where(subtests):
    # What a newer redis-py adds to its servers' addresses must be added to ours; all else is caught by itself.
    for kind in (Connection, UnixDomainSocketConnection, SSLConnection):
        for name in signature(kind.__init__).parameters:
            if name not in ("self", "kwargs"):
                with subtests.test(name):
                    assert name in locations._OURS or name in locations._WHERE or name.startswith("ssl_")
    assert "protocol" in locations._OURS
    assert signature(AbstractConnection.__init__).parameters.keys() & locations._WHERE == {
        *("db", "username", "password", "credential_provider", "redis_connect_func")
    }


def test_what_cannot_be_used_is_told_with_its_setting(mq_settings, use_alias, subtests):
    for url, said in [
        ("redis://db.example:notaport", "port from 1 to 65535"),
        ("redis://db.example:70000", "port from 1 to 65535"),
        ("redis://db.example?port=0", "port from 1 to 65535"),
        ("redis://db.example/first", "its database is not a number"),
        ("redis://db.example?db=first", "'db'"),
        ("redis://db.example?socket_timeout=abc", "'socket_timeout'"),
        ("redis://db.example?max_conections=5", "max_conections"),
        ("rediss://db.example?ssl_cert_reqs=some", "some"),
        ("redis://[::1", "percent-encoded"),
        ("unix://", "no path to a socket"),
        ("redis://user:top/secret@db.example", "percent-encoded"),
        ("redis://user:top#secret@db.example", "percent-encoded"),
    ]:
        for by_alias in [False, True]:
            with subtests.test(url=url, said=said, by_alias=by_alias):
                if by_alias:
                    use_alias(url)
                else:
                    mq_settings(CONNECTION=url)
                setting = r"CACHES\['mq'\]" if by_alias else r'MQ_DJANGO\["CONNECTION"\]'
                with pytest.raises(ConfigurationError, match=f"(?s){setting}.*{said}") as caught:
                    queues["emails"].publish("welcome", 1)
                assert "top" not in str(caught.value)
                assert "secret" not in str(caught.value)


def test_an_alias_that_cannot_be_used_is_named(use_alias, redis_url, subtests):
    for options in [
        {"CONNECTION_POOL_KWARGS": {"max_conections": 5}},
        {"CONNECTION_FACTORY": "no.such.Factory"},
        {"CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory"},
        {"CONNECTION_FACTORY": "tests.transport.test_locations.Stubborn"},
        {"CONNECTION_POOL_KWARGS": 5},
        {"REDIS_CLIENT_CLASS": "redis.RedisCluster"},
        {"REDIS_CLIENT_CLASS": "no.such.Client"},
    ]:
        with subtests.test(options=options):
            use_alias(redis_url, **options)
            with pytest.raises(ConfigurationError, match=r"CACHES\['mq'\]"):
                queues["emails"].publish("welcome", 1)


def test_an_alias_of_a_cluster_is_told_the_url_to_write(use_alias, redis_url):
    use_alias(redis_url, REDIS_CLIENT_CLASS="redis.RedisCluster")
    with pytest.raises(ConfigurationError, match=r"redis\+cluster://HOST:PORT"):
        queues["emails"].publish("welcome", 1)


def test_a_class_made_from_django_rediss_is_one_of_it(settings, mq_settings, redis_url):
    settings.CACHES = {"mq": {"BACKEND": "tests.testapp.caches.TeamCache", "LOCATION": redis_url}}
    mq_settings(CONNECTION="mq")
    assert queues["emails"].publish("welcome", {"user_id": 7})
    assert not [message for message in check_connection() if message.is_serious()]


def test_another_cache_is_refused_whatever_its_name(settings, mq_settings, redis_url, subtests):
    for backend in ["django.core.cache.backends.redis.RedisCache", "my_django_redis.Cache"]:
        with subtests.test(backend=backend):
            settings.CACHES = {"mq": {"BACKEND": backend, "LOCATION": redis_url}}
            mq_settings(CONNECTION="mq")
            with pytest.raises(ConfigurationError, match="must name a django-redis alias"):
                queues["emails"].publish("welcome", 1)
            assert [message.id for message in check_connection() if message.is_serious()] == ["mq_django.E003"]
    mq_settings(CONNECTION="nowhere")
    with pytest.raises(ConfigurationError, match="nowhere"):
        queues["emails"].publish("welcome", 1)


def test_an_alias_that_spreads_its_keys_is_refused(use_alias, redis_url):
    sharding = {"CLIENT_CLASS": "django_redis.client.ShardClient"}
    use_alias([redis_url, "redis://db.example"], **sharding)
    with pytest.raises(ConfigurationError, match="several servers"):
        queues["emails"].publish("welcome", 1)
    use_alias([redis_url], **sharding)
    assert queues["emails"].publish("welcome", 1)


def test_an_alias_without_a_redis_is_named(use_alias, subtests):
    for location in ["", [], 5, "db.example:6379", "redis://db.example/0;redis://db.example/1"]:
        with subtests.test(location=location):
            use_alias(location)
            with pytest.raises(ConfigurationError, match=r"The LOCATION of CACHES\['mq'\] is not a usable Redis URL"):
                queues["emails"].publish("welcome", 1)


class Stubborn(ConnectionFactory):
    """A factory that makes pools without the options of the alias."""

    def get_connection_pool(self, params):
        return redis.ConnectionPool.from_url(params["url"])


def test_a_plain_install_has_no_hiredis(redis_url, namespace):
    code = f"""
import sys
sys.modules["hiredis"] = sys.modules["orjson"] = None
from django.conf import settings
cache = {{"BACKEND": "django_redis.cache.RedisCache", "LOCATION": {redis_url!r}}}
settings.configure(
    CACHES={{"default": cache}},
    MQ_DJANGO={{
        "NAMESPACE": {namespace!r},
        "CONNECTION": {redis_url!r},
        "QUEUES": {{"default": {{}}, "alias": {{"CONNECTION": "default"}}}},
    }},
)
from mq_django import queues
print(queues["default"].publish("welcome", 1), queues["alias"].publish("welcome", 1))
"""
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    ran([sys.executable, "-c", code], env=environment)
