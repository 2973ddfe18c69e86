"""`manage.py mq status --watch`: on a terminal, and without one."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mq_django.core.texts import escape
from mq_django.management.queue_verbs import LEAVE
from tests.management.test_mq import mq, mq_json
from tests.seeding import bury_many, publish

pytestmark = pytest.mark.usefixtures("mq_settings")


def test_the_worst_queue_comes_first():
    bury_many("emails", 2)
    publish("emails", "welcome", 1)
    emails, default = mq_json("status", "--watch")
    assert (emails["queue"], default["queue"]) == ("emails", "default")
    assert (emails["ready"], emails["dead"], default["problems"]) == (1, 2, [])
    assert emails["problems"][0] == "unconsumed"
    headings, row, _ = mq("status", "--watch").splitlines()
    assert headings.split()[-2:] == ["oldest_s", "problems"]
    assert row.split()[0] == "emails"
    assert row.split()[-1] == ",".join(emails["problems"])


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
@pytest.mark.parametrize("buffered", ["", "1"])
def test_an_output_that_cannot_be_written_ends_any_verb_with_a_sentence(where, buffered):
    publish("emails", "welcome", 1)
    command = [sys.executable, "-c", PROGRAM, *where]
    for verb in ("status", "find", "export"):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [*command, verb, *([] if verb == "status" else ["emails", "--state", "ready"])],
                stdout=full,
                stderr=subprocess.PIPE,
                env={**os.environ, "PYTHONUNBUFFERED": buffered},
                check=False,
                timeout=280,
            )
        assert (done.returncode, done.stderr.decode().splitlines()) == (1, [FULL])


def test_an_output_that_is_closed_from_the_start_ends_any_verb_with_a_sentence(where):
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", PROGRAM, *where, "status"]
    done = subprocess.run(command, stderr=subprocess.PIPE, check=False, timeout=280)
    assert (done.returncode, done.stderr.decode()) == (1, "CommandError: The output is closed.\n")
