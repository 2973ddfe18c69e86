"""A SIGHUP during the start of `runconsumer` is a reload that comes later, and does not end it."""

import signal
import sys
from pathlib import Path

import pytest

from tests.shell import ran
from tests.waiting import wait_until


def blocks_hangups(pid):
    """Tell whether a process lets SIGHUP wait, as it does from the import of the package to the first queue."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    blocked = int(status.partition("SigBlk:")[2].split()[0], 16)
    return bool(blocked >> (signal.SIGHUP - 1) & 1)


HELD = """
import signal, sys
sys.argv[1:] = {arguments!r}
import mq_django
print(signal.SIGHUP in signal.pthread_sigmask(signal.SIG_BLOCK, []), "django" in sys.modules)
"""


def test_a_hangup_waits_as_soon_as_the_package_is_imported_by_runconsumer(subtests):
    for arguments, held in ((["runconsumer", "emails"], True), (["mq", "runconsumer"], False), ([], False)):
        with subtests.test(arguments=arguments):
            done = ran([sys.executable, "-c", HELD.format(arguments=arguments)])
            assert done.stdout.split() == [str(held), "False"]


STARTS_LATER = """
    import os, time

    while not os.path.exists({gate!r}):
        time.sleep(0.01)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_hangup_during_the_start_is_taken_up_later(site, trees, publish, history, tmp_path):
    gate = tmp_path / "gate"
    site.add("fresh/handlers.py", STARTS_LATER.format(gate=str(gate)))
    tree = trees("--settings", "site_settings", interpreter=True)
    wait_until(lambda: blocks_hangups(tree.pid))
    tree.signal(signal.SIGHUP)
    gate.touch()
    tree.wait_until_ready()
    message_id = publish()
    history.wait_for("effect")
    assert history.counts() == {message_id: 1}
    wait_until(lambda: "replaces its consumers" in tree.logged())
    assert tree.stop() == 0
