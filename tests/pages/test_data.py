"""The boxes of docs/ in YAML, JSON, TOML and INI can be read, and fit the schema of what they are for."""

import configparser
import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.observability.prometheus_program import program
from tests.pages.boxes import boxes, pages
from tests.shell import ran

READERS: dict[str, Callable[[str], Any]] = {
    "yaml": lambda text: list(yaml.safe_load_all(text)),
    "json": json.loads,
    "toml": tomllib.loads,
    "ini": lambda text: configparser.RawConfigParser(strict=True).read_string(text),
}
DATA = [
    pytest.param(language, text, id=f"{page}-{number}")
    for page in pages()
    for number, (language, text) in enumerate(boxes(page), 1)
    if language in READERS
]


def tool(name: str) -> str:
    """Return the path of a program, or skip the test where it is not installed."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or program(name) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: it is of the dependency group `deployment`, or of the system")
    return found


def accepts(*command: str) -> None:
    ran(command)


def pod(document: dict[str, Any], path: Path) -> None:
    """What a page shows of a pod, in a pod; the image is that of the reader."""
    for container in document["spec"]["containers"]:
        container.setdefault("image", "shop")
    whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "shop"}, **document}
    path.write_text(yaml.safe_dump(whole), encoding="utf-8")
    accepts(tool("kubernetes-validate"), "--strict", "--no-warn", str(path))


def workflow(document: dict[str, Any], path: Path) -> None:
    """What a page shows of a job of GitHub's, in a workflow."""
    job = {"runs-on": "ubuntu-latest", "steps": [{"run": "python -m pytest"}], **document}
    path.write_text(yaml.safe_dump({"on": "push", "jobs": {"test": job}}), encoding="utf-8")
    accepts(tool("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", str(path))


def prometheus(document: dict[str, Any], path: Path) -> None:
    """A configuration of Prometheus; the file with the token is that of the reader."""
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    accepts(tool("promtool"), "check", "config", "--syntax-only", str(path))


def unit(text: str, path: Path) -> None:
    """What a page shows of a unit of systemd; the program is that of the reader."""
    path.write_text(text.replace("/srv/shop/.venv/bin/python", sys.executable), encoding="utf-8")
    done = subprocess.run(
        [tool("systemd-analyze"), "verify", "--man=no", "--generators=no", str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


#: What a document is for, by a key that only it has.
SCHEMAS = {"spec": pod, "services": workflow, "scrape_configs": prometheus}


@pytest.mark.parametrize(("language", "text"), DATA)
def test_each_box_can_be_read(language, text):
    READERS[language](text)


@pytest.mark.parametrize(("language", "text"), DATA)
def test_each_box_fits_its_schema(language, text, tmp_path):
    if language == "ini":
        unit(text, tmp_path / "shop.service")
        return
    for number, document in enumerate(yaml.safe_load_all(text)):  # JSON is YAML, too
        (check,) = (check for key, check in SCHEMAS.items() if key in document)
        check(document, tmp_path / f"{number}.yaml")


def test_there_are_boxes():
    assert len(DATA) >= 5
