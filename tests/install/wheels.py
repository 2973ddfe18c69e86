"""The wheel and the sdist, built here, and environments that have them."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def copy_source(folder: Path) -> Path:
    """Copy the source tree into a folder: a build leaves its traces in the tree that it builds."""
    target = folder / "mq_django"
    rubbish = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "node_modules", "*.sqlite3")
    shutil.copytree(ROOT, target, ignore=rubbish)
    return target


def copy_project(folder: Path) -> None:
    """Make a folder with a small project: settings, a handler, and the steps of a user."""
    shutil.copytree(Path(__file__).parent / "project", folder, ignore=shutil.ignore_patterns("__pycache__"))


def build(source: Path, kind: str) -> Path:
    """Build a wheel or an sdist with the project's own backend, as pip does, but without a network."""
    code = f"import sys, setuptools.build_meta as backend; backend.build_{kind}(sys.argv[1])"
    run(sys.executable, "-c", code, str(source / "dist"), cwd=source)
    (built,) = (source / "dist").glob({"wheel": "*.whl", "sdist": "*.tar.gz"}[kind])
    return built


def install(wheel: Path, folder: Path, *also: str, interpreter: str = sys.executable) -> str:
    """Install a wheel, what it asks for and some requirements into a new environment; return its interpreter."""
    run(interpreter, "-m", "venv", str(folder))
    python = str(folder / "bin" / "python")
    run(python, "-m", "pip", "--disable-pip-version-check", "-qq", "install", str(wheel), *also)
    return python


def run(*command: str, **options) -> str:
    outcome = subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=300, **options
    )
    assert outcome.returncode == 0, f"{command}:\n{outcome.stdout}\n{outcome.stderr}"
    # What setuptools says of files that it overlooked or that are told twice.
    assert "absent from the" not in outcome.stderr
    return outcome.stdout
