"""The files of docs/deployment, and what they start."""

import configparser
import json
import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "docs" / "deployment"
PROJECT = Path(__file__).parent / "project"
UNITS = sorted(FOLDER.glob("systemd/*.service"))
MANIFESTS = sorted(FOLDER.glob("kubernetes/*.yaml"))
#: Seconds that a stop may take beyond --grace.
LAST_STEPS = 25


def unit(path: Path) -> configparser.RawConfigParser:
    """Return the sections of a unit."""
    parser = configparser.RawConfigParser(strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(path)
    return parser


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile, each with its text on one line."""
    lines = "\n".join(line for line in dockerfile.splitlines() if line.strip() and not line.startswith("#"))
    return [tuple(line.split(maxsplit=1)) for line in re.sub(r"\s*\\\n\s*", " ", lines).splitlines()]  # type: ignore[misc]


def image_command() -> list[str]:
    """Return the CMD of the image."""
    return json.loads(dict(instructions((FOLDER / "Dockerfile").read_text()))["CMD"])


def procfile() -> dict[str, list[str]]:
    """Return the command of each kind of process."""
    lines = (FOLDER / "Procfile").read_text().splitlines()
    return {name: shlex.split(command) for name, _, command in (line.partition(":") for line in lines)}


def unit_command(path: Path, instance: str = "emails") -> list[str]:
    """Return what a unit starts."""
    return shlex.split(unit(path)["Service"]["ExecStart"].replace("%i", instance))
