"""npm's rsmq and PyRSMQ, asked the same questions."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple


class PeerError(Exception):
    """A peer refused; the first argument is its own name for it."""


class Message(NamedTuple):
    id: str
    body: str
    rc: int
    fr: int


class Peer:
    """A program at the other end of a pipe."""

    name = ""

    def __init__(self, command: Sequence[str | Path], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def ask(self, method: str, **options: Any) -> Any:
        """Call a method of the package."""
        self.process.stdin.write(json.dumps([method, options]) + "\n")
        self.process.stdin.flush()
        told = json.loads(self.process.stdout.readline())
        if "error" in told:
            raise PeerError(told["error"], told["message"])
        return told["ok"]

    def stop(self) -> None:
        """End the program."""
        self.process.communicate(timeout=60)

    def create(self, queue: str, **options: Any) -> None:
        self.ask("createQueue", qname=queue, **options)

    def names(self) -> set[str]:
        return set(self.ask("listQueues"))

    def attributes(self, queue: str) -> dict[str, Any]:
        return {name: int(value) for name, value in self.ask("getQueueAttributes", qname=queue).items()}

    def set(self, queue: str, **options: Any) -> None:
        self.ask("setQueueAttributes", qname=queue, **options)

    def delete_queue(self, queue: str) -> None:
        self.ask("deleteQueue", qname=queue)

    def send(self, queue: str, message: str, **options: Any) -> str:
        return self.ask("sendMessage", qname=queue, message=message, **options)

    def receive(self, queue: str, **options: Any) -> Message | None:
        return self._message(lambda: self.ask("receiveMessage", qname=queue, **options))

    def pop(self, queue: str) -> Message | None:
        return self._message(lambda: self.ask("popMessage", qname=queue))

    def delete(self, queue: str, message_id: str) -> bool:
        return bool(self.ask("deleteMessage", qname=queue, id=message_id))

    def show(self, queue: str, message_id: str, vt: int) -> bool:
        return bool(self.ask("changeMessageVisibility", qname=queue, id=message_id, vt=vt))

    def _message(self, ask: Any) -> Message | None:
        raise NotImplementedError


class Npm(Peer):
    name = "npm"
    not_found, exists = "queueNotFound", "queueExists"

    def _message(self, ask: Any) -> Message | None:
        found = ask()
        return Message(found["id"], found["message"], found["rc"], found["fr"]) if found else None


class PyRSMQ(Peer):
    name = "pyrsmq"
    not_found, exists = "QueueDoesNotExist", "QueueAlreadyExists"

    def _message(self, ask: Any) -> Message | None:
        try:
            found = ask()
        except PeerError as error:
            if error.args[0] == "NoMessageInQueue":
                return None
            raise
        return Message(found["id"], found["message"], int(found["rc"]), int(found["ts"]))

    def show(self, queue: str, message_id: str, vt: int) -> bool:
        try:
            return super().show(queue, message_id, vt)
        except PeerError as error:
            if error.args[0] == "NoMessageInQueue":
                return False
            raise
