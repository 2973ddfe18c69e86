import threading

import pytest
import redis

from mq_django.errors import ConnectionLost
from mq_django.producers import queues
from mq_django.transport import connections
from mq_django.transport.connections import TIMEOUTS, close_clients, get_client
from mq_django.transport.private_server import PrivateServer


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
