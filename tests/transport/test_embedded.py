import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from mq_django.errors import ConfigurationError, ConnectionLost, NoServer
from mq_django.transport import guard_process, private_server
from tests.processes import Process, alive, command, processes
from tests.transport.embedded_users import IMPORTS, JOIN, USER, Template, User, connect
from tests.transport.test_servers import program
from tests.waiting import wait_until


def guards(directory: Path) -> list[Process]:
    """Return the pair that keeps this directory's server, the guard first."""
    wanted = ("guard_process.py", f"keep {directory} ")
    found = [process for process in processes() if all(word in command(process.pid) for word in wanted)]
    return sorted(found, key=lambda process: process.parent in {p.pid for p in found})


def pair(directory: Path) -> list[Process]:
    """Return the guard and its child, once both are there: whoever joins does not wait for the second."""
    wait_until(lambda: len(guards(directory)) == 2, message="a guard and its child")
    return guards(directory)


def server_runs(directory: Path) -> bool:
    if not directory.exists():
        return False
    lock = guard_process.take_lock(directory / guard_process.SERVER_LOCK)
    if lock is None:
        return True
    os.close(lock)
    return False


def nothing_runs(directory: Path) -> bool:
    return not guards(directory) and not server_runs(directory)


def guard_looks(directory: Path) -> None:
    """Wait until the guard has looked once more, whole."""
    path = directory / guard_process.GUARD_LOCK
    for _ in range(2):
        before = path.stat().st_mtime_ns
        wait_until(lambda before=before: path.stat().st_mtime_ns != before, message="the guard looks")


@pytest.fixture(autouse=True)
def _guards_look_often(tmp_path, monkeypatch):
    """Start guards from a copy of their program, with an interval that no test has to wait for."""
    text = Path(guard_process.__file__).read_text(encoding="utf-8")
    program = tmp_path / "guard_process.py"
    program.write_text(text.replace("CHECK_INTERVAL = 1.0", "CHECK_INTERVAL = 0.05"), encoding="utf-8")
    monkeypatch.setattr(guard_process, "__file__", str(program))


@pytest.fixture
def directory(tmp_path, monkeypatch):
    path = tmp_path / "data"
    yield path
    # Joining in this process counts until the file is closed.
    with contextlib.suppress(KeyError):
        os.close(private_server._memberships.pop(path))
    # What still runs would go by itself within a second; that is proved where it is the point.
    while path.exists() and not nothing_runs(path):
        for process in guards(path):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        guard_process.signal_server(path, signal.SIGKILL)


@pytest.fixture
def innocent():
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


@pytest.fixture(scope="module")
def template():
    found = Template()
    yield found
    found.stop()


@pytest.fixture
def join(directory, template):
    users = []

    def start(code: str = USER, **options) -> User:
        users.append(User(template, directory, code, **options))
        return users[-1]

    yield start
    for user in users:
        user.kill()
        user.stdout.close()


class TestSharing:
    def test_users_share_one_server_which_runs_as_long_as_anybody_uses_it(self, join, directory):
        first, second = join(), join()
        first.command("SET", "key", "value")
        assert first.url == second.url
        assert second.command("GET", "key") == b"value"
        with connect(second.url) as client:
            config = [client.config_get(name)[name] for name in ("appendonly", "appendfsync")]
        assert config == ["yes", "everysec"]
        pid = second.server_pid
        first.leave()
        guard_looks(directory)
        assert second.server_pid == pid

    def test_users_that_come_at_the_same_instant_share_one_server(self, join):
        users = [join() for _ in range(6)]
        assert len({user.server_pid for user in users}) == 1

    def test_asking_again_changes_nothing(self, directory):
        assert private_server.embedded_url(directory) == private_server.embedded_url(directory)
        assert pair(directory)

    def test_another_idea_of_temporary_folders_leads_to_the_same_server(self, join, tmp_path):
        first = join()
        elsewhere = tmp_path / "runtime"
        elsewhere.mkdir(mode=0o700)
        second = join(XDG_RUNTIME_DIR=str(elsewhere))
        assert second.server_pid == first.server_pid


class TestLeaving:
    @pytest.mark.parametrize("end", ["leave", "kill"])
    def test_the_last_user_takes_all_with_it_but_the_data(self, join, directory, end):
        user = join()
        user.command("SET", "key", "value")
        pid, address = user.server_pid, guard_process.socket_of(directory)
        getattr(user, end)()
        wait_until(lambda: nothing_runs(directory), message="server and guard are gone")
        assert not alive(pid)
        assert not Path(address).exists()
        assert join().command("GET", "key") == b"value"

    def test_ctrl_c_to_the_whole_group_loses_nothing(self, join, directory):
        leader = join(group=0)
        pid = leader.server_pid
        assert leader.url
        other = join(group=leader.pid)
        other.command("RPUSH", "list", *range(200))
        os.killpg(leader.pid, signal.SIGINT)
        leader.wait()
        other.wait()
        wait_until(lambda: nothing_runs(directory), message="server and guard are gone")
        assert not alive(pid)
        assert join().command("LLEN", "list") == 200

    def test_a_user_killed_while_it_starts_the_server_leaves_nothing(self, join, directory):
        for stage in (guard_process.USERS_LOCK, guard_process.GUARD_LOCK, guard_process.SERVER_LOCK):
            user = join(IMPORTS + "private_server.embedded_url(directory)")
            wait_until(lambda path=directory / stage: path.exists())
            user.kill()
            wait_until(lambda: nothing_runs(directory), message="all are gone")
            shutil.rmtree(directory)
        assert join().command("PING") is True

    def test_who_comes_while_the_server_is_being_stopped_gets_the_next(self, join, directory):
        user = join()
        user.command("SET", "key", "value")
        pid = user.server_pid
        os.kill(pid, signal.SIGSTOP)
        user.kill()
        users = directory / guard_process.USERS_LOCK
        wait_until(lambda: is_locked(users), message="the guard stops the server")
        late = join()
        os.kill(pid, signal.SIGCONT)
        assert late.command("GET", "key") == b"value"
        assert late.server_pid != pid
        guard_looks(directory)
        assert pair(directory)

    def test_a_deleted_directory_ends_the_server(self, join, directory):
        user = join()
        pid = user.server_pid
        # The server may write its files anew meanwhile.
        wait_until(lambda: shutil.rmtree(directory, ignore_errors=True) or not directory.exists())
        wait_until(lambda: not alive(pid) and not guards(directory), message="server and guard are gone")

    def test_a_directory_that_is_being_deleted_ends_the_server(self, join, directory):
        """A guard that looks in between takes no missing lock for one that nobody holds."""
        user = join()
        pid = user.server_pid
        for name in (guard_process.PID_NAME, guard_process.USERS_LOCK, guard_process.SERVER_LOCK):
            (directory / name).unlink()
        wait_until(lambda: not alive(pid) and not guards(directory), message="server and guard are gone")


def is_locked(path: Path) -> bool:
    lock = guard_process.take_lock(path, shared=True)
    if lock is None:
        return True
    os.close(lock)
    return False


class TestForking:
    def test_a_forked_child_counts_when_its_parent_is_gone(self, join, directory):
        code = JOIN + "if not os.fork():\n    print(os.getpid(), flush=True)\n    import signal; signal.pause()"
        parent = join(code)
        pid = parent.server_pid
        child = int(parent.stdout.readline())
        parent.wait()
        guard_looks(directory)
        assert parent.server_pid == pid
        os.kill(child, signal.SIGKILL)
        wait_until(lambda: nothing_runs(directory), message="server and guard are gone")

    def test_a_program_started_by_a_user_does_not_count(self, join, directory):
        code = JOIN + (
            "import subprocess\n"
            "program = subprocess.Popen(['sleep', '60'], close_fds=False, stdout=subprocess.DEVNULL)\n"
            "print(program.pid, flush=True); os._exit(0)"
        )
        user = join(code)
        assert user.url
        sleeper = int(user.stdout.readline())
        user.leave()
        wait_until(lambda: nothing_runs(directory), message="server and guard are gone")
        assert alive(sleeper)
        os.kill(sleeper, signal.SIGKILL)

    def test_a_child_that_closed_every_file_counts_anew_when_it_asks(self, join, directory):
        code = JOIN + (
            "if not os.fork():\n"
            "    os.closerange(3, 256)\n"
            "    os.open(os.devnull, os.O_RDONLY)\n"  # takes the number that the lock had
            "    private_server.embedded_url(directory)\n"
            "    print(os.getpid(), flush=True)\n"
            "    import signal; signal.pause()\n"
            "sys.stdin.read()"  # until the child has joined: without a user the server would end
        )
        parent = join(code)
        pid = parent.server_pid
        child = int(parent.stdout.readline())
        parent.leave()
        guard_looks(directory)
        assert parent.server_pid == pid
        os.kill(child, signal.SIGKILL)


class TestKillingTheGuard:
    def test_each_of_its_two_processes_is_replaced(self, join, directory):
        user = join()
        pid = user.server_pid
        for of_the_pair in (0, 1):
            victim = pair(directory)[of_the_pair].pid
            os.kill(victim, signal.SIGKILL)
            wait_until(lambda gone=victim: not alive(gone), message="killed")
            assert victim not in {process.pid for process in pair(directory)}
        user.kill()
        wait_until(lambda: nothing_runs(directory), message="server and guard are gone")
        assert not alive(pid)

    def test_the_next_to_ask_replaces_both(self, join, directory, monkeypatch):
        monkeypatch.setattr(private_server, "GUARD_TIMEOUT", 0.5)
        user = join()
        pid = user.server_pid
        assert pair(directory)
        # Both at once: stopped, neither can replace the other.
        for end in (signal.SIGSTOP, signal.SIGKILL):
            for victim in guards(directory):
                os.kill(victim.pid, end)
        wait_until(lambda: not guards(directory), message="no guard")
        wait_until(lambda: not private_server._has_guard(directory), message="the guard's silence is noticed")
        private_server.embedded_url(directory)
        assert user.server_pid == pid
        user.leave()
        os.close(private_server._memberships.pop(directory))
        wait_until(lambda: not alive(pid), message="the server is gone")


class TestKillingTheServer:
    def test_who_asks_next_or_connects_again_starts_it_again_on_the_same_data(self, directory):
        url = private_server.embedded_url(directory)
        pool = private_server.embedded_pool(directory, socket_timeout=5, retry=Retry(NoBackoff(), 0))
        with redis.Redis(connection_pool=pool) as client:
            client.rpush("list", *range(100))
            for asks in (True, False):
                pid = client.info("server")["process_id"]
                os.kill(pid, signal.SIGKILL)
                wait_until(lambda: not server_runs(directory), message="killed")
                pool.disconnect()
                if asks:
                    assert private_server.embedded_url(directory) == url
                assert client.llen("list") == 100
                assert client.info("server")["process_id"] != pid
        pool.disconnect()

    def test_a_server_that_cannot_come_back_is_a_lost_connection(self, directory, monkeypatch, tmp_path):
        pool = private_server.embedded_pool(directory, socket_timeout=5, retry=Retry(NoBackoff(), 0))
        with redis.Redis(connection_pool=pool) as client:
            pid = client.info("server")["process_id"]
            broken = program(tmp_path / "bin", "redis-server", "[ $1 = --version ] && echo v=9.0.0 || exit 3")
            monkeypatch.setattr(
                private_server, "find_server", lambda: private_server.ServerBinary(path=broken, origin="PATH")
            )
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not server_runs(directory), message="killed")
            pool.disconnect()
            with pytest.raises(redis.ConnectionError, match="ended with code 3"):
                client.ping()

    def test_what_a_crash_left_behind_harms_nobody(self, join, directory, innocent):
        directory.mkdir()
        socket_path = private_server._socket_path(directory)
        socket_path.write_text("not a socket", encoding="utf-8")
        (directory / guard_process.PID_NAME).write_text(str(innocent.pid), encoding="ascii")
        (directory / guard_process.SOCKET_NAME).write_text(str(socket_path), encoding="utf-8")
        user = join()
        assert user.command("PING") is True
        user.kill()
        wait_until(lambda: nothing_runs(directory), message="server and guard are gone")
        assert alive(innocent.pid)

    def test_a_server_out_of_reach_is_an_error_after_a_bounded_time(self, directory, monkeypatch):
        monkeypatch.setattr(private_server, "ANSWER_TIMEOUT", 0.3)
        directory.mkdir()
        elsewhere = guard_process.take_lock(directory / guard_process.SERVER_LOCK)
        with pytest.raises(ConnectionLost, match="another container"):
            private_server.embedded_url(directory)
        os.close(elsewhere)


class TestStarting:
    def test_without_a_server_program_nothing_is_left(self, directory, monkeypatch, tmp_path):
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(private_server, "find_spec", lambda name: None)
        with pytest.raises(NoServer):
            private_server.embedded_url(directory)

    def test_a_server_that_fails_says_why(self, directory, monkeypatch, tmp_path):
        broken = program(tmp_path / "bin", "redis-server", "echo no memory for that >&2; exit 3")
        monkeypatch.setattr(
            private_server, "find_server", lambda: private_server.ServerBinary(path=broken, origin="PATH")
        )
        with pytest.raises(ConnectionLost, match=r"ended with code 3.*no memory for that"):
            private_server.embedded_url(directory)

    def test_a_server_that_is_too_old_is_not_started(self, directory, monkeypatch, tmp_path):
        old = program(tmp_path / "bin", "redis-server", "echo Redis server v=6.2.14 sha=0")
        monkeypatch.setattr(private_server, "find_server", lambda: private_server.ServerBinary(path=old, origin="PATH"))
        with pytest.raises(ConnectionLost, match=r"is Redis 6\.2\.14, which is too old: mq_django needs 7\.0 or newer"):
            private_server.embedded_url(directory)

    def test_a_directory_that_cannot_be_made_is_a_configuration_error(self, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(ConfigurationError, match="cannot use"):
            private_server.embedded_url(tmp_path / "file" / "data")


@pytest.fixture
def short_path():
    """A temporary folder that leaves room for a socket's path, which pytest's do not always."""
    with tempfile.TemporaryDirectory(prefix="mq-", dir="/tmp") as folder:
        yield Path(folder)


class TestSocketPath:
    def test_it_is_in_our_runtime_folder(self, tmp_path, monkeypatch):
        tmp_path.chmod(0o700)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        path = private_server._socket_path(Path("/srv/shop/.mq_django"))
        assert path.parent == tmp_path
        assert path != private_server._socket_path(Path("/srv/other/.mq_django"))

    def test_a_runtime_folder_of_others_is_not_used(self, short_path, monkeypatch):
        short_path.chmod(0o777)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))
        monkeypatch.setattr("tempfile.tempdir", str(short_path))
        path = private_server._socket_path(Path("/srv/shop/.mq_django"))
        assert path.parent == short_path / f"mq-{os.getuid()}"
        assert path.parent.stat().st_mode & 0o777 == 0o700

    def test_a_folder_that_others_can_write_to_is_refused(self, short_path, monkeypatch):
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        monkeypatch.setattr("tempfile.tempdir", str(short_path))
        (short_path / f"mq-{os.getuid()}").mkdir()
        (short_path / f"mq-{os.getuid()}").chmod(0o777)
        with pytest.raises(ConfigurationError, match="others can write to it"):
            private_server._socket_path(Path("/srv/shop/.mq_django"))

    def test_it_is_short_wherever_temporary_files_go(self, tmp_path, monkeypatch):
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("x" * 120)))
        path = private_server._socket_path(Path("/srv/" + "deep/" * 40))
        assert len(os.fsencode(path)) <= private_server.MAX_SOCKET_PATH
