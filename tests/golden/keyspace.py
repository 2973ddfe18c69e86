"""All keys of a namespace as text: what another program finds there."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import redis

from tests.golden.normal import Normal, minutes

#: The hour or day in a counter's key; its field's minute or hour; and the bucket of the time that a handler took.
_HOURS = re.compile(r"(:counters:[mh]):\d+$")
_SLOT, _BUCKET = re.compile(r"^\d+(?=\|)"), re.compile(r"(?<=\|t)\d+(?=\|)")

#: How many entries a group has read, which Redis tells from 7 on.
_READ = re.compile(r"(?<= position -> <now> <entry> <entry> )(?:-|\d+)")

#: The length of an id among packed fields: ids have the number of their process in them.
_LENGTH = re.compile(r"\d+(?=:<id \d+>,)")

#: The server of the last check.
_RUN_ID = re.compile(r"(?<= counted-by -> )\S+")

#: Fields that are there now and then: how long a batch waited is counted under the name of its first message, and how
#: far a scan for what is over has come.
_LEFT_OUT = re.compile(rb"\d+\|w\d+\|.*|claims-at|tidy-.*")

#: A stretch of time by its minutes, the longest first.
_SPANS = {"d": 24 * 60, "h": 60, "min": 1}


def dump(client: redis.Redis, namespace: str, *patterns: str) -> str:
    """Return the keys of a namespace that match patterns, or all, with their types, lifetimes and all that they hold.

    The namespace is shown as `mq`.
    """
    keyspace = _Keyspace(client, namespace, _normal(client))
    lines = (line.rstrip() for pattern in patterns or ["*"] for line in keyspace.lines(pattern))
    parts = ((_RUN_ID, "<run id>"), (_READ, "<read>"), (_LENGTH, "<length>"))
    return "".join(f"{_replaced(line, parts)}\n" for line in lines)


def _replaced(line: str, parts: Iterable[tuple[re.Pattern[str], str]]) -> str:
    for pattern, text in parts:
        line = pattern.sub(text, line)
    return line


@contextmanager
def heard(client: redis.Redis, namespace: str) -> Iterator[list[str]]:
    """Yield a list that has, at the end, what was said on the channels of a namespace meanwhile."""
    lines: list[str] = []
    with client.pubsub() as pubsub:
        pubsub.psubscribe(f"{namespace}:*")
        assert pubsub.get_message(timeout=10)["type"] == "psubscribe"
        yield lines
        client.publish(f"{namespace}:", "")
        keyspace = _Keyspace(client, namespace, _normal(client))
        while (said := pubsub.get_message(timeout=10))["data"]:
            lines.append(f"{keyspace.text(said['channel'])}  channel\n    {keyspace.text(said['data'])}\n")


def _normal(client: redis.Redis) -> Normal:
    seconds, micros = client.time()
    return Normal(seconds * 1000 + micros / 1000)


class _Keyspace:
    def __init__(self, client: redis.Redis, namespace: str, normal: Normal) -> None:
        self._client = client
        self._namespace = namespace
        self._normal = normal
        self._types: dict[str, Callable[[bytes], Iterator[str]]] = {
            "stream": self._stream,
            "hash": self._hash,
            "zset": self._sorted_set,
            "set": self._set,
            "string": self._string,
        }

    def lines(self, pattern: str) -> Iterator[str]:
        counters: dict[str, Counter[str]] = {}
        for key in sorted(self._client.scan_iter(match=f"{self._namespace}:{pattern}", count=1000), key=self._order):
            name, is_counter = _HOURS.subn(r"\1:<number>", self.text(key))
            kind = self._client.type(key).decode()
            if kind == "hash" and not self._fields(key):
                continue
            head = f"{name}  {kind}{self._lifetime(key)}"
            if is_counter:
                # At the end of an hour there are two.
                self._count(key, counters.setdefault(head, Counter()))
            else:
                yield from (head, *(f"    {line}" for line in self._types[kind](key)))
        for head, counts in counters.items():
            yield from (head, *(f"    {field} -> {count}" for field, count in sorted(counts.items())))

    def text(self, raw: bytes) -> str:
        """Return bytes as text that is the same in every run."""
        return self._normal.text(self._plain(raw))

    def _stream(self, key: bytes) -> Iterator[str]:
        for entry, fields in self._client.xrange(key):
            yield self.text(entry)
            for name, value in fields.items():
                yield from (f"    {line}" for line in self._value(f"{self.text(name)} ", value))
        for group in sorted(self._client.xinfo_groups(key), key=lambda group: group["name"]):
            yield f"group {self.text(group['name'])}, read up to {self.text(group['last-delivered-id'])}"
            for consumer in self._client.xinfo_consumers(key, group["name"]):
                yield f"    consumer {self.text(consumer['name'])}"
            for held in self._client.xpending_range(key, group["name"], "-", "+", 100):
                holder = self.text(held["consumer"])
                yield f"    {self.text(held['message_id'])} of {holder}, delivered {held['times_delivered']} times"

    def _hash(self, key: bytes) -> Iterator[str]:
        fields = self._fields(key)
        for field in sorted(fields, key=lambda field: self._order(field, fields[field])):
            yield from self._value(f"{self.text(field)} -> ", fields[field])

    def _sorted_set(self, key: bytes) -> Iterator[str]:
        # Not by score: within a millisecond the order is that of the members, which are random.
        scores = dict(self._client.zrange(key, 0, -1, withscores=True))
        # With as many digits as the others, because texts are compared.
        for member in sorted(scores, key=lambda member: self._order(f"{scores[member]:.4f}".encode(), member)):
            yield f"{self.text(member)} at {self.text(f'{scores[member]:.17g}'.encode())}"

    def _set(self, key: bytes) -> Iterator[str]:
        yield from (self.text(member) for member in sorted(self._client.smembers(key), key=self._order))

    def _string(self, key: bytes) -> Iterator[str]:
        yield from self.text(self._client.get(key)).split("\n")

    def _fields(self, key: bytes) -> dict[bytes, bytes]:
        return {name: value for name, value in self._client.hgetall(key).items() if not _LEFT_OUT.fullmatch(name)}

    def _value(self, name: str, value: bytes) -> Iterator[str]:
        first, *others = self.text(value).split("\n")
        yield from (f"{name}{first}", *(f"    {line}" for line in others))

    def _count(self, key: bytes, totals: Counter[str]) -> None:
        for field, value in self._fields(key).items():
            count = value
            name = _BUCKET.sub("<bucket>", _SLOT.sub("<slot>", self.text(field)))
            # Each key says which names it knows, and how many.
            totals[name] = max(totals[name], int(count)) if name.startswith("n|") else totals[name] + int(count)

    def _lifetime(self, key: bytes) -> str:
        left = self._client.pttl(key)
        return f", for {_span(minutes(left))}" if left >= 0 else ""

    def _order(self, *texts: bytes) -> Any:
        """Return the sort key of texts: what is the same in every run, then the names of the ids, then the texts.

        Two batches that are settled at the same time reach a stream in either order, and ids are named in that order.
        """
        plain = [self._plain(text) for text in texts]
        return (
            [self._normal.alike(text) for text in plain],
            [self._normal.known(text) for text in plain],
            [(len(text), text) for text in plain],
        )

    def _plain(self, raw: bytes) -> str:
        return raw.replace(self._namespace.encode(), b"mq").decode(errors="backslashreplace")


def _span(count: int) -> str:
    for unit, length in _SPANS.items():
        if count and not count % length:
            return f"{count // length} {unit}"
    return "less than a minute"
