"""Trees of processes that know the tasks of `tests.workflows.flowing`."""

import pytest

from tests.consumers.conftest import history, trees  # noqa: F401 - fixtures

APP = "tests.workflows.flowing"


@pytest.fixture(autouse=True)
def _tasks(monkeypatch, mq_settings):
    monkeypatch.setenv("MQ_TEST_APPS", APP)
    from tests.workflows.flowing import tasks  # noqa: PLC0415 - needs settings

    return tasks


@pytest.fixture
def tasks(_tasks):
    return _tasks
