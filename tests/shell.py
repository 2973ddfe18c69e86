"""The environment of a program that is started as from a shell."""

import os
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: What our own tests have in theirs, and a project does not.
OURS = ("PYTEST_", "MQ_", "DJANGO_", "COV_", "EXAMPLE_PROJECT_")


def shell_environment(**more: str) -> dict[str, str]:
    """Return the environment variables of this process without those of our own tests, and with these."""
    shell = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return shell | {"PYTHONPATH": str(ROOT)} | more
