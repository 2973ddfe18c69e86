"""What a queue's schedules have done, and their pauses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.utils import timezone

from mq_django import registry
from mq_django.conf import QueueConfig, get_config
from mq_django.core.numbers import LAST_MS, whole
from mq_django.core.publication import Publication
from mq_django.core.schedules import Scheduled
from mq_django.core.wire import encode_body
from mq_django.stores.counters import slot
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument
from mq_django.transport.sessions import Wire, reply_or_raise


class Firing(StrEnum):
    """What became of a tick."""

    FIRED = "fired"
    #: Somebody else did it.
    DONE = "done"
    PAUSED = "paused"
    #: It is not yet there, by Redis's clock.
    EARLY = "early"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleState:
    """What is known of a schedule. Times are in ms since 1970, by Redis's clock."""

    #: The ticks up to here are done with; None: no consumer has seen it yet.
    last_ms: int | None = None
    #: When its message was last published.
    fired_ms: int | None = None
    paused: bool = False


def scheduled() -> list[Scheduled]:
    """Return every schedule of the project; one in the settings takes the place of one in the code of its name."""
    return list({**registry.schedules(), **get_config().schedules}.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A schedule as people see it. Times are in ms since 1970, by Redis's clock."""

    name: str
    queue: str
    #: None: it is in neither code nor settings any more, and only its state is left.
    entry: Scheduled | None
    state: ScheduleState
    #: The next tick that publishes; before now when nobody was there to fire it. None while it is paused.
    next_ms: int | None


def planned(config: QueueConfig, wire: Wire) -> tuple[int, list[Planned]]:
    """Return now, and every schedule that publishes to a queue or once did, by name."""
    time_now, flat = wire.trip([("TIME",), ("HGETALL", config.keys.schedules)])
    seconds, micros = reply_or_raise(time_now)
    now_ms = int(seconds) * 1000 + int(micros) // 1000
    entries = {entry.name: entry for entry in scheduled() if entry.queue == config.name}
    states = _states(reply_or_raise(flat))
    found = []
    for name in sorted({*entries, *states}):
        entry, state = entries.get(name), states.get(name, ScheduleState())
        next_ms = None if entry is None or state.paused else _next_ms(entry, state.last_ms or now_ms)
        found.append(Planned(name=name, queue=config.name, entry=entry, state=state, next_ms=next_ms))
    return now_ms, found


def _next_ms(entry: Scheduled, after_ms: int) -> int | None:
    try:
        return entry.next_ms(after_ms, timezone.get_default_timezone())
    except (ValueError, OverflowError):
        # After the last day that has a date, which somebody wrote there, comes no tick.
        return None


class Schedules:
    """The schedules of one queue."""

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        self._config = config
        self._keys = config.keys
        self._wire = wire

    def look(self, names: Sequence[str]) -> tuple[int, list[int]]:
        """Return now and up to when the ticks of each are done with; a schedule that is new begins now."""
        command = scripts.command("schedules_look", keys=[self._keys.schedules], args=list(names))
        now_ms, *lasts = reply_or_raise(self._wire.trip([command])[0])
        known = (whole(last, LAST_MS) for last in lasts)
        # One that makes no sense is as good as none: it begins now.
        return now_ms, [now_ms if last is None else last for last in known]

    def fire(self, entry: Scheduled, tick_ms: int) -> tuple[Firing, int]:
        """Publish the message of a tick unless somebody has, and return what became of it, and now."""
        word, now_ms = self._fire(entry, tick_ms, entry.publication(self._config, tick_ms))
        return Firing(word.decode().lower()), now_ms

    def fire_now(self, entry: Scheduled) -> str:
        """Publish the message of a schedule at once, paused or not, and return its id; its ticks stay as they are."""
        made = entry.publication(self._config)
        self._fire(entry, "", made)
        return made.message.id

    def pause(self, name: str) -> None:
        """Let ticks pass without a message."""
        reply_or_raise(self._wire.trip([("HSET", self._keys.schedules, f"paused:{name}", 1)])[0])

    def resume(self, name: str) -> None:
        """Fire again from the next tick on; those that passed meanwhile are not made up for."""
        command = scripts.command("schedules_resume", keys=[self._keys.schedules], args=[name])
        reply_or_raise(self._wire.trip([command])[0])

    def states(self) -> Mapping[str, ScheduleState]:
        """Return what is known of every schedule, also of those that are no longer in the code, by name."""
        return _states(reply_or_raise(self._wire.trip([("HGETALL", self._keys.schedules)])[0]))

    def forget(self, name: str) -> None:
        """Forget a schedule that is no longer in the code; one that is there begins anew."""
        fields = [f"{kind}:{name}" for kind in ("last", "fired", "paused")]
        reply_or_raise(self._wire.trip([("HDEL", self._keys.schedules, *fields)])[0])

    def _fire(self, entry: Scheduled, tick: Argument, made: Publication) -> Any:
        (message, data_text, _), keys, where = made, self._keys, slot(self._keys)
        body = encode_body(message, data_text, member=message.id)
        args: list[Argument] = [entry.name, tick, where.minute, where.hour, keys.group, message.id, message.name, body]
        key_names = [keys.schedules, keys.ready, keys.priority, keys.waiting, keys.control]
        command = scripts.command("schedules_fire", keys=[*key_names, *where.keys], args=args)
        return reply_or_raise(self._wire.trip([command])[0])


def _states(flat: Sequence[bytes]) -> dict[str, ScheduleState]:
    told: dict[str, dict[str, str]] = {}
    for field, value in zip(flat[::2], flat[1::2], strict=True):
        kind, _, name = field.decode(errors="replace").partition(":")
        told.setdefault(name, {})[kind] = value.decode(errors="replace")
    return {
        name: ScheduleState(
            last_ms=whole(kinds.get("last"), LAST_MS),
            fired_ms=whole(kinds.get("fired"), LAST_MS),
            paused="paused" in kinds,
        )
        for name, kinds in told.items()
    }
