import threading

import pytest
import redis

from mq_django.errors import ConfigurationError, ConnectionLost
from mq_django.producers import queues
from mq_django.transport import connections
from mq_django.transport.connections import TIMEOUTS, close_clients, get_client
from mq_django.transport.private_server import PrivateServer


@pytest.fixture
def mq_alias(settings, mq_settings, redis_url):
    """CONNECTION names a django-redis alias whose options would break a queue if they reached it."""

    def configure(**options):
        settings.CACHES = {
            "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
            "mq": {
                "BACKEND": "django_redis.cache.RedisCache",
                "LOCATION": [redis_url],
                "OPTIONS": options,
                "KEY_PREFIX": "never-seen",
            },
        }
        mq_settings(CONNECTION="mq")

    return configure


def test_a_client_never_retries_a_write_and_never_waits_without_end(mq_settings, subtests):
    for role in TIMEOUTS:
        with subtests.test(role=role):
            options = get_client(role).connection_pool.connection_kwargs
            assert options["retry"].get_retries() == 0
            assert (options["socket_connect_timeout"], options["socket_timeout"]) == TIMEOUTS[role]
            assert options["decode_responses"] is False


def test_an_alias_gives_its_server_and_keeps_its_options_to_itself(mq_alias, redis_client, namespace):
    mq_alias(CONNECTION_POOL_KWARGS={"decode_responses": True, "max_connections": 7}, SOCKET_TIMEOUT=99)
    message_id = queues["emails"].publish("welcome", {"user_id": 7})
    ((_, fields),) = redis_client.xrange(f"{namespace}:{{emails}}:ready")
    assert fields[b"id"] == message_id.encode()
    pool = get_client("produce").connection_pool
    assert pool.connection_kwargs["decode_responses"] is False
    assert pool.connection_kwargs["socket_timeout"] == TIMEOUTS["produce"][1]


def test_an_alias_that_is_not_django_redis_is_refused(mq_alias, mq_settings, subtests):
    for alias in ["default", "nowhere"]:
        with subtests.test(alias=alias):
            mq_alias()
            mq_settings(CONNECTION=alias)
            with pytest.raises(ConfigurationError, match=alias):
                get_client("produce")


def test_threads_share_a_client(mq_settings):
    found = []
    threads = [threading.Thread(target=lambda: found.append(get_client("produce"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(client) for client in found}) == 1


def test_changed_settings_take_effect_at_once(mq_settings):
    before = get_client("produce")
    mq_settings(NAMESPACE="another")
    assert get_client("produce") is not before


def test_closing_without_a_client_connects_to_nothing(mq_settings, monkeypatch):
    close_clients()
    monkeypatch.setattr(connections, "make_pool", None)
    close_clients()


def test_a_publish_to_a_stopped_server_fails(mq_settings, monkeypatch):
    monkeypatch.setitem(TIMEOUTS, "produce", (2.0, 0.2))
    with PrivateServer() as server:
        mq_settings(CONNECTION=server.url)
        queues["emails"].publish("welcome", 1)
        client = redis.Redis.from_url(server.url)
        client.execute_command("CLIENT", "PAUSE", 60_000, "ALL")
        client.close()
        with pytest.raises(ConnectionLost):
            queues["emails"].publish("welcome", 2)


def test_a_publish_finds_the_server_again_after_a_restart(mq_settings):
    with PrivateServer() as server:
        mq_settings(CONNECTION=server.url)
        queues["emails"].publish("welcome", 1)
        server.stop()
        with pytest.raises(ConnectionLost):
            queues["emails"].publish("welcome", 2)
        server.start()
        mq_settings(CONNECTION=server.url)
        assert queues["emails"].publish("welcome", 3)
