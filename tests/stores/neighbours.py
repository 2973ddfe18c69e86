"""What scripts do when a key beside them is broken."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import redis

from mq_django.transport import scripts
from mq_django.transport.scripts import Command
from tests.stores.contracts.states import READ
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
        replies = self.client.eval(READ, len(keys), *keys)
        read = {key: (kind, content) for key, (kind, _, content) in zip(keys, replies, strict=True)}
        for key, (kind, content) in read.items():
            if kind == b"stream":
                found.update(_awaited(key, *content))
            elif kind == b"zset" and (bodies := read.get(_bodies(key), (b"", ())))[0] == b"hash":
                of_member = dict(zip(bodies[1][::2], bodies[1][1::2], strict=True))
                for member in content[::2]:
                    found.update(set(MARK.findall(of_member.get(member, b""))))
        return found


def _awaited(key: bytes, entries: Sequence[Any], groups: Sequence[Any]) -> Iterator[bytes]:
    """Yield the messages of a stream that a group awaits. Each group has its own place in a log."""
    places = {}
    for flat, _, pending in groups:
        group = dict(zip(flat[::2], flat[1::2], strict=True))
        places[group[b"name"]] = _place(group[b"last-delivered-id"]), {row[0] for row in pending}
    for entry, fields in entries:
        names = [
            name for name, (last, held) in places.items() if name != b"wake" and (entry in held or _place(entry) > last)
        ]
        marks = set(MARK.findall(b"\n".join(fields[1::2])))
        if key.endswith(b":log"):
            yield from (mark + b"@" + name for name in names for mark in marks)
        elif names or not groups:
            yield from marks


def _bodies(key: bytes) -> bytes:
    """Return the key of the bodies of what waits in another one."""
    name, _, kind = key.rpartition(b":")
    return name + b":waiting" if kind in (b"due", b"unhandled", b"priority", b"parked", b"lines") else key + b":Q"


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
