"""What is in Redis, and what scripts reply, as lines of text."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import redis

#: Lines of one key or of a reply that stand whole; of more the first and the last.
LONGEST = 24
#: Characters of a line of several words.
WIDTH = 118
_PLAIN = re.compile(r"[\w.:{}@*+|<>/=-]+")
#: The ids that the stage gives messages.
_ID = re.compile(r"jo0000000([0-9a-f])\1x{21}")
#: How the servers end and begin what they say of an error in a script.
_AROUND = re.compile(r"( script: .*| \(.*\)$|.*user_script:\s?\d+: )")


class View:
    """Reads the keys of one namespace, which it calls `mq`."""

    def __init__(self, client: redis.Redis, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        #: Whether to tell how many entries groups have read, which servers count from 7.0 on, and each in its own way.
        self.counts = False

    def state(self, keys: Sequence[bytes]) -> list[str]:
        """Return what keys hold, a line for each field, member, entry, group and delivery."""
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            pipeline.type(key)
            pipeline.pttl(key)
        found = pipeline.execute()
        lines: list[str] = []
        for key, kind, ttl in zip(keys, found[::2], found[1::2], strict=True):
            name = f"{self.text(key)} {kind.decode()}"
            lines += [f"{name} {line}" for line in getattr(self, f"_{kind.decode()}")(key)]
            lines += [f"{name} expires in about {round(ttl / 10_000) * 10} s"] * (ttl >= 0)
        return lines

    def text(self, value: Any) -> str:
        """Return a word or a number, in quotes where it needs them."""
        if not isinstance(value, bytes | str):
            return str(value)
        found = self._decoded(value)
        if _PLAIN.fullmatch(found):
            return found
        return f"'{found}'" if found.isprintable() and "'" not in found else json.dumps(found, ensure_ascii=False)

    def _decoded(self, value: bytes | str) -> str:
        found = value if isinstance(value, str) else value.decode(errors="backslashreplace")
        return _ID.sub(r"<m\1>", found.replace(self._namespace, "mq"))

    def reply(self, reply: Any) -> list[str]:
        """Return a reply, a line for each of its parts."""
        if isinstance(reply, Exception):
            return [f"error {_AROUND.sub('', self._decoded(str(reply)))}"]
        if isinstance(reply, list):
            return ["list", *(f"  {json.dumps(self._plain(part), ensure_ascii=False)}" for part in reply)]
        return [json.dumps(self._plain(reply), ensure_ascii=False)]

    def _plain(self, reply: Any) -> Any:
        if isinstance(reply, list):
            return [self._plain(part) for part in reply]
        return self._decoded(reply) if isinstance(reply, bytes) else reply

    def _none(self, key: bytes) -> Iterator[str]:
        yield from ()

    def _string(self, key: bytes) -> Iterator[str]:
        yield self.text(self._client.get(key))

    def _set(self, key: bytes) -> Iterator[str]:
        yield from sorted(self.text(member) for member in self._client.smembers(key))

    def _list(self, key: bytes) -> Iterator[str]:
        for place, value in enumerate(self._client.lrange(key, 0, -1)):
            yield f"{place} {self.text(value)}"

    def _hash(self, key: bytes) -> Iterator[str]:
        for field, value in sorted(self._client.hgetall(key).items()):
            yield f"{self.text(field)} {self.text(value)}"

    def _zset(self, key: bytes) -> Iterator[str]:
        for member, score in self._client.zrange(key, 0, -1, withscores=True, score_cast_func=bytes):
            yield f"{self.text(member)} {self.text(score)}"

    def _stream(self, key: bytes) -> Iterator[str]:
        # By a script, because the client would make a dictionary of the fields, which may be there twice.
        for entry, fields in self._client.eval("return redis.call('xrange', KEYS[1], '-', '+')", 1, key):
            yield f"{self.text(entry)} {' '.join(map(self.text, fields))}"
        for group in self._client.xinfo_groups(key):
            yield from self._group(key, group)

    def _group(self, key: bytes, group: dict[str, Any]) -> Iterator[str]:
        name = self.text(group["name"])
        yield f"group {name} read up to {self.text(group['last-delivered-id'])}"
        if self.counts and group.get("entries-read") is not None:
            yield f"group {name} has read {group['entries-read']} entries"
        for consumer in self._client.xinfo_consumers(key, group["name"]):
            yield f"group {name} has {self.text(consumer['name'])}"
        for held in self._client.xpending_range(key, group["name"], "-", "+", 100_000):
            times = held["times_delivered"]
            yield f"group {name} pending {self.text(held['message_id'])} {self.text(held['consumer'])} {times}"


def by_key(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a state, each key's under its name."""
    for name, of_key in groupby(lines, lambda line: line.split(" ", 2)[:2]):
        yield f"  {' '.join(name)}"
        yield from shortened([f"    {line.split(' ', 2)[2]}" for line in of_key])


def difference(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return the lines that are gone and those that are new."""
    was, now = set(before), set(after)
    return [
        *shortened([f"- {line}" for line in before if line not in now]),
        *shortened([f"+ {line}" for line in after if line not in was]),
    ]


def packed(what: str, words: Sequence[str]) -> list[str]:
    """Return words in lines of a bounded width, each line beginning with what they are."""
    lines = [what] if words else []
    for word in words:
        if len(lines[-1]) + len(word) > WIDTH and lines[-1] != what:
            lines.append(what)
        lines[-1] += f" {word}"
    return lines


def shortened(lines: Sequence[str]) -> list[str]:
    """Return lines, of many the first and the last with a digest of what is between them."""
    if len(lines) <= LONGEST:
        return list(lines)
    between = lines[4:-4]
    digest = hashlib.sha1("\n".join(between).encode(), usedforsecurity=False).hexdigest()[:12]
    return [*lines[:4], f"  ... {len(between)} lines with the digest {digest}", *lines[-4:]]
