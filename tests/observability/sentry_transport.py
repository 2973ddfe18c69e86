"""A transport of Sentry's SDK that keeps what it is given, or appends it to a file."""

import json
from pathlib import Path
from typing import Any

from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport


class Kept(Transport):
    """Keeps items: their type and their payload."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[tuple[str, Any]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        for item in envelope.items:
            self.items.append((str(item.type), json.loads(item.payload.get_bytes())))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [payload for found, payload in self.items if found == kind]

    @property
    def events(self) -> list[dict[str, Any]]:
        return self.of("event")

    @property
    def transactions(self) -> list[dict[str, Any]]:
        return self.of("transaction")


class Slow(Transport):
    """Appends events to a file when it is flushed, as a slow network would: not before."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._waiting: list[str] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self._waiting += [item.payload.get_bytes().decode() for item in envelope.items if item.type == "event"]

    def flush(self, timeout: float, callback: Any = None) -> None:
        with self._path.open("a") as file:
            file.writelines(f"{line}\n" for line in self._waiting)
        self._waiting.clear()

    def kill(self) -> None:
        pass
