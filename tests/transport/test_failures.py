"""Why a connection cannot be made, said the same to whoever asks for it, with what to do."""

import contextlib
import re
import shutil
import socket
import ssl
import threading

import pytest
import redis
from django.core.management import CommandError, call_command

from mq_django.errors import (
    ConnectionLost,
    ConnectionRejected,
    NotPermitted,
    ReadOnly,
    RedisOutOfMemory,
    ServerBusy,
    StoreError,
    WrongKeyType,
)
from mq_django.producers import queues
from mq_django.transport.connections import TIMEOUTS
from mq_django.transport.failures import translate, translate_connecting
from mq_django.transport.private_server import PrivateServer
from tests.certificates import TLSServer
from tests.shell import free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.versions

SECRET = "t0p-s3cret"
SETTING = r'MQ_DJANGO\["CONNECTION"\]'


@pytest.fixture(scope="module")
def plain():
    with PrivateServer(tcp=True) as server:
        yield server


@pytest.fixture(scope="module")
def locked():
    """A server with a password, and a user who may do next to nothing."""
    with PrivateServer(tcp=True) as server, redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "shop", "on", f">{SECRET}", "~mq:*", "+@connection", "+info")
        client.config_set("requirepass", SECRET)
        yield server


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    try:
        with TLSServer(tmp_path_factory.mktemp("tls"), free_port()) as server:
            yield server
    except ConnectionLost:
        pytest.skip("the server of this machine has no TLS")


@pytest.fixture
def answering():
    """Serve a fixed answer to whoever connects and sends something; None hangs up at once."""
    listeners = []

    def serve(answer):
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run():
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with client:
                        if answer is not None:
                            client.recv(1000)
                            client.sendall(answer)

        threading.Thread(target=run, daemon=True).start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield serve
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@pytest.fixture
def refused(mq_settings):
    """Return the one sentence that a publish, `mq status` and `runconsumer` give for a connection."""

    def sentence(connection, kind=ConnectionRejected):
        mq_settings(CONNECTION=connection)
        with pytest.raises(StoreError) as publishing:
            queues["default"].publish("welcome", 1)
        with pytest.raises(CommandError) as asking:
            call_command("mq", "status")
        assert type(publishing.value) is kind
        assert str(asking.value) == str(publishing.value)
        if kind is ConnectionRejected:
            with pytest.raises(CommandError) as consuming:
                call_command("runconsumer", "--drain")
            assert str(consuming.value) == str(publishing.value)
        said = str(publishing.value)
        assert SECRET not in said
        assert "\n" not in said
        return said

    return sentence


def matches(pattern, said):
    with pytest.raises(ConnectionRejected, match=f"^{pattern}$"):
        raise ConnectionRejected(said)


def test_a_wrong_log_in_or_database(refused, locked, plain, subtests):
    log_in, database = "refuses the log-in", "refuses the connection"
    check = f"Check the user name and the password in {SETTING}\\."
    for server, login, path, said in [
        (locked, f":{SECRET}x@", "", f"{log_in}: invalid username-password pair or user is disabled\\. {check}"),
        (locked, f"nobody:{SECRET}@", "", f"{log_in}: invalid username-password pair or user is disabled\\. {check}"),
        (locked, "", "", f"{log_in}: Authentication required\\. {check}"),
        # It does not know of a password.
        (plain, f":{SECRET}@", "", f"{log_in}: AUTH <password> called without any password .*{SETTING}\\."),
        (plain, "", "/99", f"{database}: DB index is out of range\\. Check {SETTING}\\."),
    ]:
        with subtests.test(login=login, path=path):
            at = f"127.0.0.1:{server.port}"
            matches(f"Redis at {at} {said}", refused(f"redis://{login}{at}{path}"))


def test_what_is_not_redis(refused, answering, subtests):
    for answer in [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n"]:
        with subtests.test(answer=answer):
            at = answering(answer)
            matches(
                f"The server at {at} is not Redis: Protocol .*\\. Check the address in {SETTING}\\.",
                refused(f"redis://{at}"),
            )


def test_a_certificate_that_cannot_be_verified(refused, tls):
    at = tls.url.removeprefix("rediss://")
    advice = f"Check the host in {SETTING}, and name the CA there: rediss://.*ssl_ca_certs=.*"
    said = refused(f"{tls.url}?password={SECRET}")
    matches(f"The certificate of Redis at {at} cannot be verified: self-signed certificate.*\\. {advice}", said)
    other = tls.trusted_url.replace("127.0.0.1", "127.0.0.2")
    matches("The certificate .* cannot be verified: IP address mismatch.*127.0.0.2'\\. Check .*", refused(other))


def test_a_trusted_certificate_works(mq_settings, tls):
    mq_settings(CONNECTION=tls.trusted_url)
    assert queues["default"].publish("welcome", 1)


def test_a_ca_that_cannot_be_read(refused, tls):
    matches(
        f"A file for TLS that {SETTING} names cannot be read: No such file or directory\\.",
        refused(f"{tls.url}?ssl_ca_certs=/nowhere/ca.pem"),
    )


def test_tls_with_what_answers_otherwise(refused, answering):
    at = answering(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    matches(
        f"TLS with Redis at {at} fails: .*\\. Check {SETTING}: a server without TLS needs redis://, not rediss://\\.",
        refused(f"rediss://{at}"),
    )


def test_tls_with_a_server_that_has_none_ends_with_advice(refused, plain, monkeypatch):
    for role in TIMEOUTS:
        monkeypatch.setitem(TIMEOUTS, role, (0.1, 0.1))
    said = refused(f"rediss://127.0.0.1:{plain.port}", ConnectionLost)
    assert said == (
        f"Cannot reach Redis at 127.0.0.1:{plain.port}: it did not answer in time. "
        "If it has no TLS, write redis:// instead of rediss://."
    )


def test_who_hangs_up_may_expect_tls(refused, answering):
    at = answering(None)
    advice = "it closed the connection. If it expects TLS, write rediss:// instead of redis://."
    assert refused(f"redis://{at}", ConnectionLost) == f"Cannot reach Redis at {at}: {advice}"


def test_a_server_that_cannot_be_reached_is_named(refused, subtests):
    # What the resolver says of a name that nobody has differs: without a network, and on macOS.
    with pytest.raises(socket.gaierror) as unknown:
        socket.getaddrinfo("no-such-host.invalid", 7000)
    for connection, said in [
        (f"redis://:{SECRET}@127.0.0.1:1", "127.0.0.1:1: Connection refused."),
        (f"redis://:{SECRET}@no-such-host.invalid:7000", f"no-such-host.invalid:7000: {unknown.value.strerror}."),
        ("unix:///nowhere/redis.sock", "/nowhere/redis.sock: No such file or directory."),
    ]:
        with subtests.test(connection=connection, said=said):
            assert refused(connection, ConnectionLost) == f"Cannot reach Redis at {said}"


def test_a_user_who_may_use_no_queue(mq_settings, locked, capsys):
    mq_settings(CONNECTION=f"redis://shop:{SECRET}@127.0.0.1:{locked.port}")
    with pytest.raises(NotPermitted) as publishing:
        queues["default"].publish("welcome", 1)
    said = str(publishing.value)
    assert "no permissions" in said
    assert said.endswith("(docs/settings.md lists the rights that a Redis user needs)")
    with pytest.raises(CommandError, match="Cannot read default, emails: "):
        call_command("mq", "status")
    assert said in capsys.readouterr().out
    with pytest.raises(CommandError, match=f"^Queue default: {re.escape(said)}$"):
        call_command("runconsumer", "--drain")


def fail_at_something_else():
    raise ssl.SSLError(1, "of the caller")


def test_what_the_caller_was_handling_is_no_reason(mq_settings):
    mq_settings(CONNECTION="redis://127.0.0.1:1")
    try:
        fail_at_something_else()
    except ssl.SSLError:
        with pytest.raises(ConnectionLost, match="Connection refused"):
            queues["default"].publish("welcome", 1)


def test_the_master_of_sentinels_is_named(settings, mq_settings):
    settings.CACHES = {
        "mq": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": "redis://mymaster/0",
            "OPTIONS": {
                "CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory",
                "SENTINELS": [("127.0.0.1", 1)],
            },
        }
    }
    mq_settings(CONNECTION="mq")
    with pytest.raises(
        ConnectionLost,
        match=r"Cannot reach Redis at the master 'mymaster' of the Sentinels 127.0.0.1:1: 127.0.0.1:1 does not",
    ):
        queues["default"].publish("welcome", 1)


def test_a_connection_that_breaks_during_tls_may_work_later():
    pool = redis.ConnectionPool(connection_class=redis.SSLConnection)
    error = redis.ConnectionError("Error 8 connecting to localhost:6379.")
    error.__cause__ = ssl.SSLEOFError(8, "EOF occurred in violation of protocol")
    assert type(translate_connecting(error, pool)) is ConnectionLost


WRITE = "return redis.call('SET', KEYS[1], 1)"


def said_by(client, *command):
    """Return what the error of a command means, also when a script runs it."""
    with pytest.raises(redis.RedisError) as raised:
        client.execute_command(*command)
    return translate(raised.value)


@pytest.fixture
def alone():
    """A server and a client of its own."""
    with PrivateServer(tcp=True) as server, redis.Redis.from_url(server.url) as client:
        yield client


def test_what_a_server_refuses_is_said_by_its_class_in_its_words_and_with_what_to_do(alone, subtests):
    alone.set("text", 1)
    found = said_by(alone, "EVAL", "return redis.call('LLEN', KEYS[1])", 1, "text")
    assert type(found) is WrongKeyType
    assert str(found) == "WRONGTYPE Operation against a key holding the wrong kind of value"
    for option, value, usual, kind, advice in [
        ("maxmemory", "1", "0", RedisOutOfMemory, "Redis is at its maxmemory. Raise it, or delete messages"),
        ("min-replicas-to-write", "1", "0", ReadOnly, "Redis accepts no writes."),
        ("replicaof", "127.0.0.1 1", "no one", ReadOnly, "name the master in CONNECTION"),
    ]:
        set_option(alone, option, value)
        for command in (("SET", "k", 1), ("EVAL", WRITE, 1, "k")):
            with subtests.test(option=option, command=command):
                found = said_by(alone, *command)
                assert type(found) is kind
                assert advice in str(found)
                assert "script" not in str(found)
        set_option(alone, option, usual)


def set_option(client, option, value):
    if option == "replicaof":
        client.replicaof(*value.split())
    else:
        client.config_set(option, value)


def test_a_code_in_the_name_of_a_key_means_nothing(alone):
    keys = ["ROOM", "BUSY", "MOVED"]
    alone.execute_command("ACL", "SETUSER", "shop", "on", f">{SECRET}", *(f"~{key}" for key in keys), "+eval", "+get")
    alone.auth(SECRET, "shop")
    for key in keys:
        assert type(said_by(alone, "SET", key, 1)) is NotPermitted
        assert type(said_by(alone, "GET", "OOM")) is NotPermitted
        assert type(said_by(alone, "EVAL", WRITE, 1, key)) is NotPermitted


def test_a_server_that_runs_a_script_without_end_is_busy(alone):
    alone.config_set("lua-time-limit", 1)
    with alone.client() as other, contextlib.suppress(redis.ResponseError):
        thread = threading.Thread(target=endless, args=(other,))
        thread.start()
        wait_until(lambda: type(said_or_none(alone)) is ServerBusy)
        alone.script_kill()
        thread.join()


def endless(client):
    with contextlib.suppress(redis.ResponseError):
        client.eval("while true do end", 0)


def said_or_none(client):
    try:
        client.get("k")
    except redis.RedisError as error:
        return translate(error)
    return None
