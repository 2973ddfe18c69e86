"""`runconsumer --health-port`: real processes, and the answers to their probes."""

import json
import os
import signal
import socket
import urllib.error
import urllib.request
from io import StringIO
from pathlib import Path

import pytest
import redis
from django.core.management import CommandError, call_command

from mq_django.management.commands import runconsumer
from mq_django.management.verb_types import check_ports, serving_ports
from mq_django.transport.private_server import PrivateServer
from tests.shell import free_port
from tests.waiting import wait_until


class Probes:
    """Asks the port of a tree."""

    def __init__(self):
        self.port = free_port()

    def ask(self, path):
        """Return the status and the body; 0 without an answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def state(self):
        return tuple(self.ask(path)[0] for path in ("/live", "/ready", "/startup"))

    def wait_for(self, *state, timeout=30.0):
        wait_until(lambda: self.state() == state, timeout=timeout, message=f"probes {state}")


@pytest.fixture
def probes():
    return Probes()


def is_healthy(queue):
    try:
        call_command("mq", "doctor", "--health", queue, stdout=StringIO())
    except SystemExit as end:
        return end.code == 0
    return True


def test_it_becomes_ready_and_while_it_shuts_down_it_is_only_alive(trees, publish, history, probes, tmp_path):
    gate, others = tmp_path / "gate", Probes()
    tree = trees("--health-port", f"127.0.0.1:{probes.port}", "--processes", "2", "emails")
    probes.wait_for(200, 200, 200)
    if Path("/proc/net/tcp6").exists():
        assert [len(_listening(pid)) for pid in (tree.pid, *tree.children())] == [1, 0, 0]
    # It reads the next heartbeat.
    wait_until(lambda: is_healthy("emails"))
    assert not is_healthy("default")
    # Another supervisor has another port.
    second = trees("--health-port", str(others.port))
    others.wait_for(200, 200, 200)
    assert second.stop() == 0
    assert (probes.state(), others.state()) == ((200, 200, 200), (0, 0, 0))
    publish(["wait", str(gate)], queue="emails")
    history.wait_for("start")
    tree.signal(signal.SIGTERM)
    probes.wait_for(200, 503, 200)
    assert "It is shutting down." in probes.ask("/ready")[1]
    gate.touch()
    assert tree.wait() == 0
    assert len(history.lines("effect")) == 1
    assert probes.state() == (0, 0, 0)
    assert not is_healthy("emails")


def test_while_it_waits_for_redis_it_is_only_alive(trees, probes):
    with PrivateServer() as server:
        with redis.Redis.from_url(server.url) as client:
            pid = client.info("server")["process_id"]
        os.kill(pid, signal.SIGSTOP)
        try:
            queues = {"default": {"VISIBILITY_TIMEOUT": 2}}
            limits = {"mq_django.consumers.supervisor.health:SHORTEST": 1.0}
            tree = trees("--health-port", str(probes.port), limits=limits, CONNECTION=server.url, QUEUES=queues)
            probes.wait_for(200, 503, 503)
            assert not tree.children()
            os.kill(pid, signal.SIGCONT)
            probes.wait_for(200, 200, 200)
            os.kill(pid, signal.SIGSTOP)
            probes.wait_for(200, 503, 200)
            body = probes.ask("/ready")[1]
        finally:
            os.kill(pid, signal.SIGCONT)
        assert [check["name"] for check in json.loads(body)["checks"] if not check["ok"]] == ["redis"]
        assert "://" not in body
        probes.wait_for(200, 200, 200)
        assert tree.stop() == 0


def test_a_port_that_cannot_be_used_is_one_sentence(probes, mq_settings, monkeypatch, signal_state):
    port = probes.port
    both = f"--health-port {port}: --metrics-port 127.0.0.1:{port} uses this port. Use the same host and port for both"
    with socket.create_server(("", 0)) as other:
        used = other.getsockname()[1]
        table = [
            (("", used), None, f"--health-port {used}: another process uses this port.", 1),
            (None, ("127.0.0.1", used), f"--metrics-port 127.0.0.1:{used}: another process uses this port.", 1),
            (("203.0.113.1", port), None, f"--health-port 203.0.113.1:{port}: Cannot assign requested address.", 1),
            (("", port), ("127.0.0.1", port), f"{both}, or another port.", 2),
        ]
        found = []
        for health_port, metrics_port, _, _ in table:
            options = {"health_port": health_port, "metrics_port": metrics_port}
            for use in (check_ports, lambda options: serving_ports(options).__enter__()):
                with pytest.raises(CommandError) as error:
                    use(options)
                found.append((str(error.value), error.value.returncode))
        # The reloader, which would show a traceback, is not begun.
        monkeypatch.setattr(runconsumer, "run_with_reloader", pytest.fail)
        with pytest.raises(CommandError, match=table[0][2]):
            call_command("runconsumer", "--autoreload", "--health-port", str(used))
    assert found == [(said, code) for _, _, said, code in table for _ in range(2)]


def _listening(pid):
    """Return the TCP sockets on which a process accepts connections."""
    links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]  # noqa: PTH115
    owned = {link[8:-1] for link in links if link.startswith("socket:[")}
    lines = [line.split() for path in ("tcp", "tcp6") for line in Path("/proc/net", path).read_text().splitlines()[1:]]
    return owned & {line[9] for line in lines if line[3] == "0A"}
