"""Queues and topics by their names, made when they are first used."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from mq_django.conf import Config, get_config
from mq_django.errors import UnknownQueue

Made = TypeVar("Made")


class ByName(Mapping[str, Made]):
    """A mapping of configured names to objects. Each is made at its first use, and again after settings change."""

    def __init__(self, configured: Callable[[Config], Mapping[str, Any]], make: Callable[[Config, str], Made]) -> None:
        self._configured, self._make = configured, make
        self._made: tuple[Config | None, dict[str, Made]] = (None, {})

    def __getitem__(self, name: str) -> Made:
        config, (made_for, made) = get_config(), self._made
        if made_for is not config:  # settings may change in tests
            self._made = (config, made := {})
        try:
            return made[name]
        except (KeyError, TypeError):
            made[name] = found = self._make(config, name)
            return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._configured(get_config()))

    def __len__(self) -> int:
        return len(self._configured(get_config()))

    def __contains__(self, name: object) -> bool:
        return self.get(name) is not None

    def get(self, name: Any, default: Any = None) -> Any:
        """Return the queue or topic of a name, or the default. UnknownQueue is no KeyError, which Mapping expects."""
        try:
            return self[name]
        except UnknownQueue:
            return default
