"""What is said about a server, and which server is refused."""

import pytest
from django.core.management import CommandError, call_command

from mq_django.transport.capabilities import _of_eviction, _of_files, _of_persistence, examine
from mq_django.transport.connections import close_clients, get_client
from mq_django.transport.private_server import PrivateServer
from tests.transport.impostor import Impostor


@pytest.fixture
def server_with(mq_settings):
    servers = []

    def start(**settings):
        server = PrivateServer(
            tcp=True, settings={name.replace("_", "-"): value for name, value in settings.items()}
        ).start()
        servers.append(server)
        mq_settings(CONNECTION=server.url)
        return get_client("chores")

    start.servers = servers
    yield start
    for server in servers:
        server.stop()


def test_a_good_server_is_nothing_to_talk_about_though_it_tells_little(server_with):
    client = server_with(appendonly="yes")
    assert examine(client) == []
    client.execute_command("ACL", "SETUSER", "default", "-config", "-command")
    assert examine(client) == []


@pytest.fixture
def impostor(server_with, mq_settings):
    """Have `runconsumer` meet a server that looks like another version."""
    impostors = []

    def start(**looks):
        server_with(appendonly="yes")
        impostors.append(Impostor(server_with.servers[-1].port, **looks))
        mq_settings(CONNECTION=impostors[-1].url)

    yield start
    close_clients()
    for found in impostors:
        found.close()


def test_a_redis_below_7_0_is_refused_at_the_start(impostor):
    impostor(version="6.2.14", lacks=["EXPIRETIME"])
    with pytest.raises(CommandError, match=r"Redis 6\.2\.14 is too old: mq_django needs 7\.0 or newer"):
        call_command("runconsumer")


def test_a_redis_that_evicts_any_key_is_refused_at_the_start(server_with):
    server_with(maxmemory_policy="allkeys-lru", maxmemory="100mb")
    with pytest.raises(CommandError, match="messages would be lost"):
        call_command("runconsumer")


def test_builds_whose_files_break_are_named(subtests):
    for info, told in [
        ({"redis_version": "8.10.0"}, True),
        ({"redis_version": "8.10.2"}, True),
        ({"redis_version": "8.10.3"}, False),
        ({"redis_version": "8.8.1"}, False),
        ({"redis_version": "7.0.15"}, False),
        ({"redis_version": "8.10.1", "valkey_version": "8.10.1"}, False),
        ({}, False),
    ]:
        with subtests.test(info=info, told=told):
            assert (_of_files(info) is not None) == told


def test_a_replica_is_its_masters_business():
    assert _of_persistence({"role": "slave"}, "") is None


def test_a_server_that_does_not_tell_its_policy_evicts_nothing():
    assert _of_eviction({}) is None
