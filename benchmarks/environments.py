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
#: Versions of Python that are looked for where a contender needs a newer one than that of the suite.
NEWER = ("3.12", "3.13", "3.14", "3.15")
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


def prepare(contender: Contender, redis_version: str) -> str:
    """Make a contender's environment; return why it cannot be made or would be of no use with this Redis, or ''."""
    if contender.environment == OURS:
        return ""
    if contender.oldest_redis and _parts(redis_version) < _parts(contender.oldest_redis):
        return f"Redis here is {redis_version}, and it needs {contender.oldest_redis} or newer"
    return install(
        contender.environment,
        contender.packages,
        is_python=contender.is_python,
        oldest_python=contender.oldest_python,
    )


def install(name: str, packages: Sequence[str], *, is_python: bool = True, oldest_python: str = "") -> str:
    """Make an environment with packages; return why it cannot be made, or ''."""
    place, wanted = folder(name), "\n".join(packages)
    stamp = place / ".ready"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return ""
    python = _python(oldest_python)
    if python is None:
        return f"Python {oldest_python} or newer is not installed"
    print(f"Installing {name} ...", file=sys.stderr, flush=True)
    try:
        if is_python:
            _with_pip(place, packages, python)
        else:
            _with_npm(place, packages)
    except subprocess.CalledProcessError as error:
        return f"{' '.join(map(str, error.cmd[-3:]))} ended with {error.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    stamp.write_text(wanted, encoding="utf-8")
    return ""


def interpreter(version: str) -> str | None:
    """Return a working interpreter of a version such as 3.12, if there is one."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for candidate in [shutil.which(f"python{version}"), *map(str, pyenv.glob(f"{version}.*/bin/python"))]:
        # A name on PATH may be pyenv's, for a version that is not switched on.
        code = f"import sys; sys.exit('%d.%d' % sys.version_info[:2] != '{version}')"
        if candidate and subprocess.run([candidate, "-c", code], check=False, capture_output=True).returncode == 0:
            return candidate
    return None


def _python(oldest: str) -> str | None:
    """Return an interpreter of this version or a newer one: that of the suite if it can be."""
    if not oldest or _parts(oldest) <= sys.version_info[:2]:
        return sys.executable
    found = (interpreter(version) for version in NEWER if _parts(version) >= _parts(oldest))
    return next((python for python in found if python), None)


def _parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _with_pip(place: Path, packages: Sequence[str], python: str) -> None:
    subprocess.run([python, "-m", "venv", "--clear", str(place)], check=True, timeout=PATIENCE)
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
