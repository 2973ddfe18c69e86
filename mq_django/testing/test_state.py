"""The databases of a test run, for the consumers that a test starts.

In test mode a consumer must not run handlers on the databases that the settings name, but on those that the test runner
has created. Their names are passed on in the environment.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections

from mq_django.conf import get_config
from mq_django.errors import ConfigurationError
from mq_django.transport import test_server
from mq_django.transport.connections import open_transport
from mq_django.transport.scripts import MOVED_CLOCK, Command
from mq_django.transport.sessions import Transport, reply_or_raise
from mq_django.transport.test_server import key_patterns

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

    Only the process that runs the tests has any: its runner has renamed the databases of the settings.
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


# Take the queues and topics away for a while, and put them back as they were.


@contextmanager
def without_keys() -> Iterator[None]:
    """Let all queues and topics be empty while a block runs. Then they have their messages again."""
    transports = [open_transport("chores", connection) for connection in get_config().connections()]
    saved = [(transport, _dumped(transport)) for transport in transports]
    delete_all()
    try:
        yield
    finally:
        delete_all()
        for transport, commands in saved:
            _send(transport, commands)


def delete_all() -> None:
    """Delete all keys of the queues and topics. The moved time stays."""
    for connection in get_config().connections():
        transport = open_transport("chores", connection)
        _send(transport, [("UNLINK", key) for key in _keys(transport)])


def _dumped(transport: Transport) -> list[Command]:
    """Return the commands that restore the keys of a server as they are now."""
    commands: list[Command] = []
    for key in _keys(transport):
        lifetime, content = transport.pipeline([("PTTL", key), ("DUMP", key)])
        # It may have expired in between.
        if content is not None:
            left_ms = max(0, int(reply_or_raise(lifetime)))
            commands.append(("RESTORE", key, left_ms, reply_or_raise(content), "REPLACE"))
    return commands


def _keys(transport: Transport) -> set[bytes]:
    found: set[bytes] = set()
    for pattern in key_patterns(get_config()):
        cursor: bytes = b"0"
        while cursor:
            cursor, keys = transport.ask(("SCAN", cursor, "MATCH", pattern, "COUNT", 1000))
            found.update(keys)
            cursor = b"" if int(cursor) == 0 else cursor
    return found - {MOVED_CLOCK.encode()}


def _send(transport: Transport, commands: list[Command]) -> None:
    for (reply,) in transport.pipelines([[command] for command in commands]):
        reply_or_raise(reply)


# Delete what a test has written to its server.

#: The most keys deleted by one command.
BATCH = 500


def clean() -> None:
    """Delete all keys of the queues and topics. It costs nothing if this process has sent nothing since the last call.

    Raises:
        ConnectionLost: the server cannot be reached.
    """
    if test_server.was_used():
        delete_keys()


def delete_keys() -> None:
    """Delete all keys of the queues and topics, whichever process has written them."""
    client = test_server.control_client()
    for pattern in ["*"] if test_server.is_private() else test_server.key_patterns(get_config()):
        keys = [key for key in client.scan_iter(match=pattern, count=1000) if key != MOVED_CLOCK.encode()]
        for start in range(0, len(keys), BATCH):
            client.unlink(*keys[start : start + BATCH])
    test_server.forget_use()
