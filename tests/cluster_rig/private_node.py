"""One node of a Redis Cluster for tests, and what a node says about the others."""

import os
import random
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from mq_django.errors import ConnectionLost
from mq_django.transport.failures import translated
from mq_django.transport.private_server import PrivateServer, ServerBinary

#: A node talks to the others on its port plus this number.
BUS_DISTANCE = 10_000

#: Where both ports are below those that systems give to outgoing connections.
_PORTS = range(10_000, 22_000)

#: How many ports are tried: another process may open one just after it was found free.
_ATTEMPTS = 5

#: Seconds until a command to a node fails.
COMMAND_TIMEOUT = 5.0


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """What one node says about another, or about itself: a line of CLUSTER NODES."""

    id: str
    port: int
    flags: frozenset[str]
    master_id: str
    epoch: int
    is_linked: bool
    slots: tuple[range, ...]
    #: Slots that are moving to this node. Only the node itself says that.
    importing: frozenset[int]

    @property
    def is_master(self) -> bool:
        """Whether the node counts as a master."""
        return "master" in self.flags

    @property
    def is_settled(self) -> bool:
        """Whether the node is known, connected, and not taken for dead."""
        return self.is_linked and not self.flags & {"handshake", "noaddr", "fail", "fail?"}

    def owns(self, slot: int) -> bool:
        """Return whether the slot belongs to this node."""
        return any(slot in span for span in self.slots)


class PrivateNode:
    """A Redis server in cluster mode. Its port and its data stay the same when it is killed and started again."""

    def __init__(self, *, binary: ServerBinary | None, settings: Mapping[str, str]) -> None:
        self.server = PrivateServer(
            binary=binary, tcp=True, append_only=True, settings={"cluster-enabled": "yes", **settings}
        )
        #: The id that the cluster knows the node by.
        self.id = ""
        self.is_suspended = False
        self._client: redis.Redis | None = None

    def __repr__(self) -> str:
        return f"<PrivateNode {self.server.port}>"

    @property
    def port(self) -> int:
        """The node's port on 127.0.0.1."""
        if self.server.port is None:
            raise ConnectionLost("The node of the private cluster has not been started.")
        return self.server.port

    @property
    def url(self) -> str:
        """The URL of this node alone."""
        return self.server.url

    @property
    def pid(self) -> int | None:
        """The process id while the node runs."""
        return self.server.pid

    @property
    def is_running(self) -> bool:
        """Whether the node's process runs, and is not suspended."""
        return self.pid is not None and not self.is_suspended

    @property
    def client(self) -> redis.Redis:
        """A client of this node alone: it follows no redirection, and retries nothing."""
        if self._client is None:
            self._client = redis.Redis.from_url(
                self.url, protocol=2, socket_timeout=COMMAND_TIMEOUT, retry=Retry(NoBackoff(), 0)
            )
        return self._client

    def start(self) -> None:
        """Start the node, for the first time on a free port, and wait until it replies.

        Raises NoServer when there is no program to start, ConnectionLost when the node does not start.
        """
        self.resume()
        attempts = 1 if self.server.port else _ATTEMPTS
        for attempt in range(1, attempts + 1):
            if attempts > 1:
                self.server.port = free_port()
            try:
                self._start_server()
                break
            except ConnectionLost:
                if attempt == attempts:
                    raise
                self.stop()

    def kill(self) -> None:
        """Kill the node, like a crash."""
        self.is_suspended = False
        self.server.kill()

    def stop(self) -> None:
        """Stop the node, and delete its data. May be called twice."""
        if self._client is not None:
            self._client.close()
            self._client = None
        self.server.stop()
        self.is_suspended = False

    def suspend(self) -> None:
        """Stop the node's process without ending it: it holds its connections, and does not reply."""
        self._signal(signal.SIGSTOP)
        self.is_suspended = True

    def resume(self) -> None:
        """Let a suspended node go on. A node that runs, or has ended, is left as it is."""
        if self.is_suspended:
            self._signal(signal.SIGCONT)
        self.is_suspended = False

    def command(self, *words: str | int | bytes) -> object:
        """Execute a command on this node, and return its reply as it is.

        Raises ConnectionLost when the node does not reply, StoreError for an error reply.
        """
        with translated():
            # Subcommands are words of their own here, because redis-py would parse the reply to "CLUSTER NODES".
            return self.client.execute_command(*words)  # type: ignore[no-untyped-call]

    def views(self) -> list[NodeView]:
        """Return what this node says about all nodes, itself included.

        Raises ConnectionLost when the node does not reply.
        """
        reply = self.command("CLUSTER", "NODES")
        assert isinstance(reply, bytes)
        return [_view(line.split()) for line in reply.decode().splitlines() if line]

    def facts(self) -> dict[str, str]:
        """Return what this node says about the state of the cluster: CLUSTER INFO.

        Raises ConnectionLost when the node does not reply.
        """
        reply = self.command("CLUSTER", "INFO")
        assert isinstance(reply, bytes)
        return dict(line.split(":", 1) for line in reply.decode().splitlines() if ":" in line)

    def _start_server(self) -> None:
        self.server.start()
        with translated():
            process_id = self.client.info("server")["process_id"]
            if process_id != self.pid:
                raise ConnectionLost(f"Port {self.port} belongs to another server, with process id {process_id}.")
            self.id = self.client.execute_command("CLUSTER", "MYID").decode()  # type: ignore[no-untyped-call]

    def _signal(self, kind: signal.Signals) -> None:
        if self.pid is not None:
            os.kill(self.pid, kind)


def _view(words: Sequence[str]) -> NodeView:
    # In brackets are slots that are moving, "[7-<-id]" to this node and "[7->-id]" from it: they have not moved yet.
    ranges = [word.split("-") for word in words[8:] if not word.startswith("[")]
    imports = [word[1:].partition("-<-")[0] for word in words[8:] if "-<-" in word]
    return NodeView(
        id=words[0],
        port=int(words[1].split("@")[0].rsplit(":", 1)[1]),
        flags=frozenset(words[2].split(",")),
        master_id=words[3].strip("-"),
        epoch=int(words[6]),
        is_linked="myself" in words[2] or words[7] == "connected",
        slots=tuple(range(int(one[0]), int(one[-1]) + 1) for one in ranges),
        importing=frozenset(int(slot) for slot in imports),
    )


def free_port() -> int:
    """Return a free loopback port whose bus port is free, too."""
    while True:
        port = random.choice(_PORTS)
        if all(_is_free(number) for number in (port, port + BUS_DISTANCE)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
