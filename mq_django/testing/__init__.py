"""Tools for the tests of a project.

Importing the package imports no other module. Each public name is imported when it is first used.
"""

from importlib import import_module
from typing import Any

_PUBLIC = {
    "MQ": "mq_django.testing.kit",
    "MQTestMixin": "mq_django.testing.mixin",
    "PrivateServer": "mq_django.transport.private_server",
    "delivery": "mq_django.testing.factories",
    "including": "mq_django.testing.criteria",
    "message": "mq_django.testing.factories",
}

__all__ = ["MQ", "MQTestMixin", "PrivateServer", "delivery", "including", "message"]


def __getattr__(name: str) -> Any:
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
