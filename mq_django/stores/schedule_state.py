"""The state of schedules in Redis: the last tick, pauses, and skipped ticks."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from mq_django import registry
from mq_django.conf import QueueConfig, get_config
from mq_django.core.numbers import LAST_MS, whole
from mq_django.core.publication import Publication
from mq_django.core.schedules import Scheduled
from mq_django.core.visible import line, truncate
from mq_django.core.wire import encode_body
from mq_django.errors import QueueFull
from mq_django.stores.counters import slot
from mq_django.stores.partition_wire import wire_of
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument
from mq_django.transport.sessions import Wire, reply_or_raise

#: The most characters of the user who paused or changed a schedule.
MAX_WHO = 150
#: The most ticks that a schedule may skip at a time.
MAX_SKIPS = 20

#: The results of skipping a tick, and of not skipping it after all.
Skipping = Literal["SKIPPED", "WAS_SKIPPED", "PASSED", "FULL", "CHANGED"]
Unskipping = Literal["FIRES", "PASSED", "MISSING"]


class Firing(StrEnum):
    """What became of a tick."""

    FIRED = "fired"
    #: Another process fired it.
    DONE = "done"
    PAUSED = "paused"
    SKIPPED = "skipped"
    #: It is not due yet, by the clock of Redis.
    EARLY = "early"
    #: It was created at run time, and has been changed or deleted.
    CHANGED = "changed"


def named(kind: str, name: str) -> bytes:
    """Return the field of a schedule. Names that others wrote may have bytes that are not UTF-8."""
    return f"{kind}{name}".encode(errors="surrogateescape")


class Fired(NamedTuple):
    """The result of firing a tick."""

    firing: Firing
    #: By the clock of Redis, in ms since 1970.
    now_ms: int
    #: What was published, if the tick fired.
    made: Publication


def scheduled() -> list[Scheduled]:
    """Return all schedules of the project. One in the settings replaces one in code with the same name."""
    return list({**registry.schedules(), **get_config().schedules}.values())


def home_of(config: QueueConfig, entry: Scheduled) -> QueueConfig:
    """Return where the state of a schedule is, and its messages: its queue, or a partition.

    It is the partition of the key of its messages, whose order and limits are there; without a key that of its name.
    """
    return config.place_of(key=entry.key, unique=entry.name)


class Schedules:
    """The schedules of one queue or partition that are in code or settings."""

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        self._config = config
        self._keys = config.keys
        self._wire = wire_of(config, wire)
        #: The HASH of their states.
        self._states = config.keys.schedules

    def look(self, names: Sequence[str]) -> tuple[int, list[int]]:
        """Return now, and for each schedule the time up to which its ticks have fired. A new schedule starts now."""
        command = scripts.command("schedules_read", keys=[self._states], args=list(names))
        now_ms, *lasts = reply_or_raise(self._wire.trip([command])[0])
        known = (whole(last, LAST_MS) for last in lasts)
        # An invalid time counts as missing: the schedule starts now.
        return now_ms, [now_ms if last is None else last for last in known]

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

    def fire_now(self, entry: Scheduled) -> Publication | None:
        """Publish the message of a schedule now, even if it is paused, and return it. Its ticks are not changed.

        None: it was created at run time, and has been changed or deleted.

        Raises:
            InvalidMessage: it cannot be published.
            QueueFull: the queue is at its MAX_DEPTH.
        """
        made = entry.publication(self._config)
        word, _now_ms = self._fire(entry, "", made)
        return None if word == b"CHANGED" else made

    def pause(self, name: str, *, who: str = "") -> bool:
        """Pause a schedule: its ticks publish no message. Return whether it was running before."""
        args: list[Argument] = [named("", name), truncate(line(who), MAX_WHO), self._required(name)]
        return bool(self._run("schedules_pause", args) == b"PAUSED")

    def resume(self, name: str) -> bool:
        """Resume a schedule from the next tick on, and return whether it was paused. The pause's ticks never fire."""
        return bool(self._run("schedules_resume", [named("", name)]) == b"RESUMED")

    def skip(self, entry: Scheduled, tick_ms: int, *, who: str = "") -> Skipping:
        """Let a later tick of a schedule pass without a message."""
        args: list[Argument] = [named("", entry.name), tick_ms, truncate(line(who), MAX_WHO), entry.definition or b""]
        reply: Skipping = self._run("schedules_skip", [*args, MAX_SKIPS]).decode()
        return reply

    def unskip(self, name: str, tick_ms: int) -> Unskipping:
        """Let a tick fire that was to be skipped."""
        reply: Unskipping = self._run("schedules_unskip", [named("", name), tick_ms]).decode()
        return reply

    def forget(self, name: str) -> None:
        """Delete the state of a schedule. If it is still in code or settings, it starts anew."""
        fields = [named(kind, name) for kind in ("last:", "fired:", "paused:", "skips:")]
        reply_or_raise(self._wire.trip([("HDEL", self._states, *fields)])[0])

    def _required(self, name: str) -> bytes:
        """Return a field that a schedule has if it exists; empty if that does not depend on Redis."""
        return b""

    def _run(self, script: str, args: list[Argument]) -> Any:
        command = scripts.command(script, keys=[self._states], args=args)
        return reply_or_raise(self._wire.trip([command])[0])

    def _fire(self, entry: Scheduled, tick: Argument, made: Publication, *, is_first: bool = True) -> Any:
        (message, data_text, _), keys, where = made, self._keys, slot(self._keys)
        body = encode_body(message, data_text, member=message.id)
        args: list[Argument] = [entry.name, tick, where.minute, where.hour, keys.group, message.id, message.name, body]
        args += [self._config.max_depth or 0, entry.definition or b""]
        if not is_first:
            args.append("1")
        key_names = [self._states, keys.ready, keys.priority, keys.waiting, keys.control, *where.keys, keys.urgent]
        reply = reply_or_raise(self._wire.trip([scripts.command("schedules_fire", keys=key_names, args=args)])[0])
        if reply[0] == b"FULL":
            raise QueueFull(f"Queue {self._config.name!r} is at its MAX_DEPTH of {self._config.max_depth}")
        return reply
