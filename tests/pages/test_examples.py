"""The examples in docs/reference/ and docs/howto/, run as tests of a project."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.optional import needs_croniter
from tests.shell import ROOT, shell_environment

DOCS = ROOT / "docs"
HERE = Path(__file__).parent


@needs_croniter
@pytest.mark.parametrize("folder", ["reference", "howto"])
def test_each_example_runs(tmp_path, folder):
    project = shutil.copytree(HERE / "project", tmp_path / "project")
    environment = shell_environment(DJANGO_SETTINGS_MODULE="settings", FOLDER=str(DOCS / folder))
    command = [sys.executable, "-m", "pytest", "test_examples.py", "-rA", "-W", "error", "-p", "no:cacheprovider"]
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout
    with_examples = {
        path.stem for path in (DOCS / folder).glob("*.md") if "\n```python\n" in path.read_text(encoding="utf-8")
    }
    assert set(re.findall(r"^PASSED .*\[([\w-]+)\]$", done.stdout, re.MULTILINE)) == with_examples
