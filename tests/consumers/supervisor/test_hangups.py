"""A SIGHUP during the start of `runconsumer` is a reload that comes later, and does not end it."""

import signal
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until


def blocks_hangups(pid):
    """Tell whether a process lets SIGHUP wait, as it does from the first app that is loaded to the first queue."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    blocked = int(status.partition("SigBlk:")[2].split()[0], 16)
    return bool(blocked >> (signal.SIGHUP - 1) & 1)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_hangup_during_the_start_is_taken_up_later(trees, publish, history):
    tree = trees()
    wait_until(lambda: blocks_hangups(tree.pid))
    tree.signal(signal.SIGHUP)
    tree.wait_until_ready()
    message_id = publish()
    history.wait_for("effect")
    assert history.counts() == {message_id: 1}
    wait_until(lambda: "replaces its consumers" in tree.logged())
    assert tree.stop() == 0
