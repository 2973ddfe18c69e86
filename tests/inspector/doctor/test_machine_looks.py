"""What is said about the processes of consumers on this machine."""

import resource
import secrets
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mq_django.conf import get_config
from mq_django.core.version import VERSION
from mq_django.inspector.doctor import machine_looks
from mq_django.stores import open_members
from mq_django.transport.connections import open_wire
from tests.inspector.doctor.conftest import levels

pytestmark = [
    pytest.mark.usefixtures("mq_settings"),
    pytest.mark.skipif(not Path("/proc/self/limits").exists(), reason="only Linux shows limits of processes"),
]

MEMORY = Path("/sys/fs/cgroup/memory")
MIB = 2**20


@pytest.fixture
def process():
    """A process that a heartbeat announces as a consumer on this machine."""
    wait = "x = b'x' * 40_000_000; print('ready', flush=True); import sys; sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", wait], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout.readline() == "ready\n"
        announce(started.pid)
        yield started
        started.stdin.close()


def announce(pid: int, host: str = "") -> None:
    config = get_config().queue("default")
    described = {"host": host or socket.gethostname(), "version": VERSION, "pid": pid}
    open_members(config, open_wire("produce", "")).beat("s1", described, {"s1-c": {**described, "threads": 8}})


def test_nothing_is_said_about_a_process_that_has_room(process, found):
    assert found("D5") == []


def test_a_process_with_nearly_all_of_its_open_files(process, found):
    used = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (used, used))
    (finding,) = found("D5")
    assert (finding.code, finding.level) == ("D501", "warning")
    assert finding.seen.startswith(f"Process {process.pid} of runconsumer has {used} open files, and may have {used}")
    # The process with this number on another machine is not the one here.
    announce(process.pid, host="web9")
    assert found("D5") == []


@pytest.fixture
def group(process):
    """A control group of version 1 with the process in it."""
    folder = MEMORY / f"mq-{secrets.token_hex(4)}"
    before = (
        next(
            line.split(":", 2)[2]
            for line in Path(f"/proc/{process.pid}/cgroup").read_text().splitlines()
            if ":memory:" in line
        )
        if (MEMORY / "memory.stat").exists()
        else ""
    )
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group of version 1 can be made here: {error}")
    yield folder
    (MEMORY / before.strip("/") / "cgroup.procs").write_text(str(process.pid))
    folder.rmdir()


def test_a_container_with_little_memory(process, group, found):
    (group / "cgroup.procs").write_text(str(process.pid))
    assert found("D502") == []
    # What it used before is charged to the group before: it gets a limit for what this kernel moves, or uses anew.
    (group / "memory.limit_in_bytes").write_text(str(64 * MIB))
    assert found("D502") == []


def test_a_container_whose_memory_is_nearly_used(group, found, namespace):
    allocate = "import sys; sys.stdin.readline(); x = b'x' * 60_000_000; print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", allocate], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        (group / "memory.limit_in_bytes").write_text(str(70 * MIB))
        (group / "cgroup.procs").write_text(str(started.pid))
        started.stdin.write("go\n")
        started.stdin.flush()
        assert started.stdout.readline() == "ready\n"
        announce(started.pid)
        (finding,) = found("D502")
        assert (finding.code, finding.level) == ("D502", "warning")
        assert "of 70 MiB of memory" in finding.seen
        started.stdin.close()


def test_a_process_that_has_ended_is_no_finding(process, found):
    process.kill()
    process.wait()
    assert levels(found("D5")) == []


@pytest.fixture
def unified(tmp_path, monkeypatch):
    """Make control groups of version 2 as files, with this process in the innermost of them."""
    monkeypatch.setattr(machine_looks, "_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(machine_looks, "_PROC", tmp_path / "proc")

    def make(groups, inside, number=4000):
        process = tmp_path / "proc" / str(number)
        process.mkdir(parents=True, exist_ok=True)
        (process / "cgroup").write_text(f"0::{inside}\n")
        # The outermost group of a machine has statistics, and no limit.
        for path, files in {"": {"memory.stat": "anon 0\n"}, **groups}.items():
            folder = tmp_path / "cgroup" / path
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                (folder / name).write_text(text)
        announce(number)

    return make


def limited(used: int, limit: int | str, inactive: int = 0) -> dict[str, str]:
    """Return the files of a group that uses so many MiB, of which so many are of inactive files."""
    most = limit if isinstance(limit, str) else str(limit * MIB)
    statistics = f"anon {used * MIB}\nfile {inactive * MIB}\ninactive_file {inactive * MIB}\n"
    return {"memory.current": f"{used * MIB}\n", "memory.max": f"{most}\n", "memory.stat": statistics}


def test_limits_of_control_groups_of_version_2(unified, found, tmp_path, subtests):
    for groups, inside, seen in [
        ({"shop": limited(60, 70)}, "/shop", "60 of 70 MiB"),
        ({"shop": limited(50, 70)}, "/shop", ""),
        ({"shop": limited(60, "max")}, "/shop", ""),
        # What the kernel can free at once does not count.
        ({"shop": limited(69, 70, inactive=40)}, "/shop", ""),
        # The limit of a slice around the unit.
        ({"a.slice": limited(90, 100), "a.slice/b.service": limited(60, "max")}, "/a.slice/b.service", "90 of 100 MiB"),
        ({"a.slice": limited(90, 100), "a.slice/b.service": limited(30, 50)}, "/a.slice/b.service", "90 of 100 MiB"),
        ({"a.slice": limited(70, 200), "a.slice/b.service": limited(48, 50)}, "/a.slice/b.service", "48 of 50 MiB"),
        # A group without the controller of memory, in one that has it.
        ({"a.slice": limited(90, 100), "a.slice/b.service": {}}, "/a.slice/b.service", "90 of 100 MiB"),
        # In a container: its own group is the root, and the path may be that outside of it.
        ({"": limited(60, 70)}, "/", "60 of 70 MiB"),
        ({"": limited(60, 70)}, "/kubepods/pod7/c1", "60 of 70 MiB"),
        ({"": limited(60, 70)}, "/../../other", "60 of 70 MiB"),
        ({"shop": limited(1, 0)}, "/shop", "1 of 0 MiB"),
        ({"shop": {**limited(60, 70), "memory.max": "?"}}, "/shop", ""),
    ]:
        shutil.rmtree(tmp_path / "cgroup", ignore_errors=True)
        with subtests.test(groups=groups, inside=inside, seen=seen):
            unified(groups, inside)
            findings = found("D502")
            assert levels(findings) == ([("D502", "warning")] if seen else [])
            assert all(f"of 1 process of runconsumer uses {seen} of memory" in finding.seen for finding in findings)


def test_processes_of_one_group_are_one_finding(unified, found):
    nested = {"a.slice": limited(90, 100), "a.slice/b": limited(1, "max"), "a.slice/c": limited(1, "max")}
    config = get_config().queue("default")
    unified(nested, "/a.slice/b", 4001)
    unified({}, "/a.slice/c", 4002)
    described = {"host": socket.gethostname(), "version": VERSION}
    processes = {f"s1-{pid}": {**described, "pid": pid, "threads": 8} for pid in (4001, 4002)}
    open_members(config, open_wire("produce", "")).beat("s1", described, processes)
    (finding,) = found("D502")
    assert "of 2 processes of runconsumer uses 90 of 100 MiB" in finding.seen
