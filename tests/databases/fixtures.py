"""Databases of each kind, which Django knows only while a test uses them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections

from tests.databases.database_servers import KINDS


@contextmanager
def known(alias: str, options: dict[str, Any]) -> Iterator[str]:
    """Add a database to those that Django knows, and remove it at the end: other tests list them."""
    connections.settings[alias] = connections.configure_settings({"default": {}, alias: options})[alias]
    try:
        yield alias
    finally:
        connections[alias].close()
        del connections[alias], connections.settings[alias]


class Databases:
    """The databases of a process that runs tests. A server is started for the first test that needs its kind."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._options: dict[str, dict[str, Any]] = {}
        self._migrated: set[str] = set()

    def options(self, kind: str) -> dict[str, Any]:
        """Return the settings of a database of this kind."""
        if kind not in self._options:
            self._options[kind] = self._stack.enter_context(KINDS[kind]())
        return dict(self._options[kind])

    def use(self, kind: str, options: dict[str, Any]) -> None:
        """Use other settings for the database of this kind, which is added later."""
        self._options[kind] = options

    @contextmanager
    def added(self, alias: str, kind: str) -> Iterator[str]:
        """Add a database with our tables, as known() does."""
        with known(alias, self.options(kind)):
            if kind not in self._migrated:
                call_command("migrate", "mq_django", database=alias, verbosity=0)
                self._migrated.add(kind)
            yield alias


@pytest.fixture(scope="session")
def databases(django_db_setup: None) -> Iterator[Databases]:
    # After Django's own, which code that looks at all databases finds, too.
    with ExitStack() as stack:
        yield Databases(stack)
