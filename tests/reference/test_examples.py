"""The examples in docs/reference/, run as tests of a project."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.optional import needs_croniter
from tests.shell import ROOT, shell_environment

PAGES = ROOT / "docs" / "reference"
HERE = Path(__file__).parent


@needs_croniter
def test_each_example_runs(tmp_path):
    project = shutil.copytree(HERE / "project", tmp_path / "project")
    environment = shell_environment(DJANGO_SETTINGS_MODULE="settings", REFERENCE=str(PAGES))
    command = [sys.executable, "-m", "pytest", "test_examples.py", "-rA", "-W", "error", "-p", "no:cacheprovider"]
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout
    with_examples = {path.stem for path in PAGES.glob("*.md") if "\n```python\n" in path.read_text(encoding="utf-8")}
    assert set(re.findall(r"^PASSED .*\[(\w+)\]$", done.stdout, re.MULTILINE)) == with_examples
