"""The distribution, built from a copy of the source tree: a build leaves its traces in the tree that it builds."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def build_wheel(folder: Path) -> Path:
    """Build a wheel with the project's own backend, as pip does, but without a network."""
    source = folder / "source"
    rubbish = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "node_modules", "*.sqlite3")
    shutil.copytree(ROOT, source, ignore=rubbish)
    code = "import sys, setuptools.build_meta as backend; backend.build_wheel(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        cwd=source,
        check=True,
        timeout=300,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel
