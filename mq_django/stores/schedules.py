"""The state of schedules in Redis, and those that are created at run time."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from mq_django import registry
from mq_django.conf import QueueConfig, default_time_zone, get_config
from mq_django.core.jsontext import LAST_MS, loads, whole
from mq_django.core.message_format import encode_body
from mq_django.core.publication import Publication
from mq_django.core.redaction import redact_text
from mq_django.core.schedules import Scheduled, overridden, read_definition
from mq_django.core.texts import line, truncate
from mq_django.errors import MQError, QueueFull
from mq_django.stores.counters import slot
from mq_django.stores.partition_transport import transport_of
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Transport

# The state of schedules in Redis: the last tick, pauses, and skipped ticks.

#: The most characters of the user who paused or changed a schedule.
MAX_WHO = 150
#: The most ticks that a schedule may skip at a time.
MAX_SKIPS = 20

#: The fields of a schedule in code or settings.
OWN_KINDS = ("override", "overridden", "paused", "last", "fired", "recent", "skips")

#: The results of skipping a tick, and of not skipping it after all.
Skipping = Literal["SKIPPED", "WAS_SKIPPED", "PASSED", "FULL", "CHANGED"]
Unskipping = Literal["FIRES", "PASSED", "MISSING"]
#: The result of overriding the times of a schedule.
Overriding = Literal["DONE", "CHANGED", "DUE"]


class Firing(StrEnum):
    """What became of a tick."""

    FIRED = "fired"
    #: Another process fired it.
    DONE = "done"
    PAUSED = "paused"
    SKIPPED = "skipped"
    #: It is not due yet, by the clock of Redis.
    EARLY = "early"
    #: It was created at run time, and has been changed or deleted; or its times were overridden, or are not any more.
    CHANGED = "changed"


def named(kind: str, name: str) -> bytes:
    """Return the field of a schedule. Names that others wrote may have bytes that are not UTF-8."""
    return f"{kind}{name}".encode(errors="surrogateescape")


class Fired(NamedTuple):
    """The result of firing a tick."""

    firing: Firing
    #: By the clock of Redis, in ms since 1970.
    now_ms: int
    #: The id of the published message, if the tick fired.
    made: Publication


class Parsed(NamedTuple):
    """The schedule of a definition or override and its options, or the reason why it has none."""

    entry: Scheduled | None
    options: Mapping[str, Any]
    problem: str = ""


class Loaded(NamedTuple):
    """A schedule, what Redis says of it, and the time up to which its ticks have fired, in ms since 1970."""

    name: str
    #: Its definition; of one in code or settings what overrides its times, or nothing.
    definition: bytes
    last_ms: int
    parse: Callable[[str, bytes], Parsed]

    @property
    def parsed(self) -> Parsed:
        """Return what its definition says. For one that was not read before, this takes a while."""
        return self.parse(self.name, self.definition)


def scheduled() -> list[Scheduled]:
    """Return all schedules of the project. One in the settings replaces one in code with the same name."""
    return list({**registry.schedules(), **get_config().schedules}.values())


def home_of(config: QueueConfig, entry: Scheduled) -> QueueConfig:
    """Return where the state of a schedule is, and its messages: its queue, or a partition.

    It is the partition of the key of its messages, whose order and limits are there; without a key that of its name.
    """
    return config.partition_for(key=entry.key, unique=entry.name)


class Schedules:
    """The schedules of one queue or partition that are in code or settings."""

    def __init__(self, config: QueueConfig, transport: Transport) -> None:
        self._config = config
        self._keys = config.keys
        self._transport = transport_of(config, transport)
        #: The HASH of their states.
        self._states = config.keys.schedules

    def read_states(self, entries: Sequence[Scheduled]) -> tuple[int, list[Loaded]]:
        """Return now in ms since 1970, and what Redis says of each schedule. A new schedule starts now."""
        now_ms, flat = self._run("schedules_read", [named("", entry.name) for entry in entries])
        found = states_of(flat)
        states = [(entry, found[entry.name]) for entry in entries]
        return now_ms, [
            Loaded(entry.name, state.get("override", b""), _last_ms(state, now_ms), _overridden(entry))
            for entry, state in states
        ]

    def fire(self, entry: Scheduled, tick_ms: int, *, is_first: bool = True) -> Fired:
        """Publish the message of a tick, unless another process has.

        Args:
            is_first: no earlier tick was missed. Else, if this one is skipped, an earlier one may still fire.

        Raises:
            InvalidMessage: it cannot be published.
            QueueFull: the queue is at its MAX_DEPTH. The tick stays due.
        """
        made = entry.publication(self._config, tick_ms)
        word, now_ms = self._fire(entry, tick_ms, made, is_first=is_first)
        return Fired(Firing(word.decode().lower()), now_ms, made)

    def fire_last(self, entry: Scheduled, first_ms: int, now_ms: int) -> Fired:
        """Fire the last tick up to now that is not skipped: its message may still be in time. See fire().

        Args:
            entry: the schedule.
            first_ms: its first tick that was missed, in ms since 1970.
            now_ms: now.
        """
        for tick_ms in entry.due_ms(first_ms, max(first_ms, now_ms), default_time_zone()):
            fired = self.fire(entry, tick_ms, is_first=tick_ms == first_ms)
            if fired.firing is not Firing.SKIPPED:
                break
        return fired

    def fire_now(self, entry: Scheduled) -> Publication | None:
        """Publish the message of a schedule now, even if it is paused, and return it. Its ticks are not changed.

        None: it has been changed or deleted.

        Raises:
            InvalidMessage: it cannot be published.
            QueueFull: the queue is at its MAX_DEPTH.
        """
        made = entry.publication(self._config)
        word, _now_ms = self._fire(entry, "", made)
        return None if word == b"CHANGED" else made

    def pause(self, name: str, *, who: str = "") -> bool:
        """Pause a schedule: its ticks publish no message. Return whether it was running before."""
        args: list[Argument] = [named("", name), "1", truncate(line(who), MAX_WHO), self._required(name)]
        return bool(self._run("schedules_pause", args) == b"CHANGED")

    def resume(self, name: str) -> bool:
        """Resume a schedule from the next tick on, and return whether it was paused. The pause's ticks never fire."""
        return bool(self._run("schedules_pause", [named("", name), "0"]) == b"CHANGED")

    def skip(self, entry: Scheduled, tick_ms: int, *, who: str = "") -> Skipping:
        """Let a later tick of a schedule pass without a message."""
        args: list[Argument] = [named("", entry.name), tick_ms, MAX_SKIPS]
        args += [truncate(line(who), MAX_WHO), entry.definition or b""]
        reply: Skipping = self._run("schedules_skip", args).decode()
        return reply

    def unskip(self, name: str, tick_ms: int) -> Unskipping:
        """Let a tick fire that was to be skipped."""
        reply: Unskipping = self._run("schedules_skip", [named("", name), tick_ms, 0]).decode()
        return reply

    def override(
        self, name: str, override: bytes, *, before: bytes, last_ms: int | None, due_ms: int | None, who: str
    ) -> Overriding:
        """Override the times of a schedule in code or settings from its next tick on.

        Args:
            name: its name.
            override: the times; empty: the times of the code count again.
            before: what overrode them before; empty: nothing did.
            last_ms: up to when its ticks have fired, as it was read.
            due_ms: its next tick after that. If that is due, nothing is written: it has to fire before.
            who: the user.
        """
        args: list[Argument] = [named("", name), override, before, last_ms or "", due_ms or ""]
        args += [truncate(line(who), MAX_WHO), self._keys.wake]
        reply: Overriding = self._run("schedules_override", args).decode()
        return reply

    def forget(self, name: str) -> None:
        """Delete the state of a schedule. If it is still in code or settings, it starts anew."""
        fields = [named(f"{kind}:", name) for kind in OWN_KINDS]
        self._transport.ask(("HDEL", self._states, *fields))

    def _required(self, name: str) -> bytes:
        """Return a field that a schedule has if it exists; empty if that does not depend on Redis."""
        return b""

    def _run(self, script: str, args: list[Argument]) -> Any:
        return self._transport.run(script, [self._states], args)

    def _fire(self, entry: Scheduled, tick: Argument, made: Publication, *, is_first: bool = True) -> Any:
        (message, data_text, _), keys, where = made, self._keys, slot(self._keys)
        body = encode_body(message, data_text, member=message.id)
        args: list[Argument] = [entry.name, tick, where.minute, where.hour, keys.group, message.id, message.name, body]
        args += [self._config.max_depth or 0, *reversed(entry.guard)]
        if not is_first:
            args.append("1")
        key_names = [self._states, keys.ready, keys.priority, keys.waiting, keys.control, *where.keys, keys.front]
        reply = self._transport.run("schedules_fire", key_names, args)
        if reply[0] == b"FULL":
            raise QueueFull(f"Queue {self._config.name!r} is at its MAX_DEPTH of {self._config.max_depth}")
        return reply


# The schedules of a queue that are created at run time: their definitions are in Redis, beside their states.

#: The fields of a schedule.
KINDS = ("definition", "created", "changed", "paused", "last", "fired", "recent", "skips")
#: The most schedules of a queue, if each has all fields.
MAX_SCHEDULES = 10_000

#: The result of creating or changing a schedule.
Defined = Literal["DEFINED", "EXISTS", "FULL", "MISSING", "CHANGED"]


class RuntimeSchedules(Schedules):
    """The schedules of one queue or partition that are created at run time."""

    def __init__(self, config: QueueConfig, transport: Transport) -> None:
        super().__init__(config, transport)
        self._states = config.keys.runtime_schedules
        #: Name -> its definition and that parsed, so that only changed ones are parsed again.
        self._parsed: dict[str, tuple[bytes, Parsed]] = {}

    def count_command(self) -> Command:
        """Return the command that asks for the number of fields: 0 if there are no schedules."""
        return ("HLEN", self._states)

    def load(self) -> tuple[int, list[Loaded]]:
        """Return now in ms since 1970, and all definitions. One that another program wrote starts now."""
        now_ms, flat = self._run("schedules_read", [])
        states = states_of(flat)
        found = {name: state["definition"] for name, state in states.items() if "definition" in state}
        self._parsed = {name: known for name, known in self._parsed.items() if found.get(name) == known[0]}
        return now_ms, [
            Loaded(name, definition, _last_ms(states[name], now_ms), self._parse) for name, definition in found.items()
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
    for key, value in zip(flat[::2], flat[1::2], strict=True):
        kind, _, name = key.decode(errors="surrogateescape").partition(":")
        states.setdefault(name, {})[kind] = value
    return states


def _last_ms(state: Mapping[str, bytes], now_ms: int) -> int:
    # An invalid time counts as missing: the schedule starts now.
    last = whole(state.get("last"), LAST_MS)
    return now_ms if last is None else last


def _overridden(entry: Scheduled) -> Callable[[str, bytes], Parsed]:
    return lambda _name, override: parse_override(entry, override)


def parse_override(entry: Scheduled, override: bytes) -> Parsed:
    """Return a schedule in code or settings with the times that anybody may have written."""
    try:
        return Parsed(overridden(entry, override) if override else entry, {})
    except (MQError, TypeError, RecursionError) as error:
        return Parsed(None, {}, truncate(redact_text(f"What overrides it is not valid: {line(str(error))}"), 500))


def parse(config: QueueConfig, name: str, definition: bytes) -> Parsed:
    """Return the schedule of a definition that anybody may have written."""
    try:
        entry = read_definition(config.public_name, name, definition)
        entry.publication(config)
        return Parsed(entry, loads(definition))
    except (MQError, TypeError, RecursionError) as error:
        return Parsed(None, {}, truncate(redact_text(line(str(error))), 500))
