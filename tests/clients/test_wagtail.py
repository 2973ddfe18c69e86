"""The tasks of Wagtail run on our queues, and under the test kit: the tests of a small site pass."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.optional import needs_wagtail
from tests.shell import ran, shell_environment

pytestmark = [needs_wagtail, pytest.mark.slow]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The folder of a site with Wagtail."""
    return Path(shutil.copytree(Path(__file__).parent / "wagtail_project", tmp_path / "site"))


def run(*arguments: str, site: Path) -> str:
    """Run a Python module in the folder of the site."""
    environment = shell_environment(DJANGO_SETTINGS_MODULE="settings")
    done = ran([sys.executable, "-m", *arguments], cwd=site, env=environment)
    return done.stdout


def test_the_tests_of_a_site_with_wagtail_pass(site: Path) -> None:
    # Its first migration depends on the version of Wagtail.
    run("django", "makemigrations", "articles", site=site)
    output = run("pytest", "-rA", "-p", "no:cacheprovider", site=site)
    assert len(re.findall(r"^PASSED test_articles\.py::", output, re.MULTILINE)) == 3


def test_the_settings_of_the_site_pass_the_checks(site: Path) -> None:
    run("django", "check", "--tag", "mq_django", "--fail-level", "WARNING", site=site)
