"""What a run has found, and where it ran: kept as JSON, so that reports can be made again."""

import json
import os
import platform
import re
import shutil
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Self

PACKAGES = {"Django": "Django", "redis": "redis-py", "hiredis": "hiredis", "orjson": "orjson"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A run's figures by contender and name, a value a round, and what went wrong."""

    machine: Mapping[str, str]
    seconds: float
    contenders: Sequence[str]
    values: Mapping[str, Mapping[str, Sequence[float]]]
    failures: Sequence[str]

    def medians(self) -> dict[str, dict[str, float]]:
        """Return the median of every figure, by contender."""
        return {
            who: {name: statistics.median(values) for name, values in found.items()}
            for who, found in self.values.items()
        }

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what was saved."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


def machine(redis_version: str) -> dict[str, str]:
    """Return where and with what is measured, and how busy the machine was before."""
    cpu = re.search(r"model name\s*: (.*)", _text("/proc/cpuinfo"))
    found = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cores": f"{os.cpu_count()} of {cpu[1] if cpu else platform.processor() or 'unknown make'}",
        "load before": f"{os.getloadavg()[0]:.1f}",
        "system": platform.platform(terse=True),
        "Python": platform.python_version(),
        "Redis": redis_version,
    }
    return {**found, **_versions()}


def _versions() -> dict[str, str]:
    found = {}
    if node := shutil.which("node"):
        found["node"] = subprocess.run([node, "--version"], check=False, capture_output=True, text=True).stdout.strip()
    for package, name in PACKAGES.items():
        try:
            found[name] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
