"""`Type=notify` and `WatchdogSec`: what a socket in place of systemd's receives, mostly from real processes."""

import os
import signal
import socket
import struct
import time
from types import SimpleNamespace

import pytest

from mq_django.consumers.service import STUCK
from mq_django.consumers.supervisor import health as module
from mq_django.consumers.supervisor.health import VARIABLES, Health, MainLoop, NotifySocket, SystemdNotifier, notifying
from mq_django.consumers.supervisor.launcher import environment
from mq_django.transport.private_server import PrivateServer
from tests.processes import command, processes
from tests.shell import free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_PASSCRED"), reason="systemd is for Linux")


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


def wait_for_pings(systemd, count=2):
    """Wait for further signs of life."""
    before = systemd.pings()
    wait_until(lambda: systemd.pings() >= before + count, timeout=30)


def pid_of(server):
    return next(process.pid for process in processes() if server.url.partition("?")[0][7:] in command(process.pid))


def test_it_is_ready_with_redis_and_its_consumers_and_stops_with_sigterm(
    trees, publish, history, systemd, monkeypatch, tmp_path
):
    gate = tmp_path / "gate"
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    with PrivateServer() as server:
        server_pid = pid_of(server)
        os.kill(server_pid, signal.SIGSTOP)
        try:
            tree = trees("--processes", "2", CONNECTION=server.url)
            wait_until(systemd.status, timeout=30)
            wait_for_pings(systemd)
            assert systemd.events() == []
            assert systemd.status() == "No consumer was started yet. Redis was not asked yet."
        finally:
            os.kill(server_pid, signal.SIGCONT)
        systemd.wait_for("READY")
        wait_until(lambda: systemd.status() == "2 of 2 consumers are ready.")
        publish(["wait", str(gate)])
        history.wait_for("start")
        tree.signal(signal.SIGTERM)
        systemd.wait_for("READY", "STOPPING")
        # Handlers finish, and meanwhile it lives.
        wait_for_pings(systemd)
        gate.touch()
        assert tree.wait() == 0
    assert len(history.lines("effect")) == 1
    assert systemd.events() == ["READY", "STOPPING"]
    # With NotifyAccess=main, systemd ignores all others.
    assert systemd.senders == {tree.pid}


def test_a_reload_ends_when_the_new_consumers_or_the_new_program_are_ready_or_it_was_refused(
    trees, systemd, site, monkeypatch
):
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    port = free_port()
    tree = trees("--settings", "site_settings", "--processes", "1", "--health-port", f"127.0.0.1:{port}")
    events = ["READY"]

    def reload():
        asked = time.monotonic_ns() // 1000
        tree.signal(signal.SIGHUP)
        events.extend(["RELOADING", "READY"])
        systemd.wait_for(*events)
        assert int(systemd.notifications("RELOADING")[-1]["MONOTONIC_USEC"]) >= asked

    systemd.wait_for(*events)
    before = set(tree.children())
    reload()
    assert not before & set(tree.children())
    site.write("changes.json", "")
    reload()
    assert "keeping the old consumers" in tree.logged()
    site.write("changes.json", '{"QUEUES": {"default": {}, "late": {}}}')
    reload()
    assert "Handling default, late." in tree.logged()
    # Its port and the variables are there in the new program, too.
    socket.create_connection(("127.0.0.1", port), timeout=10).close()
    wait_for_pings(systemd)
    assert systemd.senders == {tree.pid}
    assert tree.stop() == 0
    systemd.wait_for(*events, "STOPPING")


class TestAbstractSocket:
    @pytest.fixture
    def address(self):
        return f"@mq_django/{os.getpid()}"

    def test_a_queue_that_is_drained_stops(self, trees, systemd):
        tree = trees("--drain")
        assert tree.wait() == 0
        assert systemd.events()[-1] == "STOPPING"


class TestLooks:
    """What the state of the main loop makes of it, without processes."""

    @pytest.fixture
    def health(self):
        return Health()

    @pytest.fixture
    def clock(self, monkeypatch):
        found = SimpleNamespace(now=time.monotonic(), monotonic=lambda: found.now, monotonic_ns=time.monotonic_ns)
        monkeypatch.setattr(module, "time", found)
        return found

    def test_signs_of_life_come_twice_in_each_period(self, health, address, systemd, clock):
        notifier = SystemdNotifier(NotifySocket(address), health, watchdog=1.0)
        pings = []
        for _ in range(11):
            assert notifier.run_once() <= 0.5
            pings.append(systemd.pings())
            clock.now += 0.1001
        assert pings == [1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3]
        notifier.close()

    def test_what_is_stuck_gives_no_sign_of_life(self, health, address, systemd, monkeypatch):
        monkeypatch.setattr("mq_django.consumers.supervisor.health.SECOND_CHECK", 0.0)
        now, notifier = time.monotonic(), SystemdNotifier(NotifySocket(address), health, watchdog=1.0)
        for moment, stuck, said in (
            (now - STUCK - 1, (), "The main loop is stuck"),
            (now, ["trimmer is stuck for 31 s"], "trimmer is stuck for 31 s."),
        ):
            health.report(MainLoop(moment, 1, 1, stuck, stopping=False))
            notifier.run_once()
            assert said in systemd.status()
        notifier.close()
        assert systemd.pings() == 0

    def test_the_variables_are_hidden_inside(self, health, systemd, monkeypatch):
        """Consumers, and what their handlers start, would notify in its name."""
        monkeypatch.setenv("WATCHDOG_USEC", "1000000")
        before = dict(os.environ)
        with notifying(health):
            assert not set(VARIABLES) & set(environment())
        assert os.environ == before

    def test_only_the_watchdog_of_this_process_gets_its_signs(self, health, systemd, monkeypatch):
        counts = {}
        # So long that no second sign of life is due meanwhile; the last one is sent at the end.
        for pid, usec in (("1", "600000000"), ("", "soon"), ("", "0"), (str(os.getpid()), "600000000")):
            monkeypatch.setenv("WATCHDOG_PID", pid)
            monkeypatch.setenv("WATCHDOG_USEC", usec)
            before, said = systemd.pings(), len(systemd.notifications("STATUS"))
            with notifying(health):
                wait_until(lambda said=said: len(systemd.notifications("STATUS")) > said)
            counts[pid, usec] = systemd.pings() - before
        assert list(counts.values()) == [0, 0, 0, 2]

    def test_a_socket_that_is_not_there_is_one_warning(self, health, address, caplog):
        notifier = SystemdNotifier(NotifySocket(address), health, watchdog=1.0)
        for _ in range(3):
            notifier.run_once()
        notifier.close()
        assert caplog.text.count("Cannot notify systemd") == 1

    def test_without_a_socket_nothing_is_started(self, health, monkeypatch):
        monkeypatch.setenv("NOTIFY_SOCKET", "")
        monkeypatch.setenv("WATCHDOG_USEC", "1000000")
        monkeypatch.setattr(module, "SystemdNotifier", None)
        with notifying(health):
            pass
