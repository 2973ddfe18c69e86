"""The pytest plugin: the fixture `mq`, and the cleaning between tests.

It imports nothing of Django when it is loaded, so it works with every order of plugins and settings.
"""

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

#: Fixtures of pytest-django that make the databases of the tests available.
_DATABASES = ("db", "transactional_db", "django_db_reset_sequences", "live_server")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Delete what a test has sent to its server, with or without the fixture."""
    server = sys.modules.get("mq_django.transport.test_server")
    if server is not None and server.was_used():
        import_module(".test_state", __package__).clean()


@pytest.fixture
def mq(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Give a test its queues, as a `mq_django.testing.MQ`."""
    for name in _DATABASES:
        # First, so that the kit knows the database.
        if name in request.fixturenames:
            request.getfixturevalue(name)
    with import_module(".kit", __package__).MQ() as kit:
        yield kit
