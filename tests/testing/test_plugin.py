"""The pytest plugin outside of what it is for. In a project: `project/`."""

import os

import pytest

from mq_django.errors import TestKitError
from mq_django.testing import MQ
from tests.shell import OURS, ROOT


def test_outside_of_tests_the_kit_refuses_to_start():
    # Our own tests connect to the configured server, so that they are none for the kit.
    with pytest.raises(TestKitError, match=r"mq_django\.testing works in tests only"), MQ():
        pass


def test_a_project_without_django_may_have_the_plugin(pytester, monkeypatch):
    for name in [name for name in os.environ if name.startswith(OURS)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeini("[pytest]")
    pytester.makepyfile("def test_it(): pass")
    pytester.runpytest_subprocess("-p", "no:django").assert_outcomes(passed=1)
