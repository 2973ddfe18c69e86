import threading
import time

import pytest
from redis import exceptions

from mq_django.errors import ConnectionLost, StoreError, WrongKeyType
from mq_django.transport import scripts
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled, Session, reply_or_raise
from tests.waiting import wait_until

pytestmark = pytest.mark.versions


@pytest.fixture
def session(mq_settings):
    found = Session(get_client("consume"))
    yield found
    found.close()


@pytest.fixture
def unknown_script(monkeypatch):
    """A script that the server has never seen."""
    text = f"-- {time.monotonic_ns()}\nreturn {{KEYS[1], ARGV[1]}}"
    script = scripts.Script("told", text, scripts.hashlib.sha1(text.encode()).hexdigest())
    monkeypatch.setattr(scripts, "load", lambda _: script)
    monkeypatch.setitem(scripts._by_sha, script.sha, script)
    return script


def test_commands_go_together_and_answers_come_in_order(session, namespace):
    key = f"{namespace}:n"
    assert session.pipeline([("SET", key, 1), ("INCR", key), ("GET", key)]) == [b"OK", 2, b"2"]


def test_an_error_reply_takes_its_place_among_the_others(session, namespace):
    key = f"{namespace}:list"
    replies = session.pipeline([("LPUSH", key, "a"), ("GET", key), ("LLEN", key)])
    assert replies[0] == replies[2] == 1
    assert isinstance(replies[1], exceptions.ResponseError)
    with pytest.raises(WrongKeyType):
        reply_or_raise(replies[1])


@pytest.mark.parametrize("kind", [Session, Pooled])
def test_trips_for_several_slots_are_one_round_trip_each_with_its_errors(kind, mq_settings, monkeypatch, namespace):
    transport, sent, send = kind(get_client("inspect")), [], Session.send
    monkeypatch.setattr(Session, "send", lambda session, commands: sent.append(commands) or send(session, commands))
    first, second, third = (f"{namespace}:{{{name}}}:key" for name in ("a", "b", "c"))
    replies = transport.pipelines(
        [[("SET", first, 1), ("GET", first)], [("LPUSH", second, 1), ("GET", second)], [], [("GET", third)]]
    )
    (set_, got), (pushed, error), nothing, missing = replies
    assert (set_, got, pushed, nothing, missing) == (b"OK", b"1", 1, [], [None])
    assert isinstance(error, exceptions.ResponseError)
    assert len(sent) == 1


def test_no_trips_are_no_round_trip(mq_settings, monkeypatch):
    monkeypatch.setattr(Session, "send", lambda session, commands: pytest.fail("sent"))
    assert Pooled(get_client("inspect")).pipelines([]) == []
    assert Pooled(get_client("inspect")).pipelines([[], []]) == [[], []]


def test_a_script_that_the_server_forgot_is_run_by_its_text(session, namespace, unknown_script):
    command = scripts.command("told", keys=[f"{namespace}:k"], args=["a"])
    assert session.pipeline([("PING",), command, ("PING",)])[1] == [f"{namespace}:k".encode(), b"a"]
    assert session.pipeline([command]) == [[f"{namespace}:k".encode(), b"a"]]


def test_an_error_of_a_script_is_ours(session, namespace, redis_client):
    redis_client.set(f"{namespace}:text", "x")
    command = scripts.command("waiting_cancel", keys=[f"{namespace}:text"] * 4, args=["a"])
    with pytest.raises(StoreError, match="WRONGTYPE"):
        reply_or_raise(session.pipeline([command])[0])


def test_a_key_of_another_type_is_named_also_by_a_plain_command(session, namespace, redis_client):
    redis_client.set(f"{namespace}:text", "x")
    for command in [("LLEN", f"{namespace}:text"), ("XREAD", "COUNT", 1, "STREAMS", f"{namespace}:text", "0")]:
        with pytest.raises(WrongKeyType, match=rf"\({command[0]} {namespace}:text\)$"):
            reply_or_raise(session.pipeline([("PING",), command])[1])


def test_a_waiting_thread_can_be_interrupted(session, namespace):
    caught = []

    def wait():
        try:
            session.pipeline([("BLPOP", f"{namespace}:nothing", 5)])
        except ConnectionLost as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: session._connection is not None and session._connection._sock is not None)
    while thread.is_alive():
        session.interrupt()
        thread.join(0.01)
    assert len(caught) == 1


def test_a_session_connects_again_after_it_was_closed(session):
    session.pipeline([("PING",)])
    session.close()
    assert session.pipeline([("PING",)]) == [b"PONG"]


def pipelines(client, times):
    """Return the ids of the connections that so many pipelines went over."""
    return [Pooled(client).pipeline([("CLIENT", "ID")])[0] for _ in range(times)]


def test_pooled_trips_share_a_connection(mq_settings):
    assert len(set(pipelines(get_client("inspect"), 3))) == 1


def test_trips_at_once_have_connections_of_their_own(mq_settings, namespace):
    client = get_client("inspect")
    waiting = threading.Thread(target=lambda: Pooled(client).pipeline([("BLPOP", f"{namespace}:nothing", 0.2)]))
    waiting.start()
    assert len({*pipelines(client, 1), *pipelines(client, 1)}) == 1
    waiting.join()
    assert len(client.connection_pool._in_use_connections) <= 2


def test_a_pooled_connection_that_the_server_closed_is_replaced(mq_settings, redis_client):
    client = get_client("inspect")
    (first,) = pipelines(client, 1)
    redis_client.client_kill_filter(_id=first)
    (second,) = pipelines(client, 1)
    assert second != first


def test_a_pooled_connection_with_a_stray_reply_is_replaced(mq_settings):
    client = get_client("inspect")
    (first,) = pipelines(client, 1)
    transport = Pooled(client)
    stray = transport._idle.take(client)
    stray.send([("PING",)])
    wait_until(lambda: not stray.is_quiet())
    transport._idle.put(stray)
    (second,) = pipelines(client, 1)
    assert second != first


def test_a_forked_process_connects_anew(mq_settings):
    client = get_client("inspect")
    transport, (first,) = Pooled(client), pipelines(client, 1)
    transport._idle._pid = -1  # as a fork's child sees it
    (second,) = pipelines(client, 1)
    assert second != first


def test_a_trip_that_failed_leaves_no_connection_behind(mq_settings, namespace):
    client = get_client("inspect")
    with pytest.raises(ConnectionLost):
        Pooled(client).pipeline([("BLPOP", f"{namespace}:nothing", 30)])  # past the answer's timeout
    assert not client.connection_pool._in_use_connections
    assert len(pipelines(client, 1)) == 1
