"""The history of a queue: what became of its messages, kept for the AGE of its HISTORY.

A STREAM has it. The fields of an entry are the ids of up to 100 messages that were settled together, each with a JSON
line. A HASH has the latest entry of each id. Both have a TTL, so that they go when the queue keeps none any more.

The script that settles messages adds those that the consumer still held. A message is settled whether its history can
be written or not.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, get_args

from mq_django.conf import QueueConfig
from mq_django.core import clock
from mq_django.core.jsontext import LARGEST, LAST_MS, dumps, loads, object_in, whole
from mq_django.core.messages import ENDINGS, NO_HEADERS, Delivery, Ending, Message
from mq_django.core.redaction import redact, redact_forms
from mq_django.core.retries import MAX_ERROR
from mq_django.stores.base import Settlement
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Transport

#: The most bytes of JSON of a message's data and headers that are kept.
MAX_DATA = 4 * 1024
#: The most bytes of a line that are read.
MAX_LINE = 64 * 1024
#: Entries that a call removes: takes Redis less than a millisecond.
TRIM = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class HandledMessage:
    """A message in the history of a queue."""

    #: The entry of the history that has it.
    entry: str
    id: str
    name: str
    key: str | None
    unique: str | None
    #: The number of its last delivery, from 1.
    attempt: int
    priority: int
    ending: Ending
    #: When it was published, and when its handler started and finished, in ms since 1970; None if unknown.
    published_ms: int | None
    started_ms: int | None
    finished_ms: int | None
    #: How long its handler ran, in microseconds; None if none ran.
    micros: int | None
    consumer: str
    #: Bytes of JSON of its data.
    size: int
    #: Whether the data was kept.
    has_data: bool
    #: With secrets replaced.
    data: Any
    #: Kept with the data.
    headers: Mapping[str, str]


def history_of_batch(config: QueueConfig, consumer: str, settlements: Sequence[Settlement]) -> list[Argument]:
    """Return what a history keeps of messages that are settled: see `lua/settle.lua`."""
    assert config.history is not None
    # The part that all lines share.
    end = b',"consumer":%b,"finished":%d' % (dumps(consumer), clock.now_ms())
    args: list[Argument] = [config.history.age_ms]
    for number, settlement in enumerate(settlements, 1):
        # By number, because taking them apart takes longer.
        delivery, ending, micros = settlement[0], ENDINGS.get(type(settlement[1])), settlement[3]
        if ending is None or not isinstance(delivery, Delivery):
            continue
        message, text = delivery.message, delivery.data_text
        published = message.published_ms
        if published is None or micros is None:
            times = b',"published":%b,"micros":%b' % (_number(published), _number(micros))
        else:
            times = b',"published":%d,"micros":%d' % (published, micros)
        more = b""
        if message.key is not None or message.unique is not None or message.priority:
            more = _further_fields(message)
        if config.history.data:
            more += _data_fields(text, message.headers)
        head = _line_head(message.name, ending)
        args += (number, b'%b%b,"attempt":%d,"size":%d%b%b}' % (head, times, message.attempt, len(text), end, more))
    return args


def _number(value: int | None) -> bytes:
    return b"null" if value is None else b"%d" % value


@lru_cache(maxsize=1000)
def _line_head(name: str, ending: Ending) -> bytes:
    """Return the beginning of a line. Cached, because a queue has few names."""
    return b'{"name":%b,"ending":"%b"' % (dumps(name), ending.encode())


def _further_fields(message: Message) -> bytes:
    """Return the fields that few messages have."""
    names = {"key": message.key, "unique": message.unique}
    found: dict[str, Any] = {field: redact_forms(value) for field, value in names.items() if value is not None}
    if message.priority:
        found["priority"] = message.priority
    return b"," + dumps(found)[1:-1]


def _data_fields(text: bytes, headers: Mapping[str, str]) -> bytes:
    """Return the fields with the data and the headers, without secrets; nothing if they are too long together."""
    if len(text) + sum(map(len, headers.values())) > MAX_DATA:
        return b""
    # From the text, because a handler may have changed the value. Replaced secrets may make it longer.
    shown = dumps(redact(loads(text)))
    further = dumps(redact(dict(headers))) if headers else b""
    if len(shown) + len(further) > MAX_DATA:
        return b""
    return b',"data":' + shown + (further and b',"headers":' + further)


class HandledTrim(NamedTuple):
    """The result of a trim."""

    removed: int
    #: There may be more to remove.
    more: bool


class MessageHistory:
    """The history of one queue."""

    def __init__(self, config: QueueConfig, transport: Transport) -> None:
        self.config = config
        self._keys = config.keys
        self._transport = transport

    def trim(self) -> HandledTrim:
        """Remove the oldest messages beyond what HISTORY allows, a bounded number.

        Raises:
            StoreError: cannot reach Redis, or it refused.
        """
        history = self.config.history
        assert history is not None
        keys = [self._keys.handled, self._keys.handled_ids]
        removed, more = self._transport.run("handled_trim", keys, [history.age_ms, history.count, TRIM])
        return HandledTrim(removed, bool(more))

    def read_command(self, message_id: str) -> Command:
        """Return the command whose reply is the entry with a message, or None."""
        return ("HGET", self._keys.handled_ids, f"i:{message_id}")

    def find(self, message_id: str) -> HandledMessage | None:
        """Return what became of a message the last time, or None if the history does not have it.

        Raises:
            StoreError: cannot reach Redis.
        """
        entry = self._transport.ask(self.read_command(message_id))
        return self.get(entry.decode(errors="replace"), message_id) if entry else None

    def get(self, entry: str, message_id: str) -> HandledMessage | None:
        """Return a message of an entry of the history, or None.

        Raises:
            StoreError: cannot reach Redis.
        """
        first, dash, second = entry.partition("-")
        if not dash or whole(first) is None or whole(second) is None:
            return None
        named = message_id.encode(errors="replace")
        for found, fields in self._page(entry, entry, 1)[1]:
            for field, line in zip(fields[::2], fields[1::2], strict=True):
                if field == named:
                    return read_handled(found, message_id, line)
        return None

    def newest(
        self, *, after: str, limit: int, since_ms: int | None = None, until_ms: int | None = None
    ) -> Iterator[tuple[str, HandledMessage | None]]:
        """Yield up to `limit` messages, the newest first, each with the cursor that continues after it.

        A line that another program has written is None. Only those that ended since `since_ms` and before `until_ms`,
        by the clock of Redis: others are not read, because the ids of entries are times.

        Raises:
            StoreError: cannot reach Redis.
        """
        before, skipped = _position(after)
        if before == "+" and until_ms is not None:
            before = f"({min(max(1, until_ms), LAST_MS)}-0"
        first = "-" if since_ms is None else f"{min(max(0, since_ms), LAST_MS)}-0"
        size = 2
        while limit > 0:
            more, page = self._page(first, before, size)
            for entry, fields in page:
                there = entry == before
                pairs = [*zip(fields[::2], fields[1::2], strict=True)][::-1]
                for index, (field, line) in enumerate(pairs):
                    if there and index < skipped:
                        continue
                    if limit == 0:
                        return
                    limit -= 1
                    yield f"{entry}.{index + 1}", read_handled(entry, field.decode(errors="backslashreplace"), line)
                before = f"({entry}"
            if not more and len(page) < size:
                return
            # More, if the entries have few messages.
            size = max(1, min(100, limit, 500 * len(page) // (1 + sum(len(fields) // 2 for _, fields in page))))

    def _page(self, first: str, last: str, count: int) -> tuple[int, list[tuple[str, list[Any]]]]:
        """Return entries between two, the newest first, after 1 if these are not all because they have many bytes."""
        args: list[Argument] = [first, last, "xrevrange", count, MAX_LINE]
        more, *flat = self._transport.run("topic_page", [self._keys.handled], args)
        return more, [(entry.decode(), fields) for entry, fields in zip(flat[::2], flat[1::2], strict=True)]


def _position(cursor: str) -> tuple[str, int]:
    """Return the entry of a cursor and how many of its messages were read; the beginning if it is not valid."""
    entry, _, index = cursor.partition(".")
    first, dash, second = entry.partition("-")
    skipped = whole(index)
    if not dash or whole(first) is None or whole(second) is None or skipped is None:
        return "+", 0
    return entry, skipped


def read_handled(entry: str, message_id: str, text: object) -> HandledMessage | None:
    """Return the message of a line, or None if another program has written it."""
    line = object_in(text)
    ending = next((ending for ending in get_args(Ending) if ending == line.get("ending")), None)
    if ending is None or not isinstance(line.get("name"), str):
        return None
    finished, micros = whole(line.get("finished"), LAST_MS), whole(line.get("micros"), LARGEST)
    started = None if finished is None or micros is None else max(0, finished - micros // 1000)
    priority, headers = line.get("priority"), line.get("headers")
    return HandledMessage(
        entry=entry,
        id=message_id,
        name=line["name"],
        key=_text(line.get("key")),
        unique=_text(line.get("unique")),
        attempt=whole(line.get("attempt")) or 1,
        priority=priority if isinstance(priority, int) and abs(priority) <= 100 else 0,
        ending=ending,
        published_ms=whole(line.get("published"), LAST_MS),
        started_ms=started,
        finished_ms=finished,
        micros=micros,
        consumer=(_text(line.get("consumer")) or "")[:MAX_ERROR],
        size=whole(line.get("size")) or 0,
        has_data="data" in line,
        data=line.get("data"),
        headers={name: value for name, value in headers.items() if isinstance(value, str)}
        if isinstance(headers, dict)
        else NO_HEADERS,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
