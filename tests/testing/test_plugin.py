"""The pytest plugin, in projects of one file."""

import os
import shutil
from pathlib import Path

import pytest

from mq_django.errors import TestKitError
from mq_django.testing import MQ
from tests.shell import OURS

PROJECT = Path(__file__).parent / "project"


@pytest.fixture
def site(pytester, monkeypatch, environment):
    """A project in pytester's folder, with the environment of a shell."""
    for name in list(os.environ):
        if name.startswith(OURS):
            monkeypatch.delenv(name)
    for name in ("CONFIGURED_REDIS", "DJANGO_SETTINGS_MODULE", "PYTHONPATH"):
        monkeypatch.setenv(name, environment[name])
    shutil.copytree(PROJECT / "shop", pytester.path / "shop")
    shutil.copy(PROJECT / "settings.py", pytester.path)
    pytester.makeini("[pytest]")
    return pytester


@pytest.mark.versions
def test_its_cleaning_and_its_hint(site):
    site.makepyfile(
        test_hint="""
        import pytest
        from shop.handlers import emails

        @pytest.mark.django_db
        def test_it(mq):
            emails.publish("welcome", {})
            assert mq.published("emails", "welcome")
        """,
        test_scopes="""
        import pytest
        from shop.handlers import emails

        @pytest.fixture(scope="module", autouse=True)
        def published():
            emails.publish("welcome", {"email": "ann@shop.example"})

        def test_first(mq):
            assert mq.run("emails") == []

        def test_second(mq):
            assert mq.run("emails") == []
        """,
    )
    output = site.runpytest_subprocess("-p", "no:randomly")
    # What a module has published once is gone after its first test.
    output.assert_outcomes(passed=2, failed=1)
    output.stdout.fnmatch_lines(["*1 message waits for the commit: call mq.commit()*"])


def test_outside_of_tests_the_kit_refuses_to_start():
    # Our own tests connect to the configured server, so that they are none for the kit.
    with pytest.raises(TestKitError, match=r"mq_django\.testing works in tests only"), MQ():
        pass


def test_a_project_without_django_may_have_the_plugin(site, monkeypatch):
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE")
    site.makepyfile("def test_it(): pass")
    site.runpytest_subprocess("-p", "no:django").assert_outcomes(passed=1)
