"""Who consumes a queue: heartbeats, and what each consumer is."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mq_django.conf import QueueConfig
from mq_django.core.jsontext import dumps, loads
from mq_django.errors import DecodeError
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument
from mq_django.transport.sessions import Wire, reply_or_raise


@dataclass(frozen=True, slots=True)
class Roll:
    """Everybody who consumes a queue."""

    #: Supervisor -> its heartbeat counter. Only that it moves means something.
    beats: Mapping[str, int]
    #: Supervisor -> milliseconds since 1970 of its last heartbeat, by the server's clock.
    seen_ms: Mapping[str, int]
    #: Supervisor -> what it says of itself.
    supervisors: Mapping[str, Mapping[str, Any]]
    #: Consumer -> what its supervisor says of it; `supervisor` names that.
    consumers: Mapping[str, Mapping[str, Any]]


def _description(value: bytes) -> Mapping[str, Any]:
    try:
        found = loads(value)
    except DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def read_roll(reply: Mapping[bytes, bytes]) -> Roll:
    """Return who is in the fields of a `consumers` hash; what makes no sense is left out."""
    beats, seen, supervisors, consumers = {}, {}, {}, {}
    for field, value in reply.items():
        kind, _, name = field.decode(errors="replace").partition(":")
        if kind == "beat" and value.isdigit():
            beats[name] = int(value)
        elif kind == "seen" and value.isdigit():
            seen[name] = int(value)
        elif kind == "supervisor":
            supervisors[name] = _description(value)
        elif kind == "consumer":
            consumers[name] = _description(value)
    return Roll(beats, seen, supervisors, consumers)


class Members:
    """The consumers of one queue and their supervisors."""

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        self._keys = config.keys
        self._wire = wire

    def beat(
        self,
        supervisor: str,
        description: Mapping[str, Any],
        consumers: Mapping[str, Mapping[str, Any]],
    ) -> Roll:
        """Say that a supervisor and its consumers live, and return everybody."""
        args: list[Argument] = [supervisor, f"supervisor:{supervisor}", dumps(description)]
        for name, told in consumers.items():
            args += (f"consumer:{name}", dumps({**told, "supervisor": supervisor}))
        command = scripts.command("members_beat", keys=[self._keys.consumers], args=args)
        flat = reply_or_raise(self._wire.trip([command])[0])
        return read_roll(dict(zip(flat[::2], flat[1::2], strict=True)))

    def leave(self, consumers: Iterable[str], *, supervisor: str = "") -> list[str]:
        """Remove consumers, and then the supervisor if one is named; return who stays, holding something."""
        keys = self._keys
        command = scripts.command(
            "members_leave",
            keys=[keys.consumers, *keys.homes()],
            args=[keys.group, supervisor, *consumers],
        )
        return [name.decode() for name in reply_or_raise(self._wire.trip([command])[0])]
