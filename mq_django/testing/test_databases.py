"""The databases of a test run, for the consumers that a test starts.

In test mode a consumer must not run handlers on the databases that the settings name, but on those that the test runner
has created. Their names are passed on in the environment.
"""

import json
import os

from django.db import connections

from mq_django.errors import ConfigurationError

#: The environment variable with the names of the databases by alias, as JSON.
INHERITED = "MQ_DJANGO_TEST_DATABASES"

NO_DATABASE = (
    "This is a test run, and no database of tests is known: a consumer would run its handlers on the database of the "
    "settings. Start it from a test that uses the fixture mq or MQTestMixin, and a database."
)
IN_MEMORY = (
    "The test database {alias!r} is in the memory of the process that runs the tests, so a consumer cannot open it. "
    'Name a file in DATABASES[{alias!r}]["TEST"]["NAME"], or handle messages in the test with mq.run().'
)

IN_TRANSACTION = (
    "This test is in a transaction, whose rows a consumer cannot see: use TransactionTestCase or "
    "pytest.mark.django_db(transaction=True), or handle messages with mq.run()."
)

#: Alias -> name of the database in the settings.
_configured: dict[str, str] = {}


def note_configured() -> None:
    """Note which databases the settings name, before a test runner replaces them by its own."""
    _configured.update({alias: str(options["NAME"]) for alias, options in connections.settings.items()})


def share() -> dict[str, str]:
    """Pass the databases of this test run on to the programs that its tests start, and return their names by alias.

    Only the process that runs the tests has any: its runner has renamed those of the settings.
    """
    found = {alias: str(options["NAME"]) for alias, options in connections.settings.items()}
    # One that was not there at the start may be any.
    created = {alias: name for alias, name in found.items() if name != _configured.get(alias, name)}
    if created:
        os.environ[INHERITED] = json.dumps(created)
    return created


def use() -> None:
    """Use the databases of the test run that has started this process. Those that it has not created are unknown here.

    Raises:
        ConfigurationError: there is none, or one is in the memory of another process.
    """
    if any(connection.in_atomic_block for connection in connections.all(initialized_only=True)):
        raise ConfigurationError(IN_TRANSACTION)
    created = share()
    names = created or json.loads(os.environ.get(INHERITED, "{}"))
    if not names:
        raise ConfigurationError(NO_DATABASE)
    for alias, name in names.items():
        if ":memory:" in name or "mode=memory" in name:
            raise ConfigurationError(IN_MEMORY.format(alias=alias))
    if created:
        # This process runs the tests. Its consumers are processes of their own, which switch.
        return
    connections.close_all()
    for alias, options in list(connections.settings.items()):
        if alias in names:
            options["NAME"] = names[alias]
        else:
            del connections.settings[alias]
