"""The members of a queue: its consumers and supervisors, and their heartbeats."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from mq_django.conf import QueueConfig
from mq_django.core.ids import token
from mq_django.core.jsontext import LAST_MS, dumps, object_in, parser_of, whole
from mq_django.errors import DecodeError
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Transport, reply_or_raise

#: Decodes any bytes without loss: other programs may give their consumers any name.
_ANY = "surrogateescape"
#: The field in which a consumer announces the names that it handles, the most names that are read, and the word for
#: all names.
NAMES, MAX_NAMES, ANY_NAME = "names", 1000, "*"
#: The field in which a supervisor announces that it does the housekeeping of the queue.
HOUSEKEEPING = "housekeeping"
#: The fields that count the requests to cancel running messages, those for stacks, and the changes of holds.
REQUESTS = (b"cancels:asked", b"stacks:asked", b"holds:changed")
#: The most running messages of one consumer and queue in a heartbeat: those that have run longest.
MAX_RUNNING = 20
#: Deliveries claimed by one script call.
BATCH = 500


class Descriptions(Mapping[str, Mapping[str, Any]]):
    """What members announce of themselves, each read when it is asked for: pages of all queues have thousands."""

    __slots__ = ("_read", "_read_by", "_texts")

    def __init__(self, texts: Mapping[str, bytes], read_by: Callable[[bytes], Mapping[str, Any]]) -> None:
        self._texts, self._read_by = texts, read_by
        self._read: dict[str, Mapping[str, Any]] = {}

    def __getitem__(self, who: str) -> Mapping[str, Any]:
        found = self._read.get(who)
        if found is None:
            found = self._read[who] = self._read_by(self._texts[who])
        return found

    def each(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield all of them, and keep none. That takes less time than to read one after another."""
        parse = parser_of(list(self._texts.values()))
        for who, text in self._texts.items():
            try:
                found = parse(text)
            except (ValueError, DecodeError):
                found = None
            yield who, found if isinstance(found, dict) else self._read_by(text)

    def get(self, who: str, default: Any = None) -> Any:
        """Return one, or else a default: without an exception, which takes longer."""
        return self[who] if who in self._texts else default

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


@dataclass(frozen=True, slots=True)
class Membership:
    """All members of a queue."""

    #: Supervisor -> its heartbeat counter. Only a change of it has a meaning.
    beats: Mapping[str, int]
    #: Supervisor -> milliseconds since 1970 of its last heartbeat, by the server's clock.
    seen_ms: Mapping[str, int]
    #: Supervisor -> its description.
    supervisors: Mapping[str, Mapping[str, Any]]
    #: Consumer -> its description; `supervisor` is the id of its supervisor.
    consumers: Descriptions
    #: Unknown consumers: in the streams, but without a description -> their oldest pending entries.
    unknown: Mapping[str, str] = field(default_factory=dict)
    #: Changes when Redis was flushed.
    generation: str = ""
    #: Consumer or supervisor -> the request to it: "quiet" or "stop".
    asks: Mapping[str, str] = field(default_factory=dict)
    #: Changes when somebody asks to cancel a running message, or for stacks: see `CancelRequests`, `StackRequests`.
    requests: str = ""

    def consumers_of(self, supervisor: str) -> list[str]:
        """Return the consumers of a supervisor."""
        return [name for name, announced in self.consumers.items() if supervisor_of(announced) == supervisor]

    def heartbeat_counts(self) -> dict[str, int]:
        """Return the heartbeat counter of every supervisor, -1 for one without."""
        described = {supervisor_of(announced) for announced in self.consumers.values()} | set(self.supervisors)
        return {name: self.beats.get(name, -1) for name in described | set(self.beats)}

    def announced_names(self) -> frozenset[str]:
        """Return the names that consumers announce to handle, and are not about to stop; ANY_NAME stands for all."""
        found = (
            announced[NAMES][:MAX_NAMES]
            for announced in self.consumers.values()
            if isinstance(announced.get(NAMES), list) and announced.get("state") not in ("quiet", "stopping")
        )
        return frozenset(name for names in found for name in names if isinstance(name, str))


def supervisor_of(announced: Mapping[str, Any]) -> str:
    """Return the supervisor in a consumer's description, "" for none."""
    supervisor = announced.get("supervisor")
    return supervisor if isinstance(supervisor, str) else ""


def is_consumer(transport: Transport, config: QueueConfig, name: str) -> bool:
    """Return whether a consumer is a member of a queue.

    Raises:
        StoreError: Redis cannot be reached, or refuses the command.
    """
    member = f"consumer:{name}".encode(errors="replace")
    return bool(transport.ask(("HEXISTS", config.keys.consumers, member)))


#: Of supervisors: each announces the same to most of its queues, and at most heartbeats.
_description = lru_cache(maxsize=1024)(object_in)


@lru_cache(maxsize=8192)
def _kind_of(name: bytes) -> tuple[str, str]:
    """Return the kind of a field, and whose it is: both empty for one that is not valid, the same in many queues."""
    try:
        kind, _, who = name.decode().partition(":")
    except UnicodeDecodeError:
        # Our ids are text, and a name that is not could not be removed by its decoded form.
        return "", ""
    # No member has an empty id.
    return (kind, who) if who else ("", "")


def read_membership(
    reply: Mapping[bytes, bytes],
    unknown: Sequence[bytes] = (),
    generation: bytes = b"",
) -> Membership:
    """Return the members in the fields of a `consumers` hash. Invalid fields are left out."""
    found: dict[str, dict[str, bytes]] = {kind: {} for kind in ("beat", "seen", "supervisor", "consumer", "ask")}
    requests = b" ".join(reply.get(name, b"") for name in REQUESTS).decode(errors="replace")
    for name, value in reply.items():
        kind, who = _kind_of(name)
        if kind in found:
            found[kind][who] = value
    held: dict[str, str] = {}
    for name, oldest in zip(unknown[::2], unknown[1::2], strict=True):
        who = name.decode(errors=_ANY)
        held[who] = held.get(who, "") + oldest.decode()
    return Membership(
        beats={who: count for who, value in found["beat"].items() if (count := whole(value)) is not None},
        seen_ms={who: ms for who, value in found["seen"].items() if (ms := whole(value, LAST_MS)) is not None},
        supervisors=Descriptions(found["supervisor"], _description),
        consumers=Descriptions(found["consumer"], object_in),
        unknown=held,
        generation=generation.decode(errors="replace"),
        asks={who: value.decode(errors="replace") for who, value in found["ask"].items()},
        requests=requests,
    )


class Members:
    """The consumers of one queue and their supervisors."""

    #: Entries that consumers have read before this time are no longer theirs, in seconds of the monotonic clock.
    held_since = 0.0

    def __init__(self, config: QueueConfig, transport: Transport) -> None:
        self._keys = config.keys
        self._transport = transport

    def beat(
        self,
        supervisor: str,
        description: Mapping[str, Any],
        consumers: Mapping[str, Mapping[str, Any]],
        *,
        generation: str = "",
    ) -> Membership | None:
        """Record a supervisor's heartbeat with the descriptions of its consumers, and return all members.

        `generation` is the generation of the queue at its last heartbeat, "" at the first one. Returns None, and writes
        nothing, when another supervisor has evicted it since.
        """
        command = self.beat_command(supervisor, description, consumers, generation=generation)
        return self.read_beat(self._transport.pipeline([command])[0], consumers)

    def beat_command(
        self,
        supervisor: str,
        description: Mapping[str, Any],
        consumers: Mapping[str, Mapping[str, Any]],
        *,
        generation: str,
    ) -> Command:
        """Return the command of a heartbeat: see beat()."""
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
        return scripts.command("members_heartbeat", keys=[keys.consumers, keys.control, *keys.streams()], args=args)

    def read_beat(self, reply: Any, consumers: Iterable[str]) -> Membership | None:
        """Return what beat() returns, by the reply to its command."""
        if reply_or_raise(reply) == b"EVICTED":
            return None
        found, flat, unknown = reply
        return read_membership(dict(zip(flat[::2], flat[1::2], strict=True)), unknown, found)

    def keep_alive(self, supervisor: str) -> bool:
        """Send a heartbeat for a supervisor that has stopped, and return whether it had not been evicted."""
        keys = self._keys
        generation = self._transport.ask(("HGET", keys.control, "generation")) or b"none"
        key_names = [keys.consumers, keys.control, *keys.streams()]
        args: list[Argument] = [keys.group, supervisor, generation, token()]
        return bool(self._transport.run("members_heartbeat", key_names, args) != b"EVICTED")

    def evict(self, supervisor: str, count: int) -> bool:
        """Declare a supervisor dead if its counter is still `count` (-1: none); return whether this call evicted it."""
        args: list[Argument] = [supervisor, "" if count < 0 else count]
        return bool(self._transport.run("members_evict", [self._keys.consumers], args) == b"EVICTED")

    def claim(self, holder: str, new_owner: str) -> int:
        """Claim some of the deliveries that `holder` holds for `new_owner`; return the number, 0 when none is left."""
        keys = self._keys
        args: list[Argument] = [keys.group, holder.encode(errors=_ANY), new_owner, BATCH]
        return int(self._transport.run("members_claim", keys.streams(), args))

    def ask(self, who: str, what: Literal["quiet", "stop"]) -> str:
        """Ask a consumer, or a supervisor with all its consumers, to go quiet or to stop at its next heartbeat.

        Returns "ASKED"; "ASKED_BEFORE" when it was asked for this, or to stop, before; or "GONE".
        """
        keys = self._keys
        return str(self._transport.run("members_ask", [keys.consumers], [who, what, keys.wake]).decode())

    def leave(self, consumers: Iterable[str], *, supervisor: str = "") -> list[str]:
        """Remove consumers, and then the supervisor if given; return the consumers that remain with deliveries."""
        keys = self._keys
        args: list[Argument] = [keys.group, supervisor, *(name.encode(errors=_ANY) for name in consumers)]
        remaining = self._transport.run("members_leave", [keys.consumers, *keys.streams()], args)
        return [name.decode(errors=_ANY) for name in remaining]
