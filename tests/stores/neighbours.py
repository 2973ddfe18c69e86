"""What scripts do when a key beside them is broken."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import redis

from mq_django.transport import scripts
from mq_django.transport.scripts import Command
from tests.stores.recording import Call, Recorder

#: Data of the messages of `everything`, in any form of body.
MARK = re.compile(rb"mark-\d+\.")
#: The last id that an entry of a stream can have.
LAST_ID = "18446744073709551615-18446744073709551615"
#: What is no number, or none that fits.
NO_NUMBERS = ("x", "", "9" * 400, "9223372036854775807", "1e999", "nan")
#: How often the fields of a hash are broken, each time with other ones of these.
TURNS = 2

_HASH = re.compile(
    r":(waiting|unique|claims|control|dead-(ids|groups)|(?<=[q}]:)jobs|consumers|limits|handled-ids|(runtime-)?schedules"
    r"|owners|notes|Q|counters:([mh]:\d+|total)|progress:.+|step-notes|outbox|(run|steps|bodies|after|values):0run|unique)$"
)
_STREAM = re.compile(r":(ready|urgent|log|dead|freed|handled|ended|starts)$")


@dataclass(frozen=True)
class Effect:
    """What a call did: how often each message was somewhere, its reply or error, and how often each is after it."""

    before: Counter[bytes]
    reply: Any
    after: Counter[bytes]

    def wrongs(self, healthy: "Effect") -> list[str]:
        """Return what it lost or doubled that it would not have when all was well."""
        lost = self.before - self.after - (healthy.before - healthy.after)
        twice = self.after - (self.before | healthy.after)
        return [f"lost {len(lost)}"] * bool(lost) + [f"doubled {len(twice)}"] * bool(twice)


class Neighbours(Recorder):
    """Keeps the calls of scripts that change something, and runs them again beside broken keys."""

    #: Calls kept of a script, and calls without an effect.
    MOST = (2, 1)

    def __init__(self, client: redis.Redis, namespace: str) -> None:
        super().__init__(client, namespace)
        self.calls: dict[str, list[Call]] = {}
        self._idle: Counter[str] = Counter()

    def keep(self, call: Call, reply: Any) -> None:
        """Keep a call that returned no error, unless there are enough of its script."""
        if isinstance(reply, Exception):
            return
        kept, changed = self.calls.setdefault(call.name, []), self.dump() != call.before
        if not changed:
            self._idle[call.name] += 1
        if len(kept) < self.MOST[0] and (changed or self._idle[call.name] <= self.MOST[1]):
            kept.append(call)

    def effect(self, call: Call, broken: Sequence[Command] = ()) -> Effect:
        """Run a call beside broken keys."""
        self.restore(call.before)
        for command in broken:
            self.client.execute_command(*command)
        before = self.messages()
        return Effect(before, self.run(call), self.messages())

    def messages(self) -> Counter[bytes]:
        """Return how often each message is somewhere whence it comes to a consumer or a person."""
        found: Counter[bytes] = Counter()
        keys = self.keys()
        kinds = dict(zip(keys, self._together(("type", key) for key in keys), strict=True))
        for key, (entries, groups) in self._streams([key for key in keys if kinds[key] == b"stream"]).items():
            for entry, fields in entries:
                # Each group has its own place in a log.
                names = [name for name, awaits in groups.items() if awaits(entry) and name != b"wake"]
                if key.endswith(b":log"):
                    found.update(mark + b"@" + name for name in names for mark in _marks(fields))
                elif names or not groups:
                    found.update(_marks(fields))
        bodies = {key: _bodies(key) for key in keys if kinds[key] == b"zset" and kinds.get(_bodies(key)) == b"hash"}
        members = self._together(("zrange", key, 0, -1) for key in bodies)
        each = [(body, member) for body, some in zip(bodies.values(), members, strict=True) for member in some]
        for body in self._together(("hget", *place) for place in each):
            found.update(set(MARK.findall(body or b"")))
        return found

    def _streams(self, keys: Sequence[bytes]) -> dict[bytes, tuple[Any, dict[bytes, Callable[[bytes], bool]]]]:
        """Return the entries of streams, and for each of their groups a function whether an entry awaits it."""
        replies = self._together(call for key in keys for call in (("xrange", key), ("xinfo_groups", key)))
        groups = [(key, group) for key, found in zip(keys, replies[1::2], strict=True) for group in found]
        pending = self._together(("xpending_range", key, group["name"], "-", "+", 10_000) for key, group in groups)
        awaited: dict[bytes, dict[bytes, Callable[[bytes], bool]]] = {key: {} for key in keys}
        for (key, group), rows in zip(groups, pending, strict=True):
            awaited[key][group["name"]] = partial(_awaits, group, {row["message_id"] for row in rows})
        return {key: (entries, awaited[key]) for key, entries in zip(keys, replies[::2], strict=True)}

    def _together(self, calls: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Call methods of the client, each with its arguments, in one round trip."""
        pipeline = self.client.pipeline(transaction=False)
        for method, *arguments in calls:
            getattr(pipeline, method)(*arguments)
        return pipeline.execute()


def _awaits(group: Mapping[str, Any], pending: Collection[bytes], entry: bytes) -> bool:
    return entry in pending or _place(entry) > _place(group["last-delivered-id"])


def _bodies(key: bytes) -> bytes:
    """Return the key of the bodies of what waits in another one."""
    name, _, kind = key.rpartition(b":")
    return name + b":waiting" if kind in (b"due", b"unhandled", b"priority", b"parked", b"lines") else key + b":Q"


def _marks(fields: Mapping[bytes, bytes] | None) -> set[bytes]:
    return set(MARK.findall(b"\n".join((fields or {}).values())))


def _place(entry: bytes) -> tuple[int, int]:
    ms, _, number = entry.partition(b"-")
    return int(ms), int(number)


@dataclass(frozen=True)
class Broken:
    """A way in which a key may be broken."""

    what: str
    key: str

    def __str__(self) -> str:
        return f"{self.key}: {self.what}"


def breaks(client: redis.Redis, call: Call) -> Iterator[tuple[Broken, Sequence[Command]]]:
    """Yield each way to break a key of a call, with the commands that do."""
    words = set(re.findall(r"'([\w-]*)'", scripts.in_full(call.command)[1]))
    for key in dict.fromkeys(call.keys):
        kind = client.type(key)
        other: Command = ("SET", key, "x") if kind != b"string" else ("HSET", key, "x", "x")
        yield Broken("wrong type", key), [("DEL", key), other]
        if _HASH.search(key) and kind in (b"none", b"hash"):
            yield from _broken_hash(client, key, words)
        elif _STREAM.search(key) and kind in (b"none", b"stream"):
            there: Sequence[Command] = [("XSETID", key, LAST_ID)]
            anew: Sequence[Command] = [("XADD", key, LAST_ID, "a", "b"), ("XDEL", key, LAST_ID)]
            yield Broken("last id", key), there if kind == b"stream" else anew
        elif kind in (b"none", b"zset"):
            yield Broken("inf", key), [("ZADD", key, "inf", "", "-inf", "stranger")]


def _broken_hash(client: redis.Redis, key: str, words: set[str]) -> Iterator[tuple[Broken, Sequence[Command]]]:
    there = client.hgetall(key)
    fields = {*(word.encode() for word in words), *(field for field, value in there.items() if _is_number(value))}
    # The rest are not numbers to begin with.
    fields -= {b"paused", b"state", b"worker"}
    for turn in range(TURNS):
        command: list[Any] = ["HSET", key]
        for place, field in enumerate(sorted(fields)):
            command += (field, NO_NUMBERS[(turn * len(NO_NUMBERS) // TURNS + place) % len(NO_NUMBERS)])
        yield Broken(f"numbers are none, turn {turn}", key), [tuple(command)]


def _is_number(value: bytes) -> bool:
    return value.lstrip(b"-").isdigit()
