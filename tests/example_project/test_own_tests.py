"""The project's own tests pass, run as its developers run them; and the README shows tests as they are."""

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.shell import ROOT, ran, shell_environment

PROJECT = ROOT / "example_project"
README = (PROJECT / "README.md").read_text(encoding="utf-8")
FILES = sorted((PROJECT / "tests").glob("test_*.py"))
#: Files and the tests that are copied from them.
EXAMPLES = re.findall(r"<!-- from (\S+\.py) -->\n```python\n(.*?)```", README, re.S)


def run(*arguments: str, folder: Path) -> str:
    """Run a Python program as in a shell."""
    # Intervals in place of cron expressions, which need a package.
    often = {} if find_spec("croniter") else {"EXAMPLE_PROJECT_OFTEN_SECONDS": "86400"}
    done = ran([sys.executable, *arguments], env=shell_environment(EXAMPLE_PROJECT_DIR=str(folder), **often))
    return done.stdout + done.stderr


def test_they_pass_and_touch_neither_the_database_nor_the_queues(tmp_path: Path) -> None:
    output = run("-m", "pytest", "example_project", "-rA", "-p", "no:cacheprovider", folder=tmp_path)
    passed = set(re.findall(r"^PASSED (\S+)::", output, re.MULTILINE))
    assert {Path(name).name.partition("::")[0] for name in passed} == {path.name for path in FILES}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_those_of_djangos_test_case_run_without_pytest(tmp_path: Path) -> None:
    # Some of them: pytest runs all.
    output = run("example_project/manage.py", "test", "example_project", "-k", "DepartmentTests", folder=tmp_path)
    assert re.search(r"^Ran [1-9]\d* tests", output, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []


def test_the_readme_shows_tests_as_they_are(subtests):
    assert len(EXAMPLES) == 3
    for path, example in EXAMPLES:
        with subtests.test(path=path, example=example):
            text = (PROJECT / path).read_text(encoding="utf-8")
            assert example.startswith("def test_")
            assert f"\n{example.strip()}\n" in text
