"""What happened, as lines of JSON that several processes append to one file."""

import json
import os
import time
from pathlib import Path
from typing import Any


def note(kind: str, **told: Any) -> None:
    """Append a line. It is one write of its own: whoever is killed afterwards has noted it."""
    line = json.dumps({"t": time.monotonic(), "kind": kind, "pid": os.getpid(), **told})
    os.write(_file(), line.encode() + b"\n")


def read(path: Path) -> list[dict[str, Any]]:
    """Return the lines so far."""
    text = path.read_bytes() if path.exists() else b""
    # The last one may be half written.
    return [json.loads(line) for line in text.split(b"\n")[:-1]]


_fd: int | None = None


def _file() -> int:
    global _fd  # noqa: PLW0603
    if _fd is None:
        _fd = os.open(os.environ["MQ_TEST_HISTORY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    return _fd
