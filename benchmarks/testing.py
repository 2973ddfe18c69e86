"""What the test kit costs the tests of a project."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from benchmarks.contenders import Contender
from benchmarks.trees import ROOT
from benchmarks.trial import Failed, percentile
from benchmarks.workloads import Figures

TESTS = ROOT / "benchmarks" / "ours" / "timed_tests.py"
PLUGIN = "mq_django.testing.plugin"

#: What the figures begin with.
TEST = "test "
#: What is measured of each test, and how it is called in the documentation.
ROWS: Mapping[str, str] = {
    "hook of an empty test": "the plugin, in a test that publishes nothing",
    "without the plugin": "an empty test without the plugin",
    "empty": "an empty test with the plugin",
    "fixture": "an empty test with the fixture `mq`",
    "message": "a test with `mq` that publishes a message and calls `run()`",
    "run": "`run()`, a message in batches of 1,000",
}
#: The figures that have a bound.
HOOK_P95 = f"{TEST}hook of an empty test p95 ms"
FIXTURE_P95, MESSAGE_P95 = f"{TEST}fixture p95 ms", f"{TEST}message p95 ms"


def costs(_: Contender) -> Figures:
    """Run tests with the plugin, and empty ones without it.

    Raises:
        Failed: pytest is not installed, or a test has failed.
    """
    if not find_spec("pytest_django"):
        raise Failed("tests could not be measured: pytest-django is not installed")
    took = _seconds("-p", PLUGIN)
    empty: dict[bool, list[float]] = {False: [], True: []}
    for has_plugin in (False, True, True, False):
        empty[has_plugin] += _seconds("-k", "test_empty", *(("-p", PLUGIN) if has_plugin else ()))["test_empty"]
    found = {
        "hook of an empty test": took["hook of an empty test"],
        "without the plugin": empty[False],
        "empty": empty[True],
        "fixture": took["test_fixture"],
        "message": took["test_message"],
        "run": took["run"],
    }
    return {
        f"{TEST}{name} {what} ms": value * 1000
        for name, values in found.items()
        for what, value in (("p50", statistics.median(values)), ("p95", percentile(values, 95)))
    }


def _seconds(*options: str) -> Mapping[str, Sequence[float]]:
    """Return how long the tests took, by kind."""
    # Not the environment of a run of tests that measures this.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "MQ_"))}
    with tempfile.TemporaryDirectory(prefix="mq-bench-") as folder:
        report, settings = Path(folder, "report.json"), Path(folder, "pytest.ini")
        settings.write_text("[pytest]\n", encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-c", str(settings), "--rootdir", str(ROOT)]
        command += ["-p", "no:cacheprovider", "-p", "pytest_django.plugin", "-p", "benchmarks.ours.timed_tests"]
        done = subprocess.run(
            [*command, *options, str(TESTS)],
            cwd=ROOT,
            env={
                **inherited,
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                "DJANGO_SETTINGS_MODULE": "benchmarks.ours.settings",
                # No test connects to it.
                "BENCH_REDIS_URL": "redis://127.0.0.1:1",
                "BENCH_REPORT": str(report),
            },
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if done.returncode:
            raise Failed(f"tests could not be measured: {done.stdout[-1000:]}{done.stderr[-1000:]}")
        found: Mapping[str, Sequence[float]] = json.loads(report.read_text(encoding="utf-8"))
        return found
