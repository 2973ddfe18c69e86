"""`Type=notify` and `WatchdogSec`: what a socket in place of systemd's receives, mostly from real processes."""

import os
import signal
import socket
import struct
import threading
import time
from pathlib import Path

import pytest

from mq_django.consumers.liveness import STUCK
from mq_django.consumers.supervisor.health import Health, MainLoop
from mq_django.consumers.supervisor.systemd import VARIABLES, notifying
from mq_django.transport.private_server import PrivateServer
from tests.processes import processes
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_PASSCRED"), reason="systemd is for Linux")

SETTINGS = "from tests.consumers.project.settings import *\n"


class Systemd:
    """A socket for notifications, and what has arrived: each with the process that has sent it."""

    def __init__(self, address):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.setblocking(False)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._notifications = []
        self.senders = set()

    def notifications(self, *names):
        """Return the notifications with one of these fields so far; all but STATUS and WATCHDOG if none is named."""
        self._receive()
        wanted = set(names) or {"READY", "RELOADING", "STOPPING"}
        return [fields for fields in self._notifications if wanted & set(fields)]

    def events(self):
        """Return the names of the notifications about the state."""
        return [next(iter(fields)) for fields in self.notifications()]

    def wait_for(self, *events, timeout=30.0):
        wait_until(lambda: self.events() == list(events), timeout=timeout, message=f"notifications {events}")

    def pings(self):
        return len(self.notifications("WATCHDOG"))

    def status(self):
        found = self.notifications("STATUS")
        return found[-1]["STATUS"] if found else ""

    def close(self):
        self._socket.close()

    def _receive(self):
        while True:
            try:
                data, ancillary, *_ = self._socket.recvmsg(4096, socket.CMSG_SPACE(12))
            except BlockingIOError:
                return
            ((_, _, credentials),) = ancillary
            self.senders.add(struct.unpack("3i", credentials)[0])
            self._notifications.append(dict(line.split("=", 1) for line in data.decode().split("\n")))


@pytest.fixture
def address(tmp_path):
    return str(tmp_path / "notify")


@pytest.fixture
def systemd(address, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    found = Systemd(address)
    yield found
    found.close()


@pytest.fixture
def watchdog(monkeypatch):
    """Ask for a sign of life every second."""
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A module of settings that a test may change."""
    path = tmp_path / "code" / "site_settings.py"
    path.parent.mkdir()
    path.write_text(SETTINGS)
    monkeypatch.setenv("PYTHONPATH", str(path.parent))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return path


def wait_for_pings(systemd, count=2):
    """Wait for further signs of life."""
    before = systemd.pings()
    wait_until(lambda: systemd.pings() >= before + count, timeout=30)


def test_it_is_ready_with_its_consumers_and_stops_with_sigterm(trees, publish, history, systemd):
    tree = trees("--processes", "2")
    systemd.wait_for("READY")
    assert systemd.status() == "2 of 2 consumers are ready."
    publish(["sleep", 3])
    history.wait_for("start")
    tree.signal(signal.SIGTERM)
    systemd.wait_for("READY", "STOPPING")
    assert not history.lines("effect")
    assert tree.wait(20) == 0
    assert len(history.lines("effect")) == 1
    assert systemd.events() == ["READY", "STOPPING"]
    assert systemd.pings() == 0
    # With NotifyAccess=main, systemd ignores all others.
    assert systemd.senders == {tree.pid}


def test_it_is_not_ready_while_it_waits_for_redis_and_gives_signs_of_life(trees, systemd, watchdog):
    with PrivateServer() as server:
        server_pid = pid_of(server)
        os.kill(server_pid, signal.SIGSTOP)
        try:
            tree = trees(CONNECTION=server.url)
            wait_until(systemd.status, timeout=30)
            wait_for_pings(systemd)
            assert systemd.events() == []
            assert systemd.status() == "No consumer was started yet. Redis was not asked yet."
        finally:
            os.kill(server_pid, signal.SIGCONT)
        systemd.wait_for("READY")
        assert tree.stop() == 0


def pid_of(server):
    return next(process.pid for process in processes() if server.url.partition("?")[0][7:] in process.command)


def test_its_consumers_and_what_they_start_do_not_have_the_variables(trees, systemd, watchdog):
    # The system shows the environment with which an interpreter was started.
    tree = trees(interpreter=True)
    systemd.wait_for("READY")
    (child,) = tree.children()
    names = {entry.partition(b"=")[0].decode() for entry in Path(f"/proc/{child}/environ").read_bytes().split(b"\0")}
    assert names & {"DJANGO_SETTINGS_MODULE", *VARIABLES} == {"DJANGO_SETTINGS_MODULE"}
    assert tree.stop() == 0


def test_signs_of_life_come_twice_in_each_period_until_the_process_stands_still(trees, systemd, watchdog):
    tree = trees()
    systemd.wait_for("READY")
    began = time.monotonic()
    wait_for_pings(systemd, 6)
    # Not at every look.
    assert time.monotonic() - began > 2
    tree.signal(signal.SIGSTOP)
    before = systemd.pings()
    wait_until(lambda: time.monotonic() - began > 6)
    assert systemd.pings() <= before + 1
    tree.signal(signal.SIGCONT)
    wait_for_pings(systemd)
    assert tree.stop() == 0


@pytest.mark.slow
def test_signs_of_life_end_while_a_service_is_stuck(trees, publish, history, systemd, watchdog, tmp_path, monkeypatch):
    monkeypatch.setenv("MQ_TEST_APPS", "tests.consumers.project.stuck.Stuck")
    monkeypatch.setenv("MQ_TEST_STUCK", str(tmp_path / "stuck"))
    tree = trees(TOPICS={"news": {}})
    # The supervisor replaces itself as soon as its handlers have ended.
    publish(["sleep", 12])
    history.wait_for("start")
    (tmp_path / "stuck").touch()
    wait_until(lambda: "trimmer is stuck" in systemd.status(), timeout=30)
    before = systemd.pings()
    history.wait_for("effect", timeout=30)
    assert systemd.pings() == before
    assert "STOPPING" not in systemd.events()
    # Here, systemd would have killed it. The next program gives signs of life again.
    wait_for_pings(systemd)
    wait_until(lambda: systemd.status() == "1 of 1 consumers are ready.", timeout=30)
    assert tree.stop() == 0


def test_a_reload_without_changes_ends_when_the_consumers_are_replaced(trees, systemd):
    tree = trees("--processes", "2")
    systemd.wait_for("READY")
    before = set(tree.children())
    asked = time.monotonic_ns() // 1000
    tree.signal(signal.SIGHUP)
    systemd.wait_for("READY", "RELOADING", "READY")
    assert not before & set(tree.children())
    assert int(systemd.notifications("RELOADING")[0]["MONOTONIC_USEC"]) >= asked
    assert tree.stop() == 0
    systemd.wait_for("READY", "RELOADING", "READY", "STOPPING")


def test_a_reload_that_executes_the_command_line_again_ends_when_the_new_program_is_ready(
    trees, systemd, watchdog, site
):
    tree = trees("--settings", "site_settings")
    systemd.wait_for("READY")
    site.write_text(SETTINGS + 'MQ_DJANGO["QUEUES"] = {"default": {}, "late": {}}\n')
    tree.signal(signal.SIGHUP)
    systemd.wait_for("READY", "RELOADING", "READY")
    assert "Handling default, late." in tree.logged()
    # The variables are there in the new program, too.
    wait_for_pings(systemd)
    assert systemd.senders == {tree.pid}
    assert tree.stop() == 0


def test_a_reload_of_a_project_that_cannot_be_loaded_ends_as_well(trees, systemd, site):
    tree = trees("--settings", "site_settings")
    systemd.wait_for("READY")
    site.write_text("1 / 0\n")
    tree.signal(signal.SIGHUP)
    systemd.wait_for("READY", "RELOADING", "READY")
    assert "keeping the old consumers" in tree.logged()
    assert tree.stop() == 0


def test_a_queue_that_is_drained_stops(trees, systemd, publish):
    publish()
    tree = trees("--drain")
    assert tree.wait(30) == 0
    assert systemd.events()[-1] == "STOPPING"


class TestAbstractSocket:
    @pytest.fixture
    def address(self):
        return f"@mq_django/{os.getpid()}"

    def test_it_is_notified_as_well(self, trees, systemd):
        tree = trees("--housekeeping")
        systemd.wait_for("READY")
        assert systemd.status() == "It starts no consumers, and does only the housekeeping."
        assert tree.stop() == 0


def test_a_socket_that_is_not_there_is_one_warning(trees, publish, history, address, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    tree = trees()
    publish()
    history.wait_for("effect")
    assert tree.stop() == 0
    assert tree.logged().count("Cannot notify systemd") == 1


class TestLooks:
    """What the state of the main loop makes of it, without processes."""

    @pytest.fixture
    def health(self):
        return Health()

    def test_a_main_loop_that_stands_still_gives_no_sign_of_life(self, health, systemd, watchdog):
        health.report(MainLoop(time.monotonic() - STUCK - 1, 1, 1, (), stopping=False))
        with notifying(health):
            wait_until(systemd.status)
        assert systemd.pings() == 0
        assert "The main loop is stuck" in systemd.status()

    def test_the_variables_are_hidden_inside(self, health, systemd, watchdog):
        before = dict(os.environ)
        with notifying(health):
            assert not set(VARIABLES) & set(os.environ)
        assert os.environ == before

    @pytest.mark.parametrize("setting", ["WATCHDOG_PID=1", "WATCHDOG_USEC=soon", "WATCHDOG_USEC=0"])
    def test_a_watchdog_that_is_not_for_this_process_gets_nothing(
        self, health, systemd, watchdog, monkeypatch, setting
    ):
        monkeypatch.setenv(*setting.split("="))
        with notifying(health):
            wait_until(systemd.status)
        assert systemd.pings() == 0

    def test_the_watchdog_of_this_process_gets_its_signs(self, health, systemd, watchdog, monkeypatch):
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
        # No second one is due while this is looked at.
        monkeypatch.setenv("WATCHDOG_USEC", "600000000")
        with notifying(health):
            wait_until(systemd.pings)
        # The last one is sent at the end.
        assert systemd.pings() == 2

    def test_without_a_socket_nothing_is_started(self, health, monkeypatch):
        monkeypatch.setenv("NOTIFY_SOCKET", "")
        monkeypatch.setenv("WATCHDOG_USEC", "1000000")
        # A thread of the test before this one may be about to end.
        before = set(threading.enumerate())
        with notifying(health):
            assert not any("systemd" in thread.name for thread in set(threading.enumerate()) - before)
