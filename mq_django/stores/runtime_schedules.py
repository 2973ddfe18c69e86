"""The schedules of a queue that are created at run time: their definitions are in Redis, beside their states."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from mq_django.conf import QueueConfig
from mq_django.core.jsontext import loads
from mq_django.core.numbers import LAST_MS, whole
from mq_django.core.redaction import redact_text
from mq_django.core.schedule_options import read_definition
from mq_django.core.schedules import Scheduled
from mq_django.core.visible import line, truncate
from mq_django.errors import MQError
from mq_django.stores.schedule_state import MAX_WHO, Schedules, named
from mq_django.transport.scripts import Argument
from mq_django.transport.sessions import Wire

#: The fields of a schedule.
KINDS = ("definition", "created", "changed", "paused", "last", "fired", "skips")
#: The most schedules of a queue, if each has all fields.
MAX_SCHEDULES = 10_000

#: The result of creating or changing a schedule.
Defined = Literal["DEFINED", "EXISTS", "FULL", "MISSING", "CHANGED"]


class Parsed(NamedTuple):
    """The schedule of a definition and its options, or the reason why it has none."""

    entry: Scheduled | None
    options: Mapping[str, Any]
    problem: str = ""


class Loaded(NamedTuple):
    """A schedule in Redis, and the time up to which its ticks have fired, in ms since 1970."""

    name: str
    definition: bytes
    last_ms: int
    parse: Callable[[str, bytes], Parsed]

    @property
    def parsed(self) -> Parsed:
        """Return what its definition says. For one that was not read before, this takes a while."""
        return self.parse(self.name, self.definition)


class RuntimeSchedules(Schedules):
    """The schedules of one queue or partition that are created at run time."""

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        super().__init__(config, wire)
        self._states = config.keys.runtime_schedules
        #: Name -> its definition and that parsed, so that only changed ones are parsed again.
        self._parsed: dict[str, tuple[bytes, Parsed]] = {}

    def load(self) -> tuple[int, list[Loaded]]:
        """Return now in ms since 1970, and all definitions. One that another program wrote starts now."""
        now_ms, flat = self._run("schedules_load", [])
        states = states_of(flat)
        found = {name: state["definition"] for name, state in states.items() if "definition" in state}
        self._parsed = {name: known for name, known in self._parsed.items() if found.get(name) == known[0]}
        lasts = {name: whole(states[name].get("last"), LAST_MS) for name in found}
        return now_ms, [
            Loaded(name, found[name], now_ms if last is None else last, self._parse) for name, last in lasts.items()
        ]

    def define(
        self, name: str, definition: bytes, *, before: bytes, who: str, anew: bool = False, paused: bool = False
    ) -> Defined:
        """Create a schedule, or change it if its definition is still `before`.

        Args:
            before: the definition that it replaces; empty to create the schedule.
            who: the user.
            anew: earlier ticks of the new definition never fire.
            paused: it is created paused.
        """
        args: list[Argument] = [named("", name), definition, before, truncate(line(who), MAX_WHO)]
        args += ["1" if anew else "", "1" if paused else "", MAX_SCHEDULES * len(KINDS), self._keys.wake]
        reply: Defined = self._run("schedules_define", args).decode()
        return reply

    def delete(self, name: str) -> bool:
        """Delete a schedule, and return whether it existed. It never fires again."""
        return bool(self._run("schedules_delete", [named("", name), self._keys.wake]) == b"DELETED")

    def _required(self, name: str) -> bytes:
        return named("definition:", name)

    def _parse(self, name: str, definition: bytes) -> Parsed:
        known = self._parsed.get(name)
        if known is None or known[0] != definition:
            known = self._parsed[name] = definition, parse(self._config, name, definition)
        return known[1]


def states_of(flat: Sequence[bytes]) -> dict[str, dict[str, bytes]]:
    """Return the fields of a HASH of states by the names of schedules, then by kind."""
    states: dict[str, dict[str, bytes]] = {}
    for field, value in zip(flat[::2], flat[1::2], strict=True):
        kind, _, name = field.decode(errors="surrogateescape").partition(":")
        states.setdefault(name, {})[kind] = value
    return states


def parse(config: QueueConfig, name: str, definition: bytes) -> Parsed:
    """Return the schedule of a definition that anybody may have written."""
    try:
        entry = read_definition(config.public_name, name, definition)
        entry.publication(config)
        return Parsed(entry, loads(definition))
    except (MQError, TypeError, RecursionError) as error:
        return Parsed(None, {}, truncate(redact_text(line(str(error))), 500))


def stamp_of(state: Mapping[str, bytes], kind: str) -> tuple[int | None, str]:
    """Return when something was done, in ms since 1970, and by whom."""
    moment, _, who = state.get(kind, b"")[:1000].decode(errors="replace").partition(" ")
    return whole(moment, LAST_MS), line(who)
