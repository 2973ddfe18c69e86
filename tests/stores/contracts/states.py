"""What is in Redis, and what scripts reply, as lines of text."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

import redis

#: Lines of one key or of a reply that stand whole; of more the first and the last.
LONGEST = 60
#: Since a delivery: longer than any test runs, and less than what a scene sets.
LONG_AGO_MS = 600_000
#: Characters of a line of several words.
WIDTH = 118
_PLAIN = re.compile(r"[\w.:{}@*+|<>/=-]+")
#: Returns type, milliseconds to live and content of each of some keys that are there.
READ = """
local function groups_of(key)
  local groups = redis.call('xinfo', 'groups', key)
  for at, group in ipairs(groups) do
    local name = group[2]
    local pending = redis.call('xpending', key, name, '-', '+', 100000)
    groups[at] = { group, redis.call('xinfo', 'consumers', key, name), pending }
  end
  return groups
end
local reads = {
  string = function(key) return redis.call('get', key) end,
  set = function(key) return redis.call('smembers', key) end,
  list = function(key) return redis.call('lrange', key, 0, -1) end,
  hash = function(key) return redis.call('hgetall', key) end,
  zset = function(key) return redis.call('zrange', key, 0, -1, 'withscores') end,
  stream = function(key) return { redis.call('xrange', key, '-', '+'), groups_of(key) } end,
}
local reply = {}
for at, key in ipairs(KEYS) do
  local kind = redis.call('type', key).ok
  reply[at] = { kind, redis.call('pttl', key), reads[kind](key) }
end
return reply
"""
#: The ids that the stage gives messages.
_ID = re.compile(r"jo0000000([0-9a-f])\1x{21}")
#: A server chooses another one at each start.
_RUN_ID = re.compile(r"\b[0-9a-f]{40}\b")
#: How the servers end and begin what they say of an error in a script.
_OUT_OF_MEMORY = re.compile(r"^-?(OOM )?(?=command not allowed)")
_AROUND = re.compile(r"( script: .*| \(.*\)$|.*user_script:\s?\d+: )")


Detail = Literal["entries read", "consumers"]


class View:
    """Reads the keys of one namespace, which it calls `mq`."""

    def __init__(self, client: redis.Redis, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        #: What to tell of groups in which servers differ: a consumer that found nothing is known from 7.2 on.
        self.detail: Detail | None = None

    def state(self, keys: Sequence[bytes]) -> list[str]:
        """Return what keys hold, a line for each field, member, entry, group and delivery."""
        lines: list[str] = []
        for key, (kind, ttl, found) in zip(keys, self._client.eval(READ, len(keys), *keys), strict=True):
            name = f"{self.text(key)} {kind.decode()}"
            lines += [f"{name} {line}" for line in getattr(self, f"_{kind.decode()}")(found)]
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
        return _RUN_ID.sub("<run-id>", _ID.sub(r"<m\1>", found.replace(self._namespace, "mq")))

    def reply(self, reply: Any) -> list[str]:
        """Return a reply, a line for each of its parts."""
        if isinstance(reply, Exception):
            return [f"error {_OUT_OF_MEMORY.sub('', _AROUND.sub('', self._decoded(str(reply)))).strip()}"]
        if isinstance(reply, list):
            return ["list", *(f"  {json.dumps(self._plain(part), ensure_ascii=False)}" for part in reply)]
        return [json.dumps(self._plain(reply), ensure_ascii=False)]

    def _plain(self, reply: Any) -> Any:
        if isinstance(reply, list):
            return [self._plain(part) for part in reply]
        return self._decoded(reply) if isinstance(reply, bytes) else reply

    def _string(self, value: bytes) -> Iterator[str]:
        yield self.text(value)

    def _set(self, members: Sequence[bytes]) -> Iterator[str]:
        yield from sorted(map(self.text, members))

    def _list(self, values: Sequence[bytes]) -> Iterator[str]:
        for place, value in enumerate(values):
            yield f"{place} {self.text(value)}"

    def _hash(self, flat: Sequence[bytes]) -> Iterator[str]:
        yield from sorted(self._zset(flat))

    def _zset(self, flat: Sequence[bytes]) -> Iterator[str]:
        for name, value in zip(flat[::2], flat[1::2], strict=True):
            yield f"{self.text(name)} {self.text(value)}"

    def _stream(self, found: Sequence[Any]) -> Iterator[str]:
        entries, groups = found
        for entry, fields in entries:
            yield f"{self.text(entry)} {' '.join(map(self.text, fields))}"
        for flat, consumers, pending in groups:
            yield from self._group(dict(zip(flat[::2], flat[1::2], strict=True)), consumers, pending)

    def _group(self, group: Mapping[bytes, Any], consumers: Sequence[Any], pending: Sequence[Any]) -> Iterator[str]:
        name = f"group {self.text(group[b'name'])}"
        yield f"{name} read up to {self.text(group[b'last-delivered-id'])}"
        if self.detail == "entries read" and group.get(b"entries-read") is not None:
            yield f"{name} has read {group[b'entries-read']} entries"
        for consumer in consumers if self.detail == "consumers" else []:
            yield f"{name} has {self.text(consumer[1])}"
        for entry, consumer, idle_ms, times in pending:
            age = " long ago" * (idle_ms > LONG_AGO_MS)
            yield f"{name} pending {self.text(entry)} {self.text(consumer)} {times}{age}"


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
