"""Processes that handlers start are ordinary programs, without signal handlers and descriptors of the consumer."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from importlib import import_module
from multiprocessing import active_children, get_context
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace

import pytest

from mq_django.consumers import processes
from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.worker import main
from mq_django.consumers.worker.main import ChildProcess
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session
from tests.consumers.rig import running

pytestmark = pytest.mark.versions

DESCRIPTORS = Path("/proc/self/fd")

#: Called when a fork begins. Such functions cannot be removed, and what is registered last is called first.
before_forks = []
os.register_at_fork(before=lambda: [each() for each in before_forks])


@pytest.fixture
def consumer(monkeypatch, mq_settings):
    """What a consumer process has: its signal handlers, an event loop, connections, the shared state and a lifeline."""
    monkeypatch.setattr(processes, "_closers", [])
    monkeypatch.setattr(processes, "generation", 0)
    lifeline, other_end = os.pipe()
    # Both ends are the same file, and this one is its supervisor's.
    os.close(other_end)
    with running(threads=1) as rig:
        rig.session.pipeline([("PING",)])
        state = SharedState.create(1)
        child = SimpleNamespace(
            _spec=SimpleNamespace(lifeline=lifeline), _shared_state=state, _ask_to_stop=lambda: None
        )
        child._close_in_child = lambda: ChildProcess._close_in_child(child)
        ChildProcess._listen(child)
        yield SimpleNamespace(lifeline=lifeline, session=rig.session, state=state)
        state.close()
    os.close(lifeline)


def in_child(check):
    """Return what a function returns in a forked child, as JSON."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
        pid = os.fork()
    if not pid:
        try:
            os.write(write, json.dumps(check()).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as found:
        told = found.read()
    os.waitpid(pid, 0)
    return json.loads(told)


def test_a_forked_child_handles_signals_as_any_program(consumer):
    assert in_child(lambda: [str(signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGHUP)]) == ["0", "0"]
    assert in_child(lambda: signal.getsignal(signal.SIGINT) is signal.default_int_handler)


def files():
    """Return what the descriptors of this process lead to."""
    found = []
    for path in DESCRIPTORS.iterdir():
        with suppress(OSError):  # that of the folder itself
            found.append(identity(int(path.name)))
    return found


def identity(descriptor):
    status = os.fstat(descriptor)
    return f"{status.st_dev} {status.st_ino}"


@pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="needs /proc")
def test_a_forked_child_has_no_descriptor_of_the_consumer(consumer):
    ours = {identity(each) for each in (consumer.session.socket.fileno(), consumer.lifeline, consumer.state.fd)}
    assert ours <= set(files())
    assert sorted(ours & set(in_child(files))) == []
    # The parent has them still.
    assert consumer.session.pipeline([("PING",)]) == [b"PONG"]


@pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="needs /proc")
def test_a_forked_child_has_no_connection_that_another_thread_was_opening(consumer, monkeypatch):
    """The fork waits until the socket is connected. What follows, as the log-in, goes on in the parent."""
    opened, goes_on, sockets, replies = Event(), Event(), [], []
    client = get_client("chores")
    (kind, connect), *_ = (
        (each, vars(each)["_connect"])
        for each in client.connection_pool.connection_class.__mro__
        if each.__module__ == "redis.connection" and "_connect" in vars(each)
    )

    def pausing(connection):
        sockets.append(connect(connection))
        opened.set()
        assert goes_on.wait(60)
        return sockets[-1]

    session = Session(client)
    monkeypatch.setattr(kind, "_connect", pausing)
    thread = Thread(target=lambda: replies.append(session.pipeline([("PING",)])))
    thread.start()
    assert opened.wait(60)
    before_forks.append(goes_on.set)
    try:
        inherited = in_child(files)
    finally:
        before_forks.clear()
        thread.join(60)
    assert identity(sockets[0].fileno()) not in inherited
    assert replies == [[b"PONG"]]


@pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="needs /proc")
def test_a_forked_child_has_no_connection_of_a_pool(consumer):
    client = get_client("inspect")
    client.ping()
    ours = {identity(each._sock.fileno()) for each in client.connection_pool._available_connections}
    assert ours <= set(files())
    assert ours.isdisjoint(in_child(files))


def test_a_child_connects_by_itself(consumer):
    def publish():
        return Session(get_client("consume")).pipeline([("PING",)])[0].decode()

    assert in_child(publish) == "PONG"


def test_a_program_that_a_handler_starts_can_be_interrupted(consumer):
    code = "import signal; print(*[signal.getsignal(number) is signal.SIG_IGN for number in (1, 2, 15)])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout.split() == ["False"] * 3


def test_processes_that_handlers_have_left_are_ended(subtests):
    """Python would wait for them at its exit, and the stop of a consumer would take its whole grace."""
    for ignored in ([], [signal.SIGTERM]):
        with subtests.test(ignored=ignored), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = get_context("fork").Process(target=pause, args=(ignored,))
            child.start()
            processes.end_children(patience=0.1)
            child.join(10)
            assert not child.is_alive()


def test_many_processes_that_do_not_end_are_waited_for_together(monkeypatch):
    """A pool of ten that ignores SIGTERM would otherwise take ten times the grace."""
    calls = []

    class Child(SimpleNamespace):
        def __getattr__(self, name):
            return lambda *args: calls.append((name, self.pid, *args)) or True

    children = [Child(pid=1), Child(pid=2)]
    # As after the first process that a handler has started; and before the other name, which it would keep.
    import_module("multiprocessing.util")
    monkeypatch.setattr("multiprocessing.process.active_children", lambda: children)
    processes.end_children(patience=0.0)
    ends = [("join", 0.0), ("is_alive",), ("kill",)]
    waits = [(name, pid, *args) for pid in (1, 2) for name, *args in ends]
    assert calls == [("terminate", 1), ("terminate", 2), *waits]


def test_a_pool_that_a_handler_still_uses_is_ended():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pool = get_context("fork").Pool(2)
        pool.map_async(time.sleep, [60])
        processes.end_children(patience=10.0)
    assert not pool._worker_handler.is_alive()
    assert active_children() == []
    # It has been, but has to be told so.
    pool.terminate()


def test_processes_are_ended_before_a_consumer_exits_whose_handlers_still_run(monkeypatch):
    done = []
    monkeypatch.setattr(main.Outage, "grace", main.Outage.grace)
    monkeypatch.setattr(main, "ChildProcess", lambda _: SimpleNamespace(run=lambda: 3))
    monkeypatch.setattr(main.processes, "end_children", lambda: done.append("children"))
    monkeypatch.setattr(main.logging, "shutdown", lambda: None)
    monkeypatch.setattr(main.os, "_exit", done.append)
    main.run(None)
    assert done == ["children", 3]


def pause(ignored):
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    while True:
        signal.pause()


def test_a_process_that_is_no_consumer_keeps_its_signals(monkeypatch):
    monkeypatch.setattr(processes, "_closers", [])
    signal.signal(signal.SIGTERM, lambda *_: None)
    assert in_child(lambda: signal.getsignal(signal.SIGTERM).__name__) == "<lambda>"
