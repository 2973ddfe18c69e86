"""Encode and decode messages: the wire protocol of `docs/protocol.md`.

Attributes have the names of CloudEvents. An entry has them as fields, or in a JSON object in its field `message`. Other
fields override those in the object.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from mq_django.core.attribute_values import BINARY_DATA, header_values, text_value, whole_value, with_data
from mq_django.core.exceptions import class_name
from mq_django.core.jsontext import dumps, loads
from mq_django.core.keys import PARKED_PREFIX, UNIQUE_PREFIX
from mq_django.core.messages import NO_HEADERS, Delivery, Message, Undecodable
from mq_django.core.numbers import LARGEST, LAST_MS
from mq_django.core.packed_fields import unpacked
from mq_django.errors import DecodeError

#: The most bytes of one entry. Parsing JSON can take 25 times its size in memory.
MAX_ENTRY_BYTES = 1024 * 1024
MAX_NAME_LENGTH = 255
#: The most fields and values of one entry: a script accepts only some thousands of arguments.
MAX_PARTS = 1000
#: Priorities are from -MAX_PRIORITY to MAX_PRIORITY.
MAX_PRIORITY = 100
#: Values of the attribute `alone`: the crash before was charged as an attempt, or not.
CHARGED, SUSPECT = "1", "suspect"

#: Attributes with a defined meaning. All others are headers. Recovery writes `alone` and `lost`; `story` has the
#: earlier attempts.
RESERVED = frozenset(
    (
        "id",
        "type",
        "data",
        "time",
        "partitionkey",
        "attempt",
        "expires",
        "priority",
        "unique",
        "claim",
        "specversion",
        "alone",
        "lost",
        "story",
        "message",
    )
)


def moment(milliseconds: int) -> str:
    """Return milliseconds since 1970 as an RFC 3339 timestamp."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment_ms(value: object) -> int | None:
    """Return an RFC 3339 timestamp, or a number of milliseconds, as milliseconds since 1970; None for None.

    Raises:
        DecodeError: it is not a time.
    """
    if value is None:
        return None
    # Some languages count milliseconds in floats.
    text = str(round(value)) if isinstance(value, float) else (text_value("a time", value) or "")
    try:
        if text.isdecimal():
            found = int(text[:20])
        else:
            # RFC 3339 allows small letters.
            parsed = datetime.fromisoformat(text.upper())
            found = round((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise DecodeError(f"not a time: {text[:80]!r}") from error
    if not 0 <= found <= LAST_MS:
        raise DecodeError(f"not a time: {text[:80]!r}")
    return found


def attributes(message: Message) -> list[str]:
    """Return a message's attributes without its data, as alternating names and values.

    The first two are `id` and `type`. Attributes with their default value are left out.
    """
    found = ["id", message.id, "type", message.name]
    if message.attempt != 1:
        found += ("attempt", str(message.attempt))
    if message.key is not None:
        found += ("partitionkey", message.key)
    if message.expires_ms is not None:
        found += ("expires", moment(message.expires_ms))
    if message.priority:
        found += ("priority", str(message.priority))
    if message.unique is not None:
        found += ("unique", message.unique)
    if message.claims:
        found += ("claim", "1")
    for header in message.headers.items():
        found += header
    return found


def encode_entry(message: Message, data_text: bytes) -> list[str | bytes]:
    """Return a message as the fields of a stream entry. Its time is in the entry's id."""
    return [*attributes(message), "data", data_text]


def encode_body(message: Message, data_text: bytes, *, member: str, alone: str = "", history: str = "") -> bytes:
    """Return a message as a JSON object for the waiting room, where it is stored under `member`.

    The id is left out if it is the member. The priority comes first, so that a script can read it without parsing the
    object. The time is a number, which saves 13 bytes. `alone` is the attribute of that name.
    """
    flat = attributes(message)
    pairs = [pair for pair in zip(flat[::2], flat[1::2], strict=True) if pair != ("id", member)]
    pairs.sort(key=lambda pair: pair[0] != "priority")
    if alone:
        pairs.append(("alone", alone))
    if history:
        pairs.append(("story", history))
    head = b",".join(dumps(name) + b":" + dumps(value) for name, value in pairs)
    time = b"" if message.published_ms is None else b',"time":%d' % message.published_ms
    return b"{" + head + time + b',"data":' + data_text + b"}"


def decode_entry(
    fields: list[bytes], *, queue: str, stream: int, entry: bytes, read_at: float = 0.0, id_end: str = ""
) -> Delivery | Undecodable:
    """Return the delivery in an entry, or an Undecodable with the reason. `read_at` is the delivery's attribute.

    `id_end` is the end of a missing id: of a partition its number, after a dot. Entries of two partitions may have the
    same id.
    """
    try:
        return _decode_any(fields, queue, stream, entry, read_at, id_end)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - any error concerns this entry only
        return Undecodable(stream, entry, fields, str(error)[:300] or class_name(type(error)))


def _values(found: dict[str, Any]) -> tuple[dict[str, Any], bytes | None]:
    """Return the attributes in the fields of an entry, and the text of its data, if that is a field."""
    text: bytes | None = found.pop("data", None)
    outer = {name: value.decode() for name, value in found.items()}
    body = outer.pop("message", None)
    values: dict[str, Any] = outer if body is None else decode_body(body.encode()) | outer
    if text is not None:
        values["data"] = loads(text)
    if values.get(BINARY_DATA) is not None:
        text = None  # the field `data` is null, and not what a retry writes
    if body is None or BINARY_DATA in outer:
        values = with_data(values)
    return values, text


#: Valid names by their bytes. The number is limited, because another program may send any number of names.
known_names: dict[bytes, str] = {}
_MAX_NAMES = 1000


def _name(value: object) -> str:
    """Return a valid message name. It must be printable, because it is used in logs and counters."""
    if value is None or value == "":
        raise DecodeError("the attribute type is missing")
    if not isinstance(value, str):
        raise DecodeError("type is not text")
    if len(value) > MAX_NAME_LENGTH or not value.isprintable():
        raise DecodeError(f"not a name: {value[:80]!r}")
    if len(known_names) < _MAX_NAMES:
        known_names[value.encode()] = value
    return value


def _id(value: str) -> str:
    """Return a valid message id. One that looks like a unique key could replace another message."""
    taken = value.startswith((UNIQUE_PREFIX, PARKED_PREFIX))
    if not 0 < len(value) <= MAX_NAME_LENGTH or not value.isprintable() or taken:
        raise DecodeError(f"not an id: {value[:80]!r}")
    return value


def _check_size(size: int) -> None:
    if size > MAX_ENTRY_BYTES:
        raise DecodeError(f"{size} bytes are more than the {MAX_ENTRY_BYTES} an entry may have")


def entry_ms(entry: bytes) -> int:
    """Return the milliseconds since 1970 in a stream entry's id, limited because ids can be set by hand."""
    found = int(entry.partition(b"-")[0])
    return found if found < LAST_MS else LAST_MS


def _decode_any(fields: list[bytes], queue: str, stream: int, entry: bytes, read_at: float, id_end: str) -> Delivery:
    if len(fields) > MAX_PARTS:
        raise DecodeError(f"{len(fields)} fields and values are more than the {MAX_PARTS} an entry may have")
    found: dict[str, Any] = {}
    size = 0
    for name, value in zip(fields[::2], fields[1::2], strict=True):
        size += len(name) + len(value)
        found[name.decode()] = value
    _check_size(size)
    if len(found) * 2 != len(fields):
        raise DecodeError("a field occurs twice")
    values, text = _values(found)
    if values.get("id") is None:
        values["id"] = entry.decode() + id_end
    return Delivery(
        message_of(values, queue=queue, entry=entry),
        stream,
        entry,
        dumps(values["data"]) if text is None else text,
        *isolation(values.get("alone")),
        history_of(values),
        read_at,
    )


def isolation(alone: object) -> tuple[bool, bool]:
    """Return `Delivery.alone` and `Delivery.suspect` for a value of the attribute `alone`."""
    return alone is not None, alone == SUSPECT


def history_of(found: Mapping[str, Any]) -> str:
    """Return the history of a message's attempts in its attributes, "" for none."""
    return text_value("story", found.get("story")) or ""


def alone_of(delivery: Delivery) -> str:
    """Return the attribute `alone` of a delivery, "" for none."""
    if not delivery.alone:
        return ""
    return SUSPECT if delivery.suspect else CHARGED


def decode_body(body: bytes, *, needs_data: bool = False) -> dict[str, Any]:
    """Return the attributes in a JSON object, such as one of the waiting room, or in packed fields of a line.

    Without data, its data is None.

    Raises:
        DecodeError: it is neither, is too large, or has no data and needs it.
    """
    _check_size(len(body))
    if body[:1].isdigit():
        return _values(dict(unpacked(body, 2 * MAX_PARTS)))[0]
    found = loads(body)
    if not isinstance(found, dict):
        raise DecodeError("the message is not a JSON object")
    if needs_data and "data" not in found and BINARY_DATA not in found:
        raise DecodeError("the message has no data")
    if len(found) * 2 > MAX_PARTS:
        raise DecodeError(f"{len(found)} attributes are more than a message may have")
    return with_data(found)


def message_of(found: Mapping[str, Any], *, queue: str, entry: bytes) -> Message:
    """Return the message with these attributes.

    A missing id is `entry`: the id of the entry, or the member under which it waits.

    Raises:
        DecodeError: an attribute is not valid.
    """
    try:
        return _message_of(found, queue, entry)
    except (DecodeError, MemoryError):
        raise
    except Exception as error:
        # For example, an attribute is nested too deep for str().
        raise DecodeError(f"not a message: {class_name(type(error))}") from error


def _message_of(found: Mapping[str, Any], queue: str, entry: bytes) -> Message:
    version = text_value("specversion", found.get("specversion")) or "1.0"
    if version != "1" and not version.startswith("1."):
        raise DecodeError(f"unknown version: {version[:80]!r}")
    published_ms = moment_ms(found.get("time"))
    if published_ms is None and b"-" in entry and entry.replace(b"-", b"").isdigit():
        published_ms = entry_ms(entry)
    message_id = text_value("id", found.get("id"))
    headers = {name: value for name, value in found.items() if name not in RESERVED}
    return Message(
        id=_id(entry.decode() if message_id is None else message_id),
        name=_name(found.get("type")),
        data=found["data"],
        queue=queue,
        attempt=whole_value("attempt", found.get("attempt"), 1, 1, LARGEST),
        key=text_value("partitionkey", found.get("partitionkey")),
        published_ms=published_ms,
        expires_ms=moment_ms(found.get("expires")),
        priority=whole_value("priority", found.get("priority"), 0, -MAX_PRIORITY, MAX_PRIORITY),
        unique=text_value("unique", found.get("unique")),
        headers=header_values(headers) if headers else NO_HEADERS,
        claims=found.get("claim") is not None,
    )
