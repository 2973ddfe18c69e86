"""Programs that are started as from a shell, and their environment."""

import os
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
#: What our own tests have in theirs, and a project does not.
OURS = ("PYTEST_", "MQ_", "DJANGO_", "COV_", "EXAMPLE_PROJECT_")


def shell_environment(**more: str) -> dict[str, str]:
    """Return the environment variables of this process without those of our own tests, and with these."""
    shell = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return shell | {"PYTHONPATH": str(ROOT)} | more


def ran(command: Sequence[object], *, cwd: Path = ROOT, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run a program that ends well, and return what it has printed."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=280, check=False, **options)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done


def free_port() -> int:
    """Return the number of a port of this machine that nothing uses now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
