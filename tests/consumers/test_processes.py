"""Who still runs on this machine."""

import os
import subprocess
import sys
from pathlib import Path

from mq_django.consumers import processes


def test_a_process_is_known_by_its_start():
    ours = processes.started(os.getpid())
    assert ours.isdigit()
    assert processes.started(os.getpid()) == ours
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert processes.started(child.pid) not in ("", ours)
    child.kill()
    # Ended and not yet collected is gone as well.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert processes.started(child.pid) == ""
    child.communicate()
    assert processes.started(child.pid) == ""


def test_ended_is_who_has_ended_for_certain(monkeypatch, tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    moment = processes.started(child.pid)
    assert not processes.has_ended(child.pid, moment)
    # Another process has its number.
    assert processes.has_ended(child.pid, "1")
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert processes.has_ended(child.pid, moment)
    child.communicate()
    assert processes.has_ended(child.pid, moment)
    # Where /proc shows nobody, whoever can be sent a signal is there, or may be.
    monkeypatch.setattr(processes, "_PROC", tmp_path)
    assert processes.has_ended(child.pid, moment)
    assert not processes.has_ended(os.getpid(), "1")
    assert not processes.has_ended(1, "1")
    assert not processes.has_ended(2**80, "1")


def test_here_is_where_numbers_mean_the_same():
    here = processes.here()
    assert here.boot
    assert here.pids == str(Path("/proc/self/ns/pid").readlink())


def test_memory_is_told_in_mib():
    assert 5 < processes.resident_mib() < 5000
    assert processes.resident_mib(2**22 - 1) == 0.0
