"""`runconsumer` as the first process of a container: its signals, and the processes that handlers leave behind."""

import shutil
import signal
import subprocess

import pytest

from tests.consumers.trees import kill
from tests.processes import PROC, children
from tests.waiting import wait_until

UNSHARE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


def _can_unshare():
    try:
        return not subprocess.run([*UNSHARE, "true"], capture_output=True, timeout=20, check=False).returncode
    except OSError:
        return False


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not _can_unshare(), reason="needs unshare, and the right to make a PID namespace"),
]


@pytest.fixture
def container(trees):
    """Start a tree whose first process is number 1, and return the tree and that process's number out here."""

    def start(*arguments, init=()):
        tree = trees(*arguments, wrap=[*UNSHARE, *init])
        (first,) = wait_until(lambda: children(tree.pid))
        return tree, first.pid

    return start


def zombies(parent):
    """Return the children of a process that have ended and were not collected."""
    found = []
    for path in PROC.glob("[0-9]*/stat"):
        try:
            state, its_parent = path.read_text(errors="replace").rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state == "Z" and int(its_parent) == parent:
            found.append(int(path.parent.name))
    return found


def numbers_inside(pid):
    """Return the numbers of a process in each PID namespace, ours first."""
    status = (PROC / str(pid) / "status").read_text()
    return next(line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))


def test_it_is_number_1_and_sigterm_lets_handlers_finish(container, publish, history):
    tree, first = container()
    assert numbers_inside(first) == [str(first), "1"]
    publish(["sleep", 3])
    history.wait_for("start")
    kill(first, signal.SIGTERM)
    assert tree.wait(30) == 0
    assert len(history.lines("effect")) == 1


def orphan(container, publish, history, init):
    """Let a handler leave a process behind that soon ends, replace the consumer, and return the first process."""
    tree, first = container("--max-messages", "1", init=init)
    publish(["fork", 0.5])
    history.wait_for("effect")
    publish()
    history.wait_for("effect", 2)
    return tree, first


def test_without_an_init_a_process_that_a_handler_has_left_stays_in_the_process_table(container, publish, history):
    """That is why the recipes have tini: this process must not collect what others wait for."""
    tree, first = orphan(container, publish, history, [])
    wait_until(lambda: zombies(first), timeout=30)
    kill(first, signal.SIGTERM)
    assert tree.wait(30) == 0


@pytest.mark.skipif(not shutil.which("tini"), reason="needs tini")
def test_with_tini_nothing_stays_and_signals_arrive(container, publish, history):
    tree, first = orphan(container, publish, history, ["tini", "--"])
    # Only the supervisor is left.
    wait_until(lambda: not zombies(first) and len(children(first)) == 1, timeout=30)
    publish(["sleep", 3])
    history.wait_for("start", 3)
    kill(first, signal.SIGTERM)
    assert tree.wait(30) == 0
    assert len(history.lines("effect")) == 3
