"""What producers and handlers did: one file of JSON lines a process."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: The version that this process runs, "old" or "new".
LABEL = os.environ.get("COMPAT_LABEL", "new")
FOLDER = os.environ.get("COMPAT_HISTORY", "")


def note(what: str, kind: str, **details: Any) -> None:
    """Add a line. One write, so that a line is whole whatever happens to its writer."""
    line = {"what": what, "kind": kind, "by": LABEL, **details}
    handle = os.open(Path(FOLDER) / f"{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(handle, json.dumps(line).encode() + b"\n")
    finally:
        os.close(handle)


def read(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield every whole line of every process."""
    for path in folder.glob("*.jsonl"):
        for line in path.read_bytes().split(b"\n")[:-1]:
            yield json.loads(line)
