"""What a queue's schedules have done, and their pauses."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

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


def scheduled() -> list[Scheduled]:
    """Return every schedule of the project; one in the settings takes the place of one in the code of its name."""
    return list({**registry.schedules(), **get_config().schedules}.values())


class Schedules:
    """The schedules of one queue."""

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        self._config = config
        self._keys = config.keys
        self._wire = wire

    def look(self, names: Sequence[str]) -> tuple[int, list[int]]:
        """Return now and up to when the ticks of each are done with; a schedule that is new begins now."""
        command = scripts.command("schedules_read", keys=[self._keys.schedules], args=list(names))
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
