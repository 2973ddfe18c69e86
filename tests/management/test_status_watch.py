"""`manage.py mq status --watch`: on a terminal, and without one."""

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path
from unittest.mock import Mock

import pytest
from django.core.management import call_command

from mq_django.core.texts import escape
from mq_django.management.commands.mq import Command
from mq_django.management.queue_verbs import LEAVE
from tests.management.test_mq import refusal
from tests.seeding import bury_many, publish

pytestmark = pytest.mark.usefixtures("mq_settings")


class OneLook(StringIO):
    """A terminal whose user ends the command after the first look."""

    def isatty(self):
        return True


def test_the_worst_queue_comes_first(monkeypatch):
    bury_many("emails", 2)
    publish("emails", "welcome", 1)
    monkeypatch.setenv("COLUMNS", "200")
    screen = OneLook()
    monkeypatch.setattr("mq_django.management.queue_verbs.time.sleep", Mock(side_effect=KeyboardInterrupt))
    call_command("mq", "status", "--watch", stdout=screen, no_color=True)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    headings, emails, default = [line.split() for line in text.splitlines()[2:5]]
    assert headings[-2:] == ["oldest_s", "problems"]
    assert (emails[0], default[0]) == ("emails", "default")
    assert emails[-1].startswith("unconsumed")


def test_without_a_terminal_it_is_refused():
    said = "--watch needs a terminal, and no --json. Without it, the status is printed once."
    assert refusal("status", "--watch") == refusal("status", "--watch", "--json") == (said, 2)


PROGRAM = """
import sys, django
from django.conf import settings
settings.configure(INSTALLED_APPS=["mq_django"], SECRET_KEY="x", USE_TZ=True, MQ_DJANGO=dict(
    CONNECTION=sys.argv[1], NAMESPACE=sys.argv[2], QUEUES={"default": {}, "emails": {}}))
django.setup()
from mq_django.management.commands.mq import Command
Command().run_from_argv(["manage.py", "mq", *sys.argv[3:]])
"""


class Screen:
    """A terminal in which a command runs."""

    def __init__(self, *arguments):
        self._main, other = pty.openpty()
        env = {**os.environ, "COLUMNS": "120", "LINES": "20", "TERM": "xterm", "NO_COLOR": "1"}
        command = [sys.executable, "-c", PROGRAM, *arguments]
        self.process = subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env=env, close_fds=True)
        os.close(other)
        self.text = ""

    def wait_for(self, pattern, seconds=30.0):
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.text):
            ready, _, _ = select.select([self._main], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no {pattern!r} in {self.text!r}"
            try:
                found = os.read(self._main, 65536)
            except OSError:
                found = b""
            assert found, f"it ended without {pattern!r}: {self.text!r}"
            self.text += found.decode()

    def interrupt(self):
        """Do what Ctrl-C does, which works only on the terminal of a session."""
        self.process.send_signal(signal.SIGINT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self._main)


@pytest.fixture
def where(redis_url, namespace):
    return redis_url, namespace


def test_on_a_terminal_it_is_refreshed_until_it_is_ended(where):
    publish("emails", "welcome", 1)
    with Screen(*where, "status", "--watch", "--interval", "1") as screen:
        screen.wait_for(r"emails +- +1 ")
        publish("emails", "welcome", 1)
        screen.wait_for(r"emails +- +2 ")
        screen.interrupt()
        screen.wait_for(re.escape(LEAVE))
        assert screen.process.wait(30) == 0
        assert "Traceback" not in screen.text, escape(screen.text)


def test_a_closed_output_ends_any_verb_without_a_traceback(where):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", PROGRAM, *where, "status", "--check"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False, timeout=280)
    os.close(write)
    assert (done.returncode, done.stderr.decode().splitlines()[1:]) == (141, [])
    assert b"Traceback" not in done.stderr


FULL = "CommandError: Cannot write the output: No space left on device"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has it")
@pytest.mark.parametrize("is_buffered", [True, False])
def test_an_output_that_cannot_be_written_ends_any_verb_with_a_sentence(is_buffered, monkeypatch):
    publish("emails", "welcome", 1)
    for verb in (["status"], ["find", "emails", "--state", "ready"], ["export", "emails", "--state", "ready"]):
        device = io.FileIO("/dev/full", "w")
        full = io.TextIOWrapper(io.BufferedWriter(device) if is_buffered else device, write_through=not is_buffered)
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit, match=f"^{FULL}$"):
            Command().run_from_argv(["manage.py", "mq", *verb])
        # As the interpreter does at its end, which would print an error.
        full.close()


def test_an_output_that_is_closed_from_the_start_ends_any_verb_with_a_sentence(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(SystemExit, match=r"^CommandError: The output is closed\.$"):
        Command().run_from_argv(["manage.py", "mq", "status"])
