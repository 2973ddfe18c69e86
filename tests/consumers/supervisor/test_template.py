"""Consumers are forks of a template: who is whose child, what they share and what not, and what if it cannot be."""

import asyncio
import errno
import multiprocessing
import os
import signal
import socket
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from mq_django.consumers.supervisor import template
from mq_django.consumers.supervisor.launcher import NOT_FORKED
from mq_django.consumers.supervisor.template import CONSUMER, ForkedProcess, Template
from tests.consumers.trees import kill, stop
from tests.processes import alive, children
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives a supervisor what others fork")

REFUSED = NOT_FORKED.removesuffix("%s")
AT_ONCE = {"mq_django.consumers.supervisor.launcher:AGAIN": 0.0}


def private_share(pid):
    """Return which part of a process's memory no other process has."""
    rows = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    kib = {row[0]: int(row[1]) for row in rows}
    return (kib["Private_Clean:"] + kib["Private_Dirty:"]) / kib["Rss:"]


def forks(tree):
    return [found.pid for found in children(tree.pid) if found.name == CONSUMER]


def test_a_killed_consumer_is_replaced_by_another_fork_and_a_killed_template_is_made_anew(trees, publish, history):
    tree = trees("--processes", "2", limits=AT_ONCE)
    tree.wait_until_ready(2)
    (first,) = tree.templates()
    killed, other = forks(tree)
    kill(killed)
    tree.wait_until_ready(3)
    assert tree.templates() == [first]
    assert other in forks(tree)
    assert len(forks(tree)) == 2
    assert "exited with code -9; starting another" in tree.logged()
    before = forks(tree)
    kill(first)
    wait_until(lambda: tree.templates() not in ([], [first]), timeout=30)
    assert "The template of the consumers has exited with code -9; loading another" in tree.logged()
    assert forks(tree) == before
    # It is asked for a consumer before it has loaded the project.
    kill(other)
    tree.wait_until_ready(4)
    assert len(forks(tree)) == 2
    publish()
    assert history.wait_for("effect")[0]["pid"] in forks(tree)
    assert REFUSED not in tree.logged()
    (last,) = tree.templates()
    assert tree.stop() == 0
    assert not alive(last)


def test_consumers_share_most_of_their_memory_and_their_template_ends_with_a_killed_supervisor(trees):
    tree = trees("--processes", "2", interpreter=True)
    tree.wait_until_ready(2)
    assert max(map(private_share, forks(tree))) < 0.5
    (template,) = tree.templates()
    kill(tree.pid)
    wait_until(lambda: not alive(template))


def test_until_there_is_another_template_consumers_are_new_interpreters(trees, publish, history):
    # The next one is not loaded while the test runs, however long that takes.
    tree = trees(limits={"mq_django.consumers.supervisor.launcher:AGAIN": 3600.0})
    tree.wait_until_ready()
    (first,), (child,) = tree.templates(), forks(tree)
    kill(first)
    wait_until(lambda: "loading another" in tree.logged())
    kill(child)
    tree.wait_until_ready(2)
    assert (len(tree.children()), forks(tree)) == (1, [])
    publish()
    history.wait_for("effect")
    assert tree.stop() == 0


def test_a_template_that_does_not_answer_is_ended(trees):
    tree = trees(limits={**AT_ONCE, "mq_django.consumers.supervisor.template:FORK_TIMEOUT": 2.5})
    tree.wait_until_ready()
    (first,), (child,) = tree.templates(), forks(tree)
    stop(first)
    kill(child)
    tree.wait_until_ready(2)
    assert "Cannot start a consumer process: timed out. Next attempt in 0.5 s" in tree.logged()
    assert not alive(first)
    assert tree.stop() == 0


def test_without_forks_there_is_no_template(trees, publish, history):
    tree = trees("--no-fork")
    tree.wait_until_ready()
    kill(*tree.children())
    publish()
    history.wait_for("effect")
    assert (tree.templates(), forks(tree)) == ([], [])
    assert REFUSED not in tree.logged()
    assert tree.stop() == 0


def test_a_project_that_cannot_be_forked_is_loaded_by_each_consumer(site, trees, publish, history):
    site.add(
        "fresh/handlers.py",
        """
        import threading
        threading.Thread(target=threading.Event().wait, name="watch", daemon=True).start()
        """,
    )
    said = f"{REFUSED}the project has started threads as it was loaded: watch"
    tree = trees("--settings", "site_settings", "--processes", "2")
    tree.wait_until_ready(2)
    assert tree.logged().count(REFUSED) == tree.logged().count(said) == 1
    assert (tree.templates(), forks(tree)) == ([], [])
    publish()
    history.wait_for("effect")
    # So it is said by what loads the changed code.
    tree.signal(signal.SIGHUP)
    tree.wait_until_ready(4)
    assert tree.logged().count(said) == 2
    assert tree.stop() == 0


@pytest.fixture
def refusal(monkeypatch):
    """Why this process must not be forked, had it no other threads, connections and event loops."""
    monkeypatch.setattr(template, "other_threads", list)
    monkeypatch.setattr(template, "connections", SimpleNamespace(close_all=lambda: None))
    peers = template._peers
    before = [*peers()]
    monkeypatch.setattr(template, "_peers", lambda: [each for each in peers() if each not in before])
    return template.refusal


def test_open_connections_and_what_forks_would_share_are_reasons_not_to_fork(refusal):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            assert refusal() == f"the project has opened connections as it was loaded: ('127.0.0.1', {port})"
    loop, lock = asyncio.new_event_loop(), multiprocessing.get_context("fork").Lock()
    found = refusal()
    loop.close()
    assert lock
    assert found.startswith("the project has made as it was loaded, and forks would share: an event loop")
    assert "multiprocessing.Lock" in found


def test_what_a_project_does_as_it_is_loaded_that_forks_can_bear(site, trees, publish, history):
    """Known connections are closed, and nobody needs SIGCHLD."""
    site.add(
        "fresh/handlers.py",
        """
        import signal
        from django.db import connection
        from mq_django.transport.connections import get_client

        connection.ensure_connection()
        get_client("inspect").ping()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        """,
    )
    tree = trees("--settings", "site_settings", "--processes", "2")
    tree.wait_until_ready(2)
    assert len(forks(tree)) == 2
    publish()
    history.wait_for("effect")
    assert tree.stop() == 0


def test_forks_differ_in_what_must_differ_and_leave_what_is_not_theirs(site, trees, history):
    site.add(
        "fresh/handlers.py",
        """
        import atexit, random, tempfile
        from mq_django.core.ids import new_id
        from mq_django.signals import consumer_started
        from mq_django.task_backend import running

        folder = tempfile.TemporaryDirectory()

        def born(**_):
            masks = [line.split()[1] for line in open("/proc/self/status") if line.startswith("SigBlk")]
            note("born", values=[random.random(), new_id(), running.WORKER], folder=folder.name, masks=masks)

        consumer_started.connect(born, weak=False)
        atexit.register(lambda: note("end"))
        """,
    )
    # So that they are replaced at once.
    tree = trees("--settings", "site_settings", "--processes", "2", "--max-memory", "1")
    born = history.wait_for("born", 2)[:2]
    assert all(len(set(values)) == 2 for values in zip(*(line["values"] for line in born), strict=True))
    assert {int(mask, 16) for line in born for mask in line["masks"]} == {0}
    ended = history.wait_for("end")[0]["pid"]
    assert ended in {line["pid"] for line in history.lines("born")}
    assert "will be replaced: it uses" in tree.logged()
    assert Path(born[0]["folder"]).is_dir()
    assert tree.stop() == 0
    assert not Path(born[0]["folder"]).exists()


def test_a_reload_makes_the_template_anew_and_what_cannot_be_loaded_keeps_it(site, trees, publish, history):
    tree = trees("--settings", "site_settings")
    tree.wait_until_ready()
    (first,), (child,) = tree.templates(), forks(tree)
    kept = (site.folder / "fresh" / "handlers.py").read_text()
    site.write("fresh/handlers.py", "this is no Python\n")
    tree.signal(signal.SIGHUP)
    wait_until(lambda: "cannot be loaded; keeping the old consumers" in tree.logged(), timeout=30)
    # One that dies meanwhile is replaced by the code that was loaded.
    kill(child)
    tree.wait_until_ready(2)
    assert tree.templates() == [first]
    site.write("fresh/handlers.py", kept + '\nhandler("default", "new")(lambda message: note("new"))\n')
    tree.signal(signal.SIGHUP)
    tree.wait_until_ready(3)
    wait_until(lambda: len(tree.children()) == 1)
    publish(name="new")
    assert history.wait_for("new")[0]["pid"] in forks(tree)
    assert first not in tree.templates()
    assert len(tree.templates()) == 1
    assert tree.stop() == 0


def test_what_the_system_refuses_is_the_error_of_the_supervisor(monkeypatch):
    def refuse():
        raise OSError(errno.EAGAIN, "no processes")

    monkeypatch.setattr(os, "fork", refuse)
    assert template._fork_twice() == -errno.EAGAIN
    ours, theirs = socket.socketpair()
    found = Template(SimpleNamespace(), ours)
    spec = SimpleNamespace(as_text=lambda: "{}", board=ours.fileno(), lifeline=ours.fileno())
    with ours, theirs:
        theirs.send(template._ANSWER.pack(-errno.EAGAIN))
        with pytest.raises(OSError, match="Resource temporarily unavailable"):
            found.fork(spec)


def test_a_fork_that_somebody_else_has_waited_for_has_ended():
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", ""], os.environ)
    os.waitpid(pid, 0)
    process = ForkedProcess(pid)
    process.kill()
    assert process.poll() == 0


@pytest.mark.parametrize(("left", "names"), [([True, False], []), ([True, True], ["of a library"]), ([False], [])])
def test_threads_that_a_library_ends_before_a_fork_do_not_count(monkeypatch, left, names):
    monkeypatch.setattr(template, "threading", SimpleNamespace(enumerate=list, current_thread=lambda: None))
    monkeypatch.setattr(template, "_has_more_tasks", iter(left).__next__)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside the threads of the test
        assert template.other_threads() == names
