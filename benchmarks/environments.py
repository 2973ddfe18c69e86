"""Each peer in an environment of its own, made when first needed."""

import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.contenders import OURS, Contender
from benchmarks.trees import ROOT

REQUIREMENTS = ROOT / "benchmarks" / "requirements"


def folder(name: str) -> Path:
    """Return where an environment is."""
    return ROOT / f".venv-bench-{name}"


def command(contender: Contender) -> list[str]:
    """Return the command that a contender's verbs go to."""
    if contender.module.endswith(".mjs"):
        return ["node", contender.module]
    python = sys.executable if contender.environment == OURS else str(folder(contender.environment) / "bin" / "python")
    return [python, "-m", "benchmarks.driver", contender.module]


def prepare(contender: Contender) -> str:
    """Make a contender's environment; return why it cannot be made, or ''."""
    name = contender.environment
    if name == OURS or (folder(name) / ".ready").exists():
        return ""
    try:
        if contender.module.endswith(".mjs"):
            _prepare_node(name)
        else:
            _prepare_python(name)
    except (OSError, subprocess.CalledProcessError) as error:
        return str(error)
    (folder(name) / ".ready").touch()
    return ""


def _prepare_python(name: str) -> None:
    print(f"Installing {name} ...", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", str(folder(name))], check=True)
    pip = [str(folder(name) / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-r", str(REQUIREMENTS / f"{name}.txt")], check=True)


def _prepare_node(name: str) -> None:
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise FileNotFoundError("node and npm are not installed")
    print(f"Installing {name} ...", file=sys.stderr)
    folder(name).mkdir(exist_ok=True)
    shutil.copy(REQUIREMENTS / f"{name}.json", folder(name) / "package.json")
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund"], cwd=folder(name), check=True)
