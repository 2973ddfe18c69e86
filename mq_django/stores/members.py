"""Who consumes a queue: heartbeats, and what each consumer is."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from mq_django.conf import QueueConfig
from mq_django.core.ids import token
from mq_django.core.jsontext import dumps, loads
from mq_django.core.numbers import LAST_MS, whole
from mq_django.errors import DecodeError
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument
from mq_django.transport.sessions import Wire, reply_or_raise

#: How text stands for any bytes, and comes back as these: other programs may give their consumers any name.
_ANY = "surrogateescape"
#: Deliveries adopted by one script call.
BATCH = 500


@dataclass(frozen=True, slots=True)
class Membership:
    """Everybody who consumes a queue."""

    #: Supervisor -> its heartbeat counter. Only that it moves means something.
    beats: Mapping[str, int]
    #: Supervisor -> milliseconds since 1970 of its last heartbeat, by the server's clock.
    seen_ms: Mapping[str, int]
    #: Supervisor -> what it says of itself.
    supervisors: Mapping[str, Mapping[str, Any]]
    #: Consumer -> what its supervisor says of it; `supervisor` names that.
    consumers: Mapping[str, Mapping[str, Any]]
    #: Consumers of the streams that no supervisor speaks for -> the oldest entries they hold.
    unknown: Mapping[str, str] = field(default_factory=dict)
    #: Changes when the queue was flushed.
    generation: str = ""
    #: Consumer or supervisor -> what people ask of it: "quiet" or "stop".
    asks: Mapping[str, str] = field(default_factory=dict)

    def consumers_of(self, supervisor: str) -> list[str]:
        """Return the consumers of a supervisor."""
        return [name for name, announced in self.consumers.items() if supervisor_of(announced) == supervisor]

    def vital_signs(self) -> dict[str, int]:
        """Return the counter of every supervisor, also of those that have none: -1."""
        named = {supervisor_of(announced) for announced in self.consumers.values()} | set(self.supervisors)
        return {name: self.beats.get(name, -1) for name in named | set(self.beats)}


def supervisor_of(announced: Mapping[str, Any]) -> str:
    """Return the supervisor that a consumer names as its own, "" for none."""
    named = announced.get("supervisor")
    return named if isinstance(named, str) else ""


def _description(value: bytes) -> Mapping[str, Any]:
    try:
        found = loads(value)
    except DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def read_membership(reply: Mapping[bytes, bytes], unknown: Sequence[bytes] = (), generation: bytes = b"") -> Membership:
    """Return who is in the fields of a `consumers` hash; what makes no sense is left out."""
    beats, seen, supervisors, consumers, asks = {}, {}, {}, {}, {}
    for name, value in reply.items():
        try:
            kind, _, who = name.decode().partition(":")
        except UnicodeDecodeError:
            # Nobody of ours is called so, and under a name that people can read it could not be struck off.
            continue
        if not who:
            # Likewise: a name that is empty stands for nobody.
            continue
        if kind == "beat" and (count := whole(value)) is not None:
            beats[who] = count
        elif kind == "seen" and (ms := whole(value, LAST_MS)) is not None:
            seen[who] = ms
        elif kind == "supervisor":
            supervisors[who] = _description(value)
        elif kind == "consumer":
            consumers[who] = _description(value)
        elif kind == "ask":
            asks[who] = value.decode(errors="replace")
    held: dict[str, str] = {}
    for name, oldest in zip(unknown[::2], unknown[1::2], strict=True):
        who = name.decode(errors=_ANY)
        held[who] = held.get(who, "") + oldest.decode()
    return Membership(beats, seen, supervisors, consumers, held, generation.decode(errors="replace"), asks)


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
        *,
        generation: str = "",
    ) -> Membership | None:
        """Say that a supervisor and its consumers live, and return everybody.

        `generation` is the queue's that it saw last, "" at its first heartbeat. Returns None, and writes nothing, when
        others have evicted it since.
        """
        keys = self._keys
        args: list[Argument] = [
            keys.group,
            supervisor,
            generation,
            token(),
            f"supervisor:{supervisor}",
            dumps(description),
        ]
        for name, announced in consumers.items():
            args += (f"consumer:{name}", dumps({**announced, "supervisor": supervisor}))
        command = scripts.command("members_heartbeat", keys=[keys.consumers, keys.control, *keys.homes()], args=args)
        reply = reply_or_raise(self._wire.trip([command])[0])
        if reply == b"EVICTED":
            return None
        found, flat, unknown = reply
        return read_membership(dict(zip(flat[::2], flat[1::2], strict=True)), unknown, found)

    def keep_alive(self, supervisor: str) -> bool:
        """Beat for a supervisor that is gone, and tell whether it had not been evicted."""
        keys = self._keys
        generation = reply_or_raise(self._wire.trip([("HGET", keys.control, "generation")])[0]) or b"none"
        command = scripts.command(
            "members_heartbeat",
            keys=[keys.consumers, keys.control, *keys.homes()],
            args=[keys.group, supervisor, generation, token()],
        )
        return bool(reply_or_raise(self._wire.trip([command])[0]) != b"EVICTED")

    def evict(self, supervisor: str, count: int) -> bool:
        """Take a supervisor for dead if its counter still stands at `count` (-1: it has none); tell whether it did."""
        command = scripts.command(
            "members_evict", keys=[self._keys.consumers], args=[supervisor, "" if count < 0 else count]
        )
        return bool(reply_or_raise(self._wire.trip([command])[0]) == b"EVICTED")

    def claim(self, holder: str, new_owner: str) -> int:
        """Let `new_owner` hold some of what `holder` holds, a name of any bytes; return how many, 0 at the end."""
        keys = self._keys
        args: list[Argument] = [keys.group, holder.encode(errors=_ANY), new_owner, BATCH]
        command = scripts.command("members_claim", keys=keys.homes(), args=args)
        return int(reply_or_raise(self._wire.trip([command])[0]))

    def ask(self, who: str, what: Literal["quiet", "stop"]) -> str:
        """Ask a consumer or a supervisor with all of its consumers to go quiet or to stop, with its next heartbeat.

        Returns "ASKED"; "ASKED_BEFORE" when it was asked for that, or for more, already; or "GONE".
        """
        keys = self._keys
        command = scripts.command("members_ask", keys=[keys.consumers], args=[who, what, keys.wake])
        return str(reply_or_raise(self._wire.trip([command])[0]).decode())

    def leave(self, consumers: Iterable[str], *, supervisor: str = "") -> list[str]:
        """Remove consumers, and then the supervisor if one is named; return who stays, holding something."""
        keys = self._keys
        command = scripts.command(
            "members_leave",
            keys=[keys.consumers, *keys.homes()],
            args=[keys.group, supervisor, *(name.encode(errors=_ANY) for name in consumers)],
        )
        return [name.decode(errors=_ANY) for name in reply_or_raise(self._wire.trip([command])[0])]
