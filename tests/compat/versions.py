"""The processes of a version: where its code is, and how they are started."""

import io
import os
import signal
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

#: The older version: the commit in this file.
BASELINE = Path(__file__).parent / "BASELINE"
OLD_COMMIT = next(line for line in BASELINE.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))

_ENTER = "import sys, django; django.setup(); from tests.compat.{module} import main; main(*map(float, sys.argv[1:]))"


class NoHistory(Exception):
    """The old version's code is not here."""


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version of mq_django, and where its processes write."""

    label: str
    #: The folder that holds its package.
    path: Path
    connection: str
    folder: Path

    def consumer(self) -> "subprocess.Popen[bytes]":
        """Start a supervisor with one consumer."""
        return self._start("-m", "django", "runconsumer", "--threads", "8")

    def producer(self, seconds: float) -> "subprocess.Popen[bytes]":
        """Start a producer that ends by itself."""
        return self._start("-c", _ENTER.format(module="produce"), str(seconds))

    def read_results(self, lines: str) -> int:
        """Return how many results of `ID VALUE` lines this version reads as they should be."""
        done = subprocess.run(
            [sys.executable, "-c", _ENTER.format(module="results")],
            input=lines,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"The {self.label} version could not read results: {done.stderr}")
        return int(done.stdout)

    def logged(self) -> str:
        """Return what its processes wrote."""
        return (self.folder / f"{self.label}.log").read_text(errors="replace")

    def _start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        with (self.folder / f"{self.label}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *arguments],
                env=self._environment(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.compat.project.settings",
            # The package from its own folder, the tests from here.
            "PYTHONPATH": os.pathsep.join([str(self.path), str(ROOT)]),
            "COMPAT_LABEL": self.label,
            "COMPAT_CONNECTION": self.connection,
            "COMPAT_HISTORY": str(self.folder),
        }


def export(commit: str, folder: Path) -> None:
    """Write the package of an older version into a folder.

    Raises:
        NoHistory: this is no checkout, or one without that commit.
    """
    archive = subprocess.run(
        ["git", "archive", commit, "mq_django"], cwd=ROOT, capture_output=True, timeout=280, check=False
    )
    if archive.returncode:
        raise NoHistory(f"Commit {commit} is needed (git fetch --unshallow): {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")


def stop(process: "subprocess.Popen[bytes]") -> int:
    """Stop a process as a deploy does, and return its exit code."""
    process.send_signal(signal.SIGTERM)
    return process.wait(60)
