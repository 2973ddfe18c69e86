"""`kill -HUP`: what a running `runconsumer` takes up of changed code and settings, and what becomes of its messages."""

import itertools
import os
import signal
import socket
from datetime import timedelta

import pytest
from django.apps import AppConfig, apps
from django.utils.autoreload import StatReloader

from mq_django.conf import get_config
from mq_django.consumers.supervisor.reload import fingerprint, watch_new_modules
from mq_django.consumers.supervisor.supervisor import SignalPipe
from mq_django.core.retries import RetryPolicy
from mq_django.discovery import UnimportedSources
from mq_django.producers import queues, topics
from mq_django.registry import Handler, register
from mq_django.stores import open_store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.consumers.supervisor.conftest import HANDLERS
from tests.processes import alive, command
from tests.shell import free_port
from tests.waiting import wait_until

TASK = "from mq_django import task\n@task\ndef add(): ...\n"


@pytest.fixture
def start(site, trees):
    """Start a tree of the site, and wait until it handles messages."""

    def begin(*arguments, **overrides):
        tree = trees("--settings", "site_settings", *arguments, **overrides)
        wait_until(lambda: "handles" in tree.logged(), timeout=20)
        return tree

    return begin


def starts(tree):
    return tree.logged().count("Stop with Ctrl-C")


def test_what_has_changed_is_taken_up_and_no_message_is_lost_or_handled_twice(
    site, start, publish, history, store, mq_settings, redis_client, tmp_path
):
    mq_settings(TOPICS={"orders": {}})
    tree, gate = start("--processes", "2"), tmp_path / "gate"
    # Some run, and others lie ready in the processes.
    ids = [publish(["wait", str(gate)]) for _ in range(20)]
    history.wait_for("start", 16)
    topics["orders"].publish("paid", 7)
    mq_settings(QUEUES={"default": {}, "emails": {}, "late": {}}, TOPICS={"orders": {}})
    emails = open_store(get_config().queue("emails"), Pooled(get_client("produce")))
    assert redis_client.hlen(emails.keys.consumers)
    site.write("changes.json", '{"QUEUES": {"default": {}, "late": {}}}')
    site.add(
        "fresh/handlers.py",
        """
        handler("late", "late")(lambda message: note("late", id=message.id))

        @subscriber("orders", group="fresh")
        def fresh(message):
            note("fresh", data=message.data)

        @task(schedule=every(seconds=1))
        def tick():
            note("tick")
        """,
    )
    tree.signal(signal.SIGHUP)
    wait_until(lambda: "restarts: its queues" in tree.logged(), timeout=30)
    gate.touch()
    wait_until(lambda: starts(tree) == 2, timeout=30)
    late = queues["late"].publish("late", None)
    assert [line["id"] for line in history.wait_for("late")] == [late]
    assert [line["data"] for line in history.wait_for("fresh")] == [7]
    history.wait_for("tick")
    history.wait_for("effect", len(ids))
    wait_until(lambda: store.depths().pending == 0)
    assert history.counts("start") == history.counts() == dict.fromkeys(ids, 1)
    assert {line["attempt"] for line in history.lines("start")} == {1}
    assert redis_client.hlen(emails.keys.consumers) == 0
    # The process stays, with its command line.
    assert command(tree.pid).endswith("-m django runconsumer --settings site_settings --processes 2")
    assert len(tree.children()) == 2
    assert tree.stop() == 0
    assert redis_client.hgetall(store.keys.consumers) == {}
    assert redis_client.xinfo_consumers(store.keys.ready, "mq") == []


def test_what_cannot_be_loaded_changes_nothing_and_new_code_replaces_the_consumers(site, start, publish, history):
    tree = start("--processes", "2")
    # One that is still importing the project would meet the broken file.
    wait_until(lambda: tree.logged().count(" handles default") == 2)
    before = tree.children()
    broken = [
        ("fresh/handlers.py", "this is no Python\n", "SyntaxError: invalid syntax"),
        ("changes.json", '{"QUEUES": {"default": {"TIMEOUT": "soon"}}}', "'TIMEOUT'"),
    ]
    for number, (name, text, said) in enumerate(broken):
        kept = (site.folder / name).read_text()
        site.write(name, text)
        tree.signal(signal.SIGHUP)
        refused = "cannot be loaded; keeping the old consumers"
        wait_until(lambda number=number, refused=refused: tree.logged().count(refused) > number, timeout=30)
        assert said in tree.logged()
        site.write(name, kept)
    assert tree.children() == before
    running = publish(["once", ["wait", str(site.folder / "gate")]])
    history.wait_for("start")
    site.add("fresh/handlers.py", '\nhandler("default", "new")(lambda message: note("new", id=message.id))\n')
    tree.signal(signal.SIGHUP)
    wait_until(lambda: set(tree.children()) - set(before), timeout=30)
    (site.folder / "gate").touch()
    wait_until(lambda: not set(before) & set(tree.children()) and len(tree.children()) == 2, timeout=30)
    published = publish(name="new")
    assert [line["id"] for line in history.wait_for("new")] == [published]
    assert history.counts() == {running: 1}
    assert starts(tree) == 1
    assert tree.stop() == 0


def test_asked_to_stop_while_it_restarts_it_stops_without_haste(site, start, publish, history, tmp_path):
    gate = tmp_path / "gate"
    tree = start()
    message_id = publish(["wait", str(gate)])
    history.wait_for("start")
    site.write("changes.json", '{"QUEUES": {"default": {}, "late": {}}}')
    tree.signal(signal.SIGHUP)
    wait_until(lambda: "restarts: its queues" in tree.logged())
    # It stops already: no more than what it would do anyway.
    tree.signal(signal.SIGHUP)
    tree.signal(signal.SIGTERM)
    wait_until(lambda: "stops instead of restarting" in tree.logged())
    gate.touch()
    assert tree.wait(20) == 0
    assert history.counts() == {message_id: 1}
    assert starts(tree) == 1


#: A further handler, and whether the supervisor uses what it says: when its process dies, and to trim its inbox.
FURTHER = {
    "a plain handler": (Handler(name="new", queue="default", call=print), False),
    "its timeout": (Handler(name="new", queue="default", call=print, timeout=timedelta(seconds=9)), False),
    "of a queue elsewhere": (Handler(name="new", queue="emails", call=print, retry=RetryPolicy()), False),
    "its retry policy": (Handler(name="new", queue="default", call=print, retry=RetryPolicy(max_attempts=2)), True),
    "exactly once": (Handler(name="new", queue="default", call=print, once="default"), True),
    "a task": (Handler(name="new", queue=None, call=print, keeps_result=True), True),
}


@pytest.mark.parametrize("which", FURTHER)
@pytest.mark.usefixtures("handlers")
def test_what_a_supervisor_uses_of_a_handler_is_a_change_of_its_own(mq_settings, which):
    mq_settings(QUEUES={"default": {"PARTITIONS": 2}, "emails": {}})
    watched = [each for each in get_config().queues.values() if each.public_name == "default"]
    before, (entry, is_own) = fingerprint(watched), FURTHER[which]
    register(entry)
    assert (fingerprint(watched) != before) == is_own


def test_asked_to_stop_while_it_looks_at_the_changes_it_stops(site, start, tmp_path):
    probing = tmp_path / "probing"
    tree = start()
    site.add(
        "site_settings.py",
        f"""
        if "--fingerprint" in sys.argv:
            Path("{probing}.new").write_text(str(os.getpid()))
            os.rename("{probing}.new", "{probing}")
            time.sleep(600)
        """,
    )
    tree.signal(signal.SIGHUP)
    wait_until(probing.exists)
    assert tree.stop() == 0
    assert not alive(int(probing.read_text()))


def test_signals_while_the_new_program_starts_wait_for_it(site, start, tmp_path):
    """Nobody has a handler then, and by default each of them would end the process."""
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    tree = start()
    site.add(
        "site_settings.py",
        f"""
        if "--fingerprint" not in sys.argv and "--orders" not in sys.argv:
            Path("{begun}").touch()
            while not Path("{gate}").exists():
                time.sleep(0.01)
        """,
    )
    site.write("changes.json", '{"QUEUES": {"default": {}, "late": {}}}')
    tree.signal(signal.SIGHUP)
    wait_until(begun.exists, timeout=30)
    for number in (signal.SIGHUP, signal.SIGTERM):
        tree.signal(number)
    gate.touch()
    assert tree.wait() == 0


@pytest.mark.versions
def test_a_signal_in_the_last_moment_is_not_lost(signal_state):
    goes_on = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        with SignalPipe() as pipe:
            os.kill(os.getpid(), number)
            goes_on.append(pipe.hold())
    assert goes_on == [False, False, True]


def test_with_autoreload_a_new_module_is_found_and_what_cannot_be_loaded_is_waited_for(
    site, start, mq_settings, history
):
    """Django's own reloader watches what was imported, and ends when a change cannot be loaded."""
    mq_settings(TOPICS={"orders": {}})
    port = free_port()
    tree = start("--autoreload", "--health-port", f"127.0.0.1:{port}")
    topics["orders"].publish("paid", 7)
    # Editors save what is half written.
    (site.folder / "fresh" / "triggers").mkdir()
    site.write("fresh/triggers/__init__.py", "this is no Python\n")
    wait_until(lambda: "waiting for the next change" in tree.logged(), timeout=30)
    assert "SyntaxError" in tree.logged()
    fresh = '\n    subscriber("orders", group="fresh")(lambda message: note("fresh", data=message.data))\n'
    site.write("fresh/triggers/__init__.py", HANDLERS + fresh)
    assert [line["data"] for line in history.wait_for("fresh", timeout=30)] == [7]
    wait_until(lambda: answers(port))
    assert tree.stop() == 0
    assert "stops: the code has changed" in tree.logged()
    assert "has died" not in tree.logged()


@pytest.mark.versions
def test_the_reloader_watches_modules_that_apps_may_get():
    reloader = StatReloader()
    watch_new_modules(reloader)
    missing = {str(path).rpartition("tests/testapp/")[2] for path, moment in reloader.snapshot_files() if not moment}
    assert {"handlers.py", "handlers/__init__.py"} <= missing
    assert {"tasks.py", "triggers.py"}.isdisjoint(missing)


def test_the_reloader_sees_a_module_that_begins_to_declare(monkeypatch, tmp_path):
    """Any file of an app may get its first task. One without any is not worth a restart."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shop").mkdir()
    monkeypatch.setattr(apps, "get_app_configs", lambda: [AppConfig.create("shop")])
    plain, jobs, written = tmp_path / "shop/plain.py", tmp_path / "shop/jobs.py", itertools.count(1000)

    def write(path, text):
        path.write_text(text)
        os.utime(path, (moment := next(written), moment))

    def changed():
        """Return what Django's reloader takes for changed: files that are there again, and written later."""
        found = []
        for path, moment in sources.changes():
            if moment > seen.setdefault(path, moment):
                found.append(path)
            seen[path] = moment
        return found

    (tmp_path / "shop/__init__.py").touch()
    write(plain, "")
    write(tmp_path / "shop/failed.py", TASK)
    sources, seen = UnimportedSources(), {}
    assert changed() == changed() == []
    write(jobs, "from mq_django import task\n@task\ndef (")
    assert changed() == []
    write(jobs, TASK)
    assert changed() == [jobs]
    assert changed() == []
    write(plain, "import mq_django\n")
    assert changed() == []
    write(plain, TASK)
    assert changed() == [plain]


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=10).close()
    except OSError:
        return False
    return True
