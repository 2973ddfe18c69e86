"""Who still runs on this machine."""

import os
import subprocess
import sys
from pathlib import Path

from mq_django.consumers import machine


def test_a_process_is_known_by_its_start():
    ours = machine.started(os.getpid())
    assert ours.isdigit()
    assert machine.started(os.getpid()) == ours
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert machine.started(child.pid) not in ("", ours)
    child.kill()
    # Ended and not yet collected is gone as well.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert machine.started(child.pid) == ""
    child.communicate()
    assert machine.started(child.pid) == ""


def test_ended_is_who_has_ended_for_certain(monkeypatch, tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    moment = machine.started(child.pid)
    assert not machine.has_ended(child.pid, moment)
    # Another process has its number.
    assert machine.has_ended(child.pid, "1")
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert machine.has_ended(child.pid, moment)
    child.communicate()
    assert machine.has_ended(child.pid, moment)
    # Where /proc shows nobody, whoever can be sent a signal is there, or may be.
    monkeypatch.setattr(machine, "_PROC", tmp_path)
    assert machine.has_ended(child.pid, moment)
    assert not machine.has_ended(os.getpid(), "1")
    assert not machine.has_ended(1, "1")
    assert not machine.has_ended(2**80, "1")


def test_here_is_where_numbers_mean_the_same():
    here = machine.here()
    assert here.boot
    assert here.pids == str(Path("/proc/self/ns/pid").readlink())


def test_memory_is_told_in_mib():
    assert 5 < machine.resident_mib() < 5000
    assert machine.resident_mib(2**22 - 1) == 0.0
