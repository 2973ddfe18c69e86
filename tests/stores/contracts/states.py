"""What is in Redis, and what scripts reply, as lines of text."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import redis

#: Texts of one key or of a reply that stand whole; of more the first and the last.
LONGEST = 24
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


class Lines(dict[str, list[str]]):
    """What keys hold: by the name and the type of a key, its parts as texts."""


class View:
    """Reads the keys of one namespace, which it calls `mq`."""

    def __init__(self, client: redis.Redis, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        #: What to tell of groups in which servers differ: a consumer that found nothing is known from 7.2 on.
        self.detail: Detail | None = None

    def state(self, keys: Sequence[bytes]) -> Lines:
        """Return what keys hold, a text for each field, member, entry, group and delivery."""
        lines = Lines()
        for key, (kind, ttl, found) in zip(keys, self._client.eval(READ, len(keys), *keys), strict=True):
            texts = list(getattr(self, f"_{kind.decode()}")(found))
            texts += [f"expires in about {round(ttl / 10_000) * 10} s"] * (ttl >= 0)
            lines[f"{self.text(key)} {kind.decode()}"] = texts
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
        """Return a reply in lines."""
        if isinstance(reply, Exception):
            return [f"= error {_OUT_OF_MEMORY.sub('', _AROUND.sub('', self._decoded(str(reply)))).strip()}"]
        if isinstance(reply, list):
            return packed("=", shortened([json.dumps(self._plain(part), ensure_ascii=False) for part in reply])) or [
                "= []"
            ]
        return [f"= {json.dumps(self._plain(reply), ensure_ascii=False)}"]

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


def of_keys(lines: Lines, keys: Sequence[str]) -> Lines:
    """Return what some of the keys hold."""
    return Lines({name: texts for name, texts in lines.items() if name.rpartition(" ")[0] in keys})


def difference(before: Lines, after: Lines, signs: tuple[str, str] = ("- ", "+ ")) -> list[str]:
    """Return what is gone and what is new, each key's behind its name."""
    found = []
    for sign, some, others in ((signs[0], before, after), (signs[1], after, before)):
        for name, texts in some.items():
            known = set(others.get(name, ()))
            if left := [text for text in texts if text not in known]:
                found += packed(f"{sign}{name}:", shortened(left), ", ")
    return found


def shown(title: str, lines: Sequence[str]) -> list[str]:
    """Return lines under a title, which stands before the reply."""
    return [f"{title} {lines[0]}", *lines[1:]]


def packed(what: str, words: Sequence[str], between: str = " ") -> list[str]:
    """Return words in lines of a bounded width, the first behind what they are."""
    lines = [what] if words else []
    for place, word in enumerate(words):
        joint = between if place else " "
        if len(lines[-1]) + len(joint) + len(word) > WIDTH and lines[-1] != what:
            lines[-1] += joint.rstrip()
            lines.append(f"    {word}")
        else:
            lines[-1] += f"{joint}{word}"
    return lines


def shortened(texts: Sequence[str]) -> list[str]:
    """Return texts, of many the first and the last with a digest of what is between them."""
    if len(texts) <= LONGEST:
        return list(texts)
    between = texts[2:-2]
    digest = hashlib.sha1("\n".join(between).encode(), usedforsecurity=False).hexdigest()[:12]
    return [*texts[:2], f"... {len(between)} with the digest {digest} ...", *texts[-2:]]
