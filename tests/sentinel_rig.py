"""A master with a replica, and a Sentinel that makes the replica the master."""

import contextlib
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from mq_django.transport.guard_process import ask
from mq_django.transport.private_server import PrivateServer, ServerBinary, find_server
from tests.waiting import wait_until

#: Milliseconds without an answer until the Sentinel gives a master up.
DOWN_AFTER_MS = 1000
#: The name of the master.
MASTER = "shop"


class Pair:
    """A master, and a replica that has all of its data."""

    def __init__(self, master: PrivateServer | None = None) -> None:
        self.master = master or PrivateServer(tcp=True).start()
        self.replica = PrivateServer(tcp=True, binary=self.master.binary, settings=self.master.settings).start()
        # By default a master waits for five seconds for more replicas before it sends its data to the first.
        for server in (self.master, self.replica):
            server.settings = {**server.settings, "repl-diskless-sync-delay": "0"}
            with client_of(server) as client:
                client.config_set("repl-diskless-sync-delay", "0")
        with client_of(self.replica) as client:
            client.replicaof("127.0.0.1", self.master.port)
            wait_until(lambda: client.info("replication")["master_link_status"] == "up")
        self.wait_for_replica()

    def wait_for_replica(self) -> None:
        """Wait until the replica has what the master has: what has not reached it is lost with its master.

        The master must know, too. A replica calls its link up before the master has seen the end of the first copy,
        and until then WAIT counts no replica.
        """

        def has_all() -> bool:
            with client_of(self.master) as master, client_of(self.replica) as replica:
                there = master.info("replication")["master_repl_offset"]
                return bool(replica.info("replication")["slave_repl_offset"] >= there and master.wait(1, 100))

        wait_until(has_all)

    def swap(self) -> None:
        """Call the replica, which has become the master, the master."""
        self.master, self.replica = self.replica, self.master

    def close(self) -> None:
        self.replica.stop()
        self.master.stop()


class RunningSentinel:
    """A Sentinel that watches one master."""

    def __init__(
        self, master_port: int | None, *, binary: ServerBinary | None = None, lines: str = "", again_ms: int = 5000
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="mq-sentinel-"))
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port: int = listener.getsockname()[1]
        config = self._folder / "sentinel.conf"
        config.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self._folder}\n"
            f"sentinel monitor {MASTER} 127.0.0.1 {master_port} 1\n"
            f"sentinel down-after-milliseconds {MASTER} {DOWN_AFTER_MS}\n"
            f"sentinel failover-timeout {MASTER} {again_ms}\n{lines}",
            encoding="utf-8",
        )
        with (self._folder / "log").open("wb") as output:
            self._process = subprocess.Popen(
                [str((binary or find_server()).path), str(config), "--sentinel"],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
            )
        # One with a password answers that it needs one.
        wait_until(lambda: ask(("127.0.0.1", self.port), b"PING"))
        self.client = redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0))

    @property
    def url(self) -> str:
        """Return the URL of the master; the first Sentinel is not there, because one less must not matter."""
        return f"redis+sentinel://127.0.0.1:1,127.0.0.1:{self.port}/{MASTER}/0"

    def master_port(self) -> int:
        """Return the port of the master that it names."""
        return int(self.client.sentinel_get_master_addr_by_name(MASTER)[1])

    def wait_for_replicas(self) -> None:
        """Wait until it knows a replica that can become the master."""

        def knows_one() -> bool:
            found = self.client.sentinel_slaves(MASTER)
            return any(row["master-link-status"] == "ok" and not row["is_sdown"] for row in found)

        wait_until(knows_one, timeout=30)

    def close(self) -> None:
        self.client.close()
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


@contextlib.contextmanager
def running_sentinel(
    master_port: int | None, *, binary: ServerBinary | None = None, lines: str = ""
) -> Iterator[RunningSentinel]:
    """Run a Sentinel for a while."""
    found = RunningSentinel(master_port, binary=binary, lines=lines)
    try:
        yield found
    finally:
        found.close()


def client_of(server: PrivateServer) -> redis.Redis:
    """Return a client of a server that sends each command once."""
    return redis.Redis.from_url(server.url, socket_timeout=20, retry=Retry(NoBackoff(), 0))
