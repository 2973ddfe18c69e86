"""The examples of the pages in docs/, run as tests of a project."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.optional import needs_croniter, needs_opentelemetry, needs_prometheus, needs_sentry
from tests.pages.boxes import DOCS, run_here
from tests.shell import ran, shell_environment

HERE = Path(__file__).parent


@needs_croniter
@needs_opentelemetry
@needs_prometheus
@needs_sentry
@pytest.mark.timeout(900)
def test_each_example_runs(tmp_path):
    """One process runs all pages: to start one takes longer than the examples of most."""
    project = shutil.copytree(HERE / "project", tmp_path / "project")
    expected = run_here()
    environment = shell_environment(DJANGO_SETTINGS_MODULE="settings", DOCS=str(DOCS), PAGES=" ".join(expected))
    options = ["-rA", "--tb=short", "-W", "error", "-p", "no:cacheprovider"]
    done = ran([sys.executable, "-m", "pytest", "test_examples.py", *options], cwd=project, env=environment)
    assert sorted(re.findall(r"^PASSED .*\[([\w/-]+)\]$", done.stdout, re.MULTILINE)) == sorted(expected)
