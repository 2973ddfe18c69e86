"""Tools for the tests of a project: the fixture `mq` of pytest (`plugin`), and `MQTestMixin`.

In a test run, no client connects to the servers of the settings: each process has a private one. `kit.MQ` is what a
test uses:

    publish  -> recording: what was published, and on_commit hooks that will (transactions)
    run      -> runs: handle ready messages in the thread of the test, with the parts of a consumer
    advance  -> time_travel: move the time of Redis and of this process
    look     -> looking: queues, dead letters, results, without the redaction of the admin

`idempotence` delivers a message again at each point where a process may die (`faults`), and compares what the two
runs have changed in the database.

The steps of a consumer are called, and not copied: what a test sees is what a consumer does.

Importing the package imports no other module. Each public name is imported when it is first used.
"""

from importlib import import_module
from typing import Any

_PUBLIC = {
    "MQ": "mq_django.testing.kit",
    "MQTestMixin": "mq_django.testing.kit",
    "PrivateServer": "mq_django.transport.private_server",
    "delivery": "mq_django.testing.published",
    "including": "mq_django.testing.published",
    "message": "mq_django.testing.published",
}

__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
