"""The examples of the pages in docs/, run as tests of a project."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.optional import needs_croniter, needs_opentelemetry, needs_prometheus, needs_sentry
from tests.pages.boxes import DOCS, run_here
from tests.shell import shell_environment

HERE = Path(__file__).parent
FOLDERS = ["", "howto", "reference"]


def folder_of(page: str) -> str:
    return page.rpartition("/")[0]


@needs_croniter
@needs_opentelemetry
@needs_prometheus
@needs_sentry
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder or "docs")
def test_each_example_runs(tmp_path, folder):
    project = shutil.copytree(HERE / "project", tmp_path / "project")
    expected = {page for page in run_here() if folder_of(page) == folder}
    environment = shell_environment(DJANGO_SETTINGS_MODULE="settings", DOCS=str(DOCS), PAGES=" ".join(sorted(expected)))
    options = ["-rA", "--tb=short", "-W", "error", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "test_examples.py", *options],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert set(re.findall(r"^PASSED .*\[([\w/-]+)\]$", done.stdout, re.MULTILINE)) == expected


def test_each_folder_is_run():
    assert {folder_of(page) for page in run_here()} == set(FOLDERS)
