"""The state of schedules in Redis: the last tick, and pauses."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from mq_django import registry
from mq_django.conf import QueueConfig, get_config
from mq_django.core.numbers import LAST_MS, whole
from mq_django.core.publication import Publication
from mq_django.core.schedules import Scheduled
from mq_django.core.wire import encode_body
from mq_django.errors import QueueFull
from mq_django.stores.counters import slot
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument
from mq_django.transport.sessions import Wire, reply_or_raise


class Firing(StrEnum):
    """What became of a tick."""

    FIRED = "fired"
    #: Another process fired it.
    DONE = "done"
    PAUSED = "paused"
    #: It is not due yet, by the clock of Redis.
    EARLY = "early"


class Fired(NamedTuple):
    """The result of firing a tick."""

    firing: Firing
    #: By the clock of Redis, in ms since 1970.
    now_ms: int
    #: The id of the message, if it was published.
    message_id: str


def scheduled() -> list[Scheduled]:
    """Return all schedules of the project. One in the settings replaces one in code with the same name."""
    return list({**registry.schedules(), **get_config().schedules}.values())


class Schedules:
    """The schedules of one queue."""

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        self._config = config
        self._keys = config.keys
        self._wire = wire

    def look(self, names: Sequence[str]) -> tuple[int, list[int]]:
        """Return now, and for each schedule the time up to which its ticks have fired. A new schedule starts now."""
        command = scripts.command("schedules_read", keys=[self._keys.schedules], args=list(names))
        now_ms, *lasts = reply_or_raise(self._wire.trip([command])[0])
        known = (whole(last, LAST_MS) for last in lasts)
        # An invalid time counts as missing: the schedule starts now.
        return now_ms, [now_ms if last is None else last for last in known]

    def fire(self, entry: Scheduled, tick_ms: int) -> Fired:
        """Publish the message of a tick, unless another process has.

        Raises:
            InvalidMessage: it cannot be published.
            QueueFull: the queue is at its MAX_DEPTH. The tick stays due.
        """
        made = entry.publication(self._config, tick_ms)
        word, now_ms = self._fire(entry, tick_ms, made)
        return Fired(Firing(word.decode().lower()), now_ms, made.message.id)

    def fire_now(self, entry: Scheduled) -> str:
        """Publish the message of a schedule now, even if it is paused, and return its id. Its ticks are not changed.

        Raises:
            InvalidMessage: it cannot be published.
            QueueFull: the queue is at its MAX_DEPTH.
        """
        made = entry.publication(self._config)
        self._fire(entry, "", made)
        return made.message.id

    def pause(self, name: str) -> None:
        """Pause a schedule: its ticks publish no message."""
        reply_or_raise(self._wire.trip([("HSET", self._keys.schedules, f"paused:{name}", 1)])[0])

    def resume(self, name: str) -> None:
        """Resume a schedule from the next tick on. The ticks of the pause never fire."""
        command = scripts.command("schedules_resume", keys=[self._keys.schedules], args=[name])
        reply_or_raise(self._wire.trip([command])[0])

    def forget(self, name: str) -> None:
        """Delete the state of a schedule. If it is still in code or settings, it starts anew."""
        fields = [f"{kind}:{name}" for kind in ("last", "fired", "paused")]
        reply_or_raise(self._wire.trip([("HDEL", self._keys.schedules, *fields)])[0])

    def _fire(self, entry: Scheduled, tick: Argument, made: Publication) -> Any:
        (message, data_text, _), keys, where = made, self._keys, slot(self._keys)
        body = encode_body(message, data_text, member=message.id)
        args: list[Argument] = [entry.name, tick, where.minute, where.hour, keys.group, message.id, message.name, body]
        args.append(self._config.max_depth or 0)
        key_names = [keys.schedules, keys.ready, keys.priority, keys.waiting, keys.control, *where.keys, keys.urgent]
        reply = reply_or_raise(self._wire.trip([scripts.command("schedules_fire", keys=key_names, args=args)])[0])
        if reply[0] == b"FULL":
            raise QueueFull(f"Queue {self._config.name!r} is at its MAX_DEPTH of {self._config.max_depth}")
        return reply
