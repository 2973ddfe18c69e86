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
from django.core.management import call_command

from mq_django.transport.private_server import PrivateServer
from tests.processes import processes
from tests.waiting import wait_until

needs_proc = pytest.mark.skipif(not Path("/proc/net/tcp6").exists(), reason="needs /proc")


@pytest.fixture
def port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Probes:
    """Asks the port of a tree."""

    def __init__(self, port):
        self.port = port

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


def server_pid(server):
    with redis.Redis.from_url(server.url) as client:
        return client.info("server")["process_id"]


@pytest.fixture
def probes(port):
    return Probes(port)


def test_it_becomes_ready_and_while_it_shuts_down_it_is_only_alive(trees, publish, history, port, probes):
    tree = trees("--health-port", f"127.0.0.1:{port}", "--processes", "2")
    probes.wait_for(200, 200, 200)
    publish(["sleep", 6])
    history.wait_for("start")
    tree.signal(signal.SIGTERM)
    probes.wait_for(200, 503, 200)
    assert "It is shutting down." in probes.ask("/ready")[1]
    assert tree.wait(20) == 0
    assert len(history.lines("effect")) == 1
    assert probes.state() == (0, 0, 0)


def test_while_it_waits_for_redis_at_its_start_it_is_only_alive(trees, port, probes):
    with PrivateServer() as server:
        pid = server_pid(server)
        os.kill(pid, signal.SIGSTOP)
        try:
            tree = trees("--health-port", str(port), CONNECTION=server.url)
            probes.wait_for(200, 503, 503)
            assert not tree.children()
        finally:
            os.kill(pid, signal.SIGCONT)
        probes.wait_for(200, 200, 200)
        assert tree.stop() == 0


def test_redis_that_is_stopped_makes_it_unready_until_it_goes_on(trees, port, probes):
    with PrivateServer() as server:
        pid = server_pid(server)
        tree = trees("--health-port", str(port), CONNECTION=server.url, QUEUES={"default": {"VISIBILITY_TIMEOUT": 2}})
        probes.wait_for(200, 200, 200)
        os.kill(pid, signal.SIGSTOP)
        try:
            probes.wait_for(200, 503, 200)
            body = probes.ask("/ready")[1]
        finally:
            os.kill(pid, signal.SIGCONT)
        assert [check["name"] for check in json.loads(body)["checks"] if not check["ok"]] == ["redis"]
        assert "://" not in body
        probes.wait_for(200, 200, 200)
        assert tree.stop() == 0


def test_the_port_stays_when_the_command_line_is_executed_again(trees, port, probes, tmp_path, monkeypatch):
    changes = tmp_path / "code" / "site_settings.py"
    changes.parent.mkdir()
    changes.write_text("from tests.consumers.project.settings import *\n")
    monkeypatch.setenv("PYTHONPATH", str(changes.parent))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    tree = trees("--settings", "site_settings", "--health-port", str(port))
    probes.wait_for(200, 200, 200)
    changes.write_text(changes.read_text() + 'MQ_DJANGO["QUEUES"] = {"default": {}, "late": {}}\n')
    tree.signal(signal.SIGHUP)
    wait_until(lambda: "Handling default, late." in tree.logged(), timeout=30)
    probes.wait_for(200, 200, 200)
    assert tree.stop() == 0


def test_a_port_in_use_is_refused_before_any_consumer_starts(trees, port, probes):
    first = trees("--health-port", str(port))
    probes.wait_for(200, 200, 200)
    for options in ([], ["--autoreload"]):
        second = trees("--health-port", str(port), *options)
        assert second.wait(20) == 1
        assert f"--health-port {port}: another process uses this port." in second.logged()
        assert "Handling" not in second.logged()
        assert "Traceback" not in second.logged()
    assert probes.state() == (200, 200, 200)
    assert first.stop() == 0


def test_two_supervisors_have_a_port_each(trees, port, probes):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        others = Probes(listener.getsockname()[1])
    first, second = trees("--health-port", str(port)), trees("--health-port", str(others.port))
    probes.wait_for(200, 200, 200)
    others.wait_for(200, 200, 200)
    assert first.stop() == 0
    assert (probes.state(), others.state()) == ((0, 0, 0), (200, 200, 200))
    assert second.stop() == 0


@pytest.mark.parametrize(
    ("value", "code", "said"),
    [
        ("http", 2, "a port, or a host and a port such as 127.0.0.1:8080, not 'http'"),
        ("70000", 2, "a port from 1 to 65535, not 70000"),
        ("203.0.113.1:8080", 1, "--health-port 203.0.113.1:8080: Cannot assign requested address."),
    ],
)
def test_a_value_that_cannot_be_used_is_one_sentence(trees, value, code, said):
    tree = trees("--health-port", value)
    assert tree.wait(20) == code
    assert said in tree.logged()
    assert "Traceback" not in tree.logged()


def test_housekeeping_alone_becomes_ready(trees, port, probes):
    tree = trees("--health-port", str(port), "--housekeeping")
    probes.wait_for(200, 200, 200)
    assert "only the housekeeping" in probes.ask("/ready")[1]
    assert tree.stop() == 0


def test_with_autoreload_the_port_is_there_again_after_a_change(trees, port, probes, tmp_path, monkeypatch):
    code = tmp_path / "code" / "fresh"
    code.mkdir(parents=True)
    (code / "__init__.py").touch()
    (code / "handlers.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(code.parent))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("MQ_TEST_APPS", "fresh")
    tree = trees("--health-port", str(port), "--autoreload")
    probes.wait_for(200, 200, 200)
    starts = tree.logged().count("Stop with Ctrl-C")
    (code / "handlers.py").write_text("CHANGED = True\n")
    wait_until(lambda: tree.logged().count("Stop with Ctrl-C") > starts, timeout=30)
    probes.wait_for(200, 200, 200)
    assert "Traceback" not in tree.logged()


@needs_proc
def test_consumers_do_not_have_the_socket(trees, port, probes):
    tree = trees("--health-port", str(port))
    probes.wait_for(200, 200, 200)
    (child,) = [process.pid for process in processes() if process.parent == tree.pid]
    assert len(_listening(tree.pid)) == 1
    assert not _listening(child)


def _listening(pid):
    """Return the TCP sockets on which a process accepts connections."""
    links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]  # noqa: PTH115
    owned = {link[8:-1] for link in links if link.startswith("socket:[")}
    lines = [line.split() for path in ("tcp", "tcp6") for line in Path("/proc/net", path).read_text().splitlines()[1:]]
    return owned & {line[9] for line in lines if line[3] == "0A"}


@needs_proc
def test_nothing_is_listened_on_unless_it_is_asked_for(trees, history, publish):
    tree = trees()
    publish()
    history.wait_for("effect")
    assert not _listening(tree.pid)


def test_mq_health_is_0_until_it_ends(trees):
    def health(queue):
        try:
            call_command("mq", "health", queue, stdout=StringIO())
        except SystemExit as end:
            return end.code
        return 0

    tree = trees("emails")
    wait_until(lambda: health("emails") == 0, timeout=30)
    assert health("default") == 1
    assert tree.stop() == 0
    assert health("emails") == 1
