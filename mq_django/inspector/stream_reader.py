"""Pages of what is ready and of what consumers hold. Nothing here changes anything."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from mq_django.conf import QueueConfig, RsmqConfig
from mq_django.core.keys import LOG, READY, URGENT, GroupKeys, RsmqKeys, TopicKeys
from mq_django.core.numbers import score_ms
from mq_django.core.offsets import Place, first, last
from mq_django.inspector.queue_looks import MAX_LISTED, Pages, Waiter
from mq_django.stores.dead_letter_queue import is_entry
from mq_django.stores.entry_fields import fields_of
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Wire, reply_or_raise

#: Where a message that is ready or pending is, in the order in which they are read. Only groups of topics have the
#: last, and queues in RSMQ's format have nothing but the second, which then is all of RSMQ's set.
Home = Literal["urgent", "priority", "ready", "log"]

HOMES: tuple[Home, ...] = get_args(Home)
_STREAMS: dict[Home, int] = {"urgent": URGENT, "ready": READY, "log": LOG}

#: So many of the messages before one are counted.
MAX_BEFORE = 1000


class Entry(NamedTuple):
    """A message that is ready or pending."""

    home: Home
    #: Of the stream; of `priority`, the member.
    entry: bytes
    #: A value that is too long for a page is its length instead. Of `priority`, empty.
    values: Mapping[bytes, bytes | int]
    #: Of `priority`.
    waiter: Waiter | None = None
    #: Who holds it; empty when it is ready.
    consumer: str = ""
    #: Since it was handed out, or its consumer last said that it still works on it.
    idle_ms: int = 0
    #: From where to go on after it.
    cursor: str = ""


class Entries:
    """What is in the streams of one queue, and in line before them."""

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        self._config = config
        self._keys = config.keys
        self._pages = Pages(config, wire)
        self._wire = wire
        self._homes: tuple[Home, ...] = HOMES if isinstance(self._keys, GroupKeys) else HOMES[:-1]

    def ready(self, *, after: str = "", limit: int, max_bytes: int = MAX_LISTED) -> list[Entry]:
        """Return up to `limit` ready messages: what goes first, by priority, and then as they came.

        Those with a negative priority are among the second, though they are handed out last. `after` is the cursor of
        the last that was seen.
        """
        begin, place = _cursor(after)
        if isinstance(self._keys, RsmqKeys):
            return self._ranked(int(place or 0), limit, max_bytes)
        found: list[Entry] = []
        for home in self._homes[HOMES.index(begin) :]:
            if len(found) < limit:
                found += self._ready(home, place if home == begin else "", limit - len(found), max_bytes)
        return found

    def _ready(self, home: Home, place: str, limit: int, max_bytes: int) -> list[Entry]:
        if home == "priority":
            return self._ranked(int(place or 0), limit, max_bytes)
        args: list[Argument] = [self._keys.group, place, limit, max_bytes]
        command = scripts.command("entries_ready", keys=[self._stream(home)], args=args)
        flat = reply_or_raise(self._wire.trip([command])[0])
        return [
            Entry(home, entry, fields_of(fields), cursor=f"{home}.{entry.decode()}")
            for entry, fields in zip(flat[::2], flat[1::2], strict=True)
        ]

    def _ranked(self, start: int, limit: int, max_bytes: int) -> list[Entry]:
        is_rsmq = isinstance(self._keys, RsmqKeys)
        read = self._pages.visible if is_rsmq else self._pages.ranked
        page = read(start=start, limit=limit, max_bytes=max_bytes)
        return [
            Entry("priority", waiter.member, {}, waiter, cursor=f"priority.{start + place + 1}")
            for place, waiter in enumerate(page.waiters)
            if not is_rsmq or waiter.score <= page.now_ms
        ]

    def pending(self, *, after: str = "", limit: int, max_bytes: int = MAX_LISTED) -> list[Entry]:
        """Return up to `limit` messages that consumers hold, with who does and for how long."""
        begin, place = _cursor(after)
        if isinstance(self._keys, RsmqKeys):
            return self._owned(self._keys, int(place or 0), limit)
        found: list[Entry] = []
        for home in self._homes[HOMES.index(begin) :]:
            if home != "priority" and len(found) < limit:
                first = f"({place}" if home == begin and place else "-"
                found += self._pending(home, first, limit - len(found), max_bytes)
        return found

    def _owned(self, keys: RsmqKeys, start: int, limit: int) -> list[Entry]:
        (reply,) = self._wire.trip([("HGETALL", keys.owners)])
        flat = reply_or_raise(reply)
        owners = dict(sorted(zip(flat[::2], flat[1::2], strict=True))[start : start + limit])
        if not owners:
            return []
        commands: list[Command] = [("HMGET", keys.hash, *owners), ("ZMSCORE", keys.zset, *owners), ("TIME",)]
        bodies, scores, time = (reply_or_raise(reply) for reply in self._wire.trip(commands))
        return [
            Entry(
                *("priority", member, {}, Waiter(member, 0.0, body)),
                *(_owner(owner), self._held_ms(score, time)),
                cursor=f"priority.{start + place + 1}",
            )
            for place, ((member, owner), body, score) in enumerate(zip(owners.items(), bodies, scores, strict=True))
        ]

    def _held_ms(self, score: bytes | None, time: Sequence[bytes]) -> int:
        """Return for how long a message of RSMQ is hidden since it was received or its consumer extended that."""
        visible_ms = score_ms(score)
        if visible_ms is None or not isinstance(self._config, RsmqConfig):
            return 0
        return max(0, _now_ms(time) + self._config.vt * 1000 - visible_ms)

    def _of_rsmq(self, keys: RsmqKeys, entry: bytes) -> Entry | None:
        waiter = self._pages.rsmq_one(entry)
        if waiter is None:
            return None
        commands: list[Command] = [("HGET", keys.owners, entry), ("HGET", keys.hash, entry + b":rc"), ("TIME",)]
        owner, count, time = (reply_or_raise(reply) for reply in self._wire.trip(commands))
        # Whoever received it since, with another count, need not be one of ours.
        if owner is None or waiter.score <= _now_ms(time) or owner.rpartition(b" ")[2] != count:
            return Entry("priority", entry, {}, waiter)
        held_ms = self._held_ms(str(waiter.score).encode(), time)
        return Entry("priority", entry, {}, waiter, _owner(owner), held_ms)

    def _pending(self, home: Home, first: str, limit: int, max_bytes: int) -> list[Entry]:
        args: list[Argument] = [self._keys.group, first, limit, max_bytes]
        command = scripts.command("entries_pending", keys=[self._stream(home)], args=args)
        flat = reply_or_raise(self._wire.trip([command])[0])
        return [
            Entry(
                *(home, entry, fields_of(fields), None, consumer.decode(errors="backslashreplace"), idle),
                cursor=f"{home}.{entry.decode()}",
            )
            for entry, consumer, idle, fields in zip(flat[::4], flat[1::4], flat[2::4], flat[3::4], strict=True)
        ]

    def get(self, home: Home, entry: bytes, *, max_bytes: int) -> Entry | None:
        """Return a message that is ready or pending, or None."""
        if isinstance(self._keys, RsmqKeys):
            return self._of_rsmq(self._keys, entry)
        if home == "priority":
            waiter = self._pages.ranked_one(entry)
            return None if waiter is None else Entry("priority", entry, {}, waiter)
        if home not in self._homes:
            return None
        text = entry.decode(errors="replace")
        if not is_entry(text):
            return None
        stream = self._stream(home)
        found, pending = self._wire.trip(
            [("XRANGE", stream, text, text), ("XPENDING", stream, self._keys.group, text, text, 1)]
        )
        if not reply_or_raise(found):
            return None
        values = fields_of(found[0][1])
        if isinstance(pending, Exception) or not pending:
            return Entry(home, entry, values)
        _, consumer, idle, _ = pending[0]
        return Entry(home, entry, values, None, consumer.decode(errors="backslashreplace"), idle)

    def find(self, named: bytes, *, max_bytes: int) -> Entry | None:
        """Return a message whose id leads to it: by priority, of RSMQ, or an entry's own; or None."""
        found = self.get("priority", named, max_bytes=max_bytes)
        if found is not None or isinstance(self._keys, RsmqKeys):
            return found
        homes = (home for home in self._homes if home != "priority")
        return next((found for home in homes if (found := self.get(home, named, max_bytes=max_bytes))), None)

    def some(self, receipts: Sequence[tuple[int, str]], *, max_bytes: int = MAX_LISTED) -> dict[tuple[int, str], Entry]:
        """Return those of some deliveries that are still there, by the number of their stream and their receipt."""
        if isinstance(self._keys, RsmqKeys):
            # Behind the id stands how often it was received.
            script, keys = "rsmq_some", [self._keys.hash]
            asked = {receipt: receipt[1].rpartition(":")[0] for receipt in receipts}
        else:
            # Behind an entry of a log stands the group's generation.
            script, keys = "entries_some", list(self._keys.homes())
            named = {(home, entry): entry.partition("@")[0] for home, entry in receipts if 0 <= home < len(keys)}
            asked = {receipt: entry for receipt, entry in named.items() if is_entry(entry)}
        if not asked:
            return {}
        args: list[Argument] = [max_bytes]
        for (home, _), entry in asked.items():
            args += (home + 1, entry)
        found = reply_or_raise(self._wire.trip([scripts.command(script, keys=keys, args=args)])[0])
        return {
            receipt: self._one(receipt[0], entry.encode(), value)
            for (receipt, entry), value in zip(asked.items(), found, strict=True)
            if value
        }

    def _one(self, home: int, entry: bytes, value: Any) -> Entry:
        if isinstance(self._keys, RsmqKeys):
            return Entry("priority", entry, {}, Waiter(entry, 0.0, value))
        return Entry(next(name for name in _STREAMS if _STREAMS[name] == home), entry, fields_of(value))

    def before(self, home: Home, entry: bytes) -> int:
        """Count the messages that stand before a ready one; from `MAX_BEFORE` on there may be more."""
        if isinstance(self._keys, RsmqKeys):
            (rank,) = self._wire.trip([("ZRANK", self._keys.zset, entry)])
            return int(reply_or_raise(rank) or 0)
        keys = [self._keys.ready, self._keys.urgent, self._keys.priority]
        if home == "log":
            # Before the log a group reads what it keeps itself.
            keys, home = [self._stream("log"), self._keys.ready, self._keys.priority], "ready"
        command = scripts.command("entries_before", keys=keys, args=[self._keys.group, home, entry, MAX_BEFORE])
        return int(reply_or_raise(self._wire.trip([command])[0]))

    def _stream(self, home: Home) -> str:
        return self._keys.homes()[_STREAMS[home]]


def page_of_log(
    keys: TopicKeys,
    wire: Wire,
    since: Place,
    until: Place,
    *,
    after: str = "",
    limit: int,
    newest_first: bool = False,
    max_bytes: int = MAX_LISTED,
) -> list[Entry]:
    """Return up to `limit` entries of a log between two places, both included, from the one after `after` on."""
    begins, ends = first(since), last(until)
    if after:
        begins, ends = (begins, f"({after}") if newest_first else (f"({after}", ends)
    order = "xrevrange" if newest_first else "xrange"
    command = scripts.command("topic_page", keys=[keys.log], args=[begins, ends, order, limit, max_bytes])
    flat = reply_or_raise(wire.trip([command])[0])
    return [
        Entry("log", entry, fields_of(fields), cursor=entry.decode())
        for entry, fields in zip(flat[::2], flat[1::2], strict=True)
    ]


def _owner(told: bytes) -> str:
    return told.rpartition(b" ")[0].decode(errors="backslashreplace")


def _now_ms(time: Sequence[bytes]) -> int:
    return int(time[0]) * 1000 + int(time[1]) // 1000


def _cursor(text: str) -> tuple[Home, str]:
    """Return where a cursor points; one that makes no sense points to the beginning."""
    home, _, place = text.partition(".")
    if home == "priority" and place.isdecimal() and len(place) < 16:
        return "priority", place
    for known in _STREAMS:
        if home == known and is_entry(place):
            return known, place
    return HOMES[0], ""
