"""Golden files: compared with what is there now, and written only when somebody asks for it."""

import os
from collections.abc import Mapping
from difflib import unified_diff
from pathlib import Path

import pytest

#: The environment variable that has the files written.
WRITE = "WRITE_GOLDEN"

COMMAND = f"{WRITE}=1 make test PYTEST=tests/golden"


def check(folder: Path, texts: Mapping[str, str]) -> None:
    """Compare texts with the files of these names in a folder, and fail with all differences."""
    if os.environ.get(WRITE):
        for name, text in texts.items():
            _path(folder, name).write_text(text, encoding="utf-8")
        return
    found = "".join(difference(_path(folder, name), text) for name, text in texts.items())
    if found:
        meant = f"If that is meant, run `{COMMAND}`, read the difference, and write it into CHANGELOG.md."
        pytest.fail(f"This is not what the golden files say:\n\n{found}\n{meant}", pytrace=False)


def difference(path: Path, text: str) -> str:
    """Return how a text differs from a file; nothing when it does not."""
    expected = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = unified_diff(expected.splitlines(), text.splitlines(), f"golden {path.name}", "now", lineterm="")
    return "".join(f"{line}\n" for line in lines)


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.txt"
