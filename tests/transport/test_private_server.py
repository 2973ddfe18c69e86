"""A private server comes up, goes with its owner, and says why when it does not."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mq_django.errors import ConnectionLost
from mq_django.transport import private_server
from mq_django.transport.guard_process import ask
from mq_django.transport.private_server import PrivateServer, ServerBinary, answers, configured_url
from tests.processes import alive
from tests.transport.test_servers import client, program
from tests.waiting import wait_until


def test_the_environment_can_name_a_server(monkeypatch):
    monkeypatch.setenv("MQ_REDIS_URL", "redis://127.0.0.1:7000")
    assert configured_url() == "redis://127.0.0.1:7000"
    monkeypatch.setenv("MQ_REDIS_URL", "")
    assert configured_url() is None


def test_it_answers_on_a_unix_socket_and_no_port_and_goes_without_a_trace():
    server = PrivateServer().start()
    pid, folder, guard = server.pid, server._folder, server._guard.pid
    with client(server) as redis_client:
        assert server.url.startswith("unix://")
        assert [redis_client.config_get(name)[name] for name in ("port", "save", "appendonly")] == ["0", "", "no"]
    # The first stays.
    assert server.start().pid == pid
    server.stop()
    server.stop()
    assert server.pid is None
    assert not alive(pid)
    assert not folder.exists()
    # Nothing is left that would later kill by process id.
    assert not alive(guard)


def test_a_port_is_loopback_only_and_a_crash_keeps_the_address_and_the_data_on_disk(tmp_path):
    with PrivateServer(directory=tmp_path, append_only=True, tcp=True) as server:
        url = server.url
        assert (server.port != 6379, url) == (True, f"redis://127.0.0.1:{server.port}")
        with client(server) as redis_client:
            assert redis_client.config_get("bind") == {"bind": "127.0.0.1"}
            redis_client.set("key", "value")
        pid = server.pid
        server.kill()
        assert not alive(pid)
        server.start()
        assert server.url == url
        assert server.pid != pid
        with client(server) as redis_client:
            assert redis_client.get("key") == b"value"
    assert tmp_path.exists()


def test_a_stopped_process_can_be_stopped():
    with PrivateServer() as server:
        pid = server.pid
        os.kill(pid, signal.SIGSTOP)
    assert not alive(pid)


def test_one_that_cannot_start_says_why():
    server = PrivateServer(settings={"maxmemory": "a lot"})
    with pytest.raises(ConnectionLost, match=r"ended at once.*argument"):
        server.start()
    assert server.pid is None


def test_one_that_never_answers_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(private_server, "START_TIMEOUT", 0.2)
    deaf = ServerBinary(path=program(tmp_path, "deaf", "exec sleep 60"), origin="PATH")
    with pytest.raises(ConnectionLost, match=r"did not answer within 0\.2 s"):
        PrivateServer(binary=deaf).start()


def test_a_long_temporary_folder_is_avoided(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with PrivateServer() as server, client(server) as redis_client:
        assert redis_client.ping()


def test_it_does_not_outlive_its_owner():
    code = (
        "import signal; from mq_django.transport.private_server import PrivateServer\n"
        "s = PrivateServer().start(); print(s.pid, s._folder, flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as owner:
        pid, folder = owner.stdout.readline().split()
        assert alive(int(pid))
        owner.kill()
    wait_until(lambda: not alive(int(pid)) and not Path(folder).exists(), message="the server is gone")


def test_a_silent_port_does_not_answer():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        assert not ask(listener.getsockname(), b"PING", timeout=0.05)
        assert not answers("/nowhere/at/all")
