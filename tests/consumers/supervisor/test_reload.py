"""`kill -HUP`: what a running `runconsumer` takes up of changed code and settings, and what becomes of its messages."""

import signal
import subprocess
import sys
import textwrap

import pytest

from mq_django.conf import get_config
from mq_django.producers import queues, topics
from mq_django.stores import open_store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.processes import alive, processes
from tests.waiting import wait_until

SETTINGS = """
    import json, os, sys, time
    from pathlib import Path
    from tests.consumers.project.settings import *

    INSTALLED_APPS += ["fresh"]
    MQ_DJANGO |= json.loads(Path(__file__).with_name("changes.json").read_text())
"""
HANDLERS = """
    from mq_django import every, handler, subscriber, task
    from tests.consumers.project.history import note
"""


class Site:
    """A project whose code and settings change while its consumers run."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "fresh").mkdir(parents=True)
        (folder / "fresh" / "__init__.py").touch()
        self.write("fresh/handlers.py", HANDLERS)
        self.write("changes.json", "{}")
        self.write("site_settings.py", SETTINGS)

    def write(self, name, text):
        (self.folder / name).write_text(textwrap.dedent(text), encoding="utf-8")

    def add(self, name, text):
        with (self.folder / name).open("a", encoding="utf-8") as file:
            file.write(textwrap.dedent(text))


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "code"))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return Site(tmp_path / "code")


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


def hang_up(tree):
    """Ask a tree to reload what needs a new supervisor, and wait until that handles messages."""
    before, handling = starts(tree), tree.logged().count("handles")
    tree.signal(signal.SIGHUP)
    wait_until(lambda: starts(tree) > before and tree.logged().count("handles") > handling, timeout=30)


def test_a_new_subscriber_gets_its_messages(site, start, mq_settings, history):
    mq_settings(TOPICS={"orders": {}})
    tree = start()
    topics["orders"].publish("paid", 7)
    site.add(
        "fresh/handlers.py",
        """
        @subscriber("orders", group="fresh")
        def fresh(message):
            note("fresh", data=message.data)
        """,
    )
    hang_up(tree)
    assert [line["data"] for line in history.wait_for("fresh")] == [7]
    assert tree.stop() == 0


def test_queues_come_and_go_with_the_settings(site, start, publish, history, mq_settings, redis_client):
    tree = start(QUEUES={"default": {}, "emails": {}})
    mq_settings(QUEUES={"default": {}, "emails": {}, "late": {}})
    emails = open_store(get_config().queue("emails"), Pooled(get_client("produce")))
    site.add("fresh/handlers.py", '\nhandler("late", "late")(lambda message: note("late", id=message.id))\n')
    site.write("changes.json", '{"QUEUES": {"default": {}, "late": {}}}')
    assert redis_client.hlen(emails.keys.consumers)
    hang_up(tree)
    assert redis_client.hlen(emails.keys.consumers) == 0
    message_id = queues["late"].publish("late", None)
    assert [line["id"] for line in history.wait_for("late")] == [message_id]
    assert "Handling default, late." in tree.logged()
    assert tree.stop() == 0


def test_a_new_schedule_fires(site, start, history):
    tree = start()
    site.add(
        "fresh/handlers.py",
        """
        @task(schedule=every(seconds=1))
        def tick():
            note("tick")
        """,
    )
    hang_up(tree)
    history.wait_for("tick")
    assert tree.stop() == 0


def test_the_process_stays_and_takes_its_command_line_along(site, start, mq_settings):
    tree = start("--processes", "2", "default")
    site.write("changes.json", '{"QUEUES": {"default": {"VISIBILITY_TIMEOUT": 5}}}')
    hang_up(tree)
    assert tree.process.poll() is None
    wait_until(lambda: len(tree.children()) == 2)
    (supervisor,) = (process for process in processes() if process.pid == tree.pid)
    assert supervisor.command.endswith("-m django runconsumer --settings site_settings --processes 2 default")
    assert tree.stop() == 0


def test_no_message_is_lost_or_handled_twice(site, start, publish, history, store, redis_client):
    tree = start("--processes", "2")
    ids = []
    for number in (1, 2):
        ids += [publish(["sleep", 0.2]) for _ in range(400)]
        site.write("changes.json", f'{{"QUEUES": {{"default": {{"VISIBILITY_TIMEOUT": {10 + number}}}}}}}')
        history.wait_for("effect", 400 * number - 300)
        assert history.counts().total() < len(ids)
        hang_up(tree)
    history.wait_for("effect", len(ids), timeout=40)
    wait_until(lambda: store.depths().pending == 0)
    assert history.counts("start") == history.counts() == dict.fromkeys(ids, 1)
    assert {line["attempt"] for line in history.lines("start")} == {1}
    assert tree.stop() == 0
    assert redis_client.hgetall(store.keys.consumers) == {}
    assert redis_client.xinfo_consumers(store.keys.ready, "mq") == []


def test_code_that_cannot_be_loaded_changes_nothing(site, start, publish, history):
    tree = start()
    before = tree.children()
    site.add("fresh/handlers.py", "\nthis is no Python\n")
    tree.signal(signal.SIGHUP)
    wait_until(lambda: "cannot be loaded; keeping the old consumers" in tree.logged())
    assert "SyntaxError: invalid syntax" in tree.logged()
    publish()
    history.wait_for("effect")
    assert tree.children() == before
    site.write("fresh/handlers.py", HANDLERS)
    tree.signal(signal.SIGHUP)
    wait_until(lambda: tree.children() and not set(before) & set(tree.children()), timeout=30)
    assert starts(tree) == 1
    assert tree.stop() == 0


def test_settings_that_are_wrong_change_nothing(site, start):
    tree = start()
    site.write("changes.json", '{"QUEUES": {"default": {"TIMEOUT": "soon"}}}')
    tree.signal(signal.SIGHUP)
    wait_until(lambda: "cannot be loaded; keeping the old consumers" in tree.logged())
    assert "'TIMEOUT'" in tree.logged()
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


@pytest.mark.parametrize("numbers", [[signal.SIGHUP], [signal.SIGHUP, signal.SIGTERM]])
def test_signals_while_the_new_program_starts_wait_for_it(site, start, tmp_path, numbers):
    """Nobody has a handler then, and by default a hangup would end the process."""
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
    for number in numbers:
        tree.signal(number)
    gate.touch()
    if signal.SIGTERM not in numbers:
        wait_until(lambda: "one by one" in tree.logged(), timeout=20)
    assert tree.stop() == 0


@pytest.mark.parametrize(("number", "goes_on"), [("SIGTERM", "False"), ("SIGINT", "False"), ("SIGHUP", "True")])
def test_a_signal_in_the_last_moment_is_not_lost(number, goes_on):
    code = f"""
import os, signal
from mq_django.consumers.supervisor.signal_pipe import SignalPipe
with SignalPipe() as pipe:
    os.kill(os.getpid(), signal.{number})
    print(pipe.hold())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280, check=True)
    assert done.stdout.strip() == goes_on


@pytest.mark.parametrize("name", ["fresh/tasks.py", "fresh/triggers/__init__.py"])
def test_with_autoreload_the_first_module_of_its_kind_is_found(site, start, history, name):
    """Django's own reloader watches files that were imported, and this one was not there."""
    start("--autoreload")
    (site.folder / name).parent.mkdir(exist_ok=True)
    site.write(name, HANDLERS + '\n    handler("default", "late")(lambda message: note("late", data=message.data))\n')
    queues["default"].publish("late", 7)
    assert [line["data"] for line in history.wait_for("late", timeout=30)] == [7]


def test_with_autoreload_a_new_subscriber_gets_its_messages(site, start, mq_settings, history):
    mq_settings(TOPICS={"orders": {}})
    start("--autoreload")
    topics["orders"].publish("paid", 7)
    site.add(
        "fresh/handlers.py",
        '\nsubscriber("orders", group="fresh")(lambda message: note("fresh", data=message.data))\n',
    )
    assert [line["data"] for line in history.wait_for("fresh", timeout=30)] == [7]


def test_with_autoreload_code_that_cannot_be_loaded_is_waited_for(site, start, history):
    """Editors save what is half written."""
    tree = start("--autoreload")
    site.write("fresh/tasks.py", "this is no Python\n")
    wait_until(lambda: "waiting for the next change" in tree.logged(), timeout=20)
    assert "SyntaxError" in tree.logged()
    queues["default"].publish("late", 7)
    site.write("fresh/tasks.py", HANDLERS + '\n    handler("default", "late")(lambda _: note("late"))\n')
    history.wait_for("late", timeout=30)
    assert tree.stop() == 0


def test_with_autoreload_it_stops_while_it_waits(site, start):
    tree = start("--autoreload")
    site.write("fresh/tasks.py", "this is no Python\n")
    wait_until(lambda: "waiting for the next change" in tree.logged(), timeout=20)
    assert tree.stop() == 0
