"""What other programs of the repository import from the package exists, also where the fast tests do not run them."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from mq_django.errors import MissingDependency

ROOT = Path(__file__).parent.parent
FILES = [
    path for folder in ("tests", "benchmarks", "example_project") for path in sorted((ROOT / folder).rglob("*.py"))
]


def imported(path):
    """Yield what a file imports from the package by name: module, name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "mq_django":
            yield from ((node.module, alias.name) for alias in node.names)


def exists(module, name):
    try:
        return hasattr(import_module(module), name) or bool(import_module(f"{module}.{name}"))
    except ImportError:
        return False
    except MissingDependency:
        # Of a package that is not installed here. CI runs this with all of them, too.
        return True


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_name_that_is_imported_exists(path):
    assert [found for found in imported(path) if not exists(*found)] == []


@pytest.mark.parametrize(
    "module", ["mq_django", "mq_django.inspector", "mq_django.workflows", "mq_django.observability.problem_watch"]
)
def test_what_apps_py_of_a_project_may_import_needs_no_models(module):
    """Django imports it before the models of any app."""
    code = f"from django.conf import settings; settings.configure(); import {module}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
