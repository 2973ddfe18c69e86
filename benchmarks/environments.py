"""Each peer in an environment of its own, made when first needed."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.contenders import OURS, Contender
from benchmarks.trees import ROOT

#: Where the environments are; kept over runs.
HOME = Path(os.environ.get("MQ_BENCH_HOME") or ROOT)
#: Seconds that an installation may take.
PATIENCE = 600


def folder(name: str) -> Path:
    """Return where an environment is."""
    return HOME / f".venv-bench-{name}"


def command(contender: Contender) -> list[str]:
    """Return the command that a contender's verbs go to."""
    if not contender.is_python:
        return ["node", str(ROOT / "benchmarks" / "driver.js"), contender.module]
    python = folder(contender.environment) / "bin" / "python" if contender.is_peer else sys.executable
    return [str(python), "-m", "benchmarks.driver", contender.module]


def variables(contender: Contender) -> Mapping[str, str]:
    """Return the environment variables that let a contender find its packages."""
    own = {} if contender.is_python else {"NODE_PATH": str(folder(contender.environment) / "node_modules")}
    return {"PYTHONPATH": str(ROOT), **own}


def prepare(contender: Contender) -> str:
    """Make a contender's environment; return why it cannot be made, or ''."""
    if contender.environment == OURS:
        return ""
    return install(contender.environment, contender.packages, is_python=contender.is_python)


def install(name: str, packages: Sequence[str], *, is_python: bool = True) -> str:
    """Make an environment with packages; return why it cannot be made, or ''."""
    place, wanted = folder(name), "\n".join(packages)
    stamp = place / ".ready"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return ""
    print(f"Installing {name} ...", file=sys.stderr, flush=True)
    try:
        (_with_pip if is_python else _with_npm)(place, packages)
    except subprocess.CalledProcessError as error:
        return f"{' '.join(map(str, error.cmd[-3:]))} ended with {error.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    stamp.write_text(wanted, encoding="utf-8")
    return ""


def _with_pip(place: Path, packages: Sequence[str]) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True, timeout=PATIENCE)
    pip = [str(place / "bin" / "python"), "-m", "pip", "-qq", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *packages], check=True, timeout=PATIENCE)


def _with_npm(place: Path, packages: Sequence[str]) -> None:
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise FileNotFoundError("node and npm are not installed")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    # Without it, npm looks for a project in the folders above.
    (place / "package.json").write_text('{"private": true}', encoding="utf-8")
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", *packages]
    subprocess.run(command, cwd=place, check=True, timeout=PATIENCE)
