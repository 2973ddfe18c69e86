"""`manage.py mq top`: once, and on a terminal."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest
from django.core.management import CommandError

from mq_django.core.texts import escape
from mq_django.management.status_verbs import LEAVE
from tests.management.test_mq import mq, mq_json
from tests.seeding import bury_many, publish

pytestmark = pytest.mark.usefixtures("mq_settings")


def test_the_worst_queue_comes_first():
    bury_many("emails", 2)
    publish("emails", "welcome", 1)
    emails, default = mq_json("top")
    assert (emails["queue"], default["queue"]) == ("emails", "default")
    assert (emails["ready"], emails["dead"], default["problems"]) == (1, 2, [])
    assert emails["problems"][0] == "unconsumed"
    summary, sums, empty, headings, row, _ = mq("top", "--once").splitlines()
    assert summary.endswith("2 queues, 1 with problems")
    assert sums.startswith("1 ready, 0 pending, 0 delayed, 0 unhandled, 0 parked, 2 dead; ")
    assert headings.split()[:2] == ["queue", "ready"]
    assert row.split()[:2] == ["emails", "1"]
    assert empty == ""


def test_some_queues_are_chosen():
    assert [row["queue"] for row in mq_json("top", "emails")] == ["emails"]
    with pytest.raises(CommandError, match="No queue 'nope'"):
        mq("top", "nope")


def test_a_queue_that_cannot_be_read_is_named(mq_settings, tmp_path):
    mq_settings(QUEUES={"emails": {}, "far": {"CONNECTION": f"unix://{tmp_path}/nobody.sock"}})
    with pytest.raises(CommandError, match="Cannot read far: Cannot reach Redis"):
        mq("top")


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
    with Screen(*where, "top", "--interval", "1") as screen:
        screen.wait_for(r"emails +1 ")
        publish("emails", "welcome", 1)
        screen.wait_for(r"emails +2 ")
        screen.interrupt()
        screen.wait_for(re.escape(LEAVE))
        assert screen.process.wait(30) == 0
        assert "Traceback" not in screen.text, escape(screen.text)


def test_a_closed_output_ends_any_verb_without_a_traceback(where):
    for arguments in (["top"], ["status", "--check"]):
        read, write = os.pipe()
        os.close(read)
        command = [sys.executable, "-c", PROGRAM, *where, *arguments]
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False, timeout=280)
        os.close(write)
        assert (done.returncode, done.stderr.decode().splitlines()[1:]) == (141, [])
        assert b"Traceback" not in done.stderr
