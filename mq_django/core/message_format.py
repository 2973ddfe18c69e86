"""Encode and decode messages: the wire protocol of `docs/protocol.md`.

Attributes have the names of CloudEvents. An entry has them as fields, or in a JSON object in its field `message`. Other
fields override those in the object.
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any, Literal

from mq_django.core.jsontext import LARGEST, LAST_MS, dumps, loads, parser_of
from mq_django.core.keys import PARKED_PREFIX, UNIQUE_PREFIX
from mq_django.core.messages import NO_HEADERS, Delivery, Message, Undecodable
from mq_django.core.texts import class_name
from mq_django.errors import DecodeError

#: The version of the protocol in `docs/protocol.md`, which says what changes it. Supervisors announce it.
PROTOCOL = 1

# Read the values of attributes, which other programs write in all forms that JSON has.
#
# null means that the attribute is absent. A number or a boolean where text is expected has its form in JSON as its
# text, as in CloudEvents. What does not fit is an error: it would be lost, or mean something else.

#: In CloudEvents, names of extension attributes are lower-case letters and digits.
HEADER_NAME = re.compile(r"[a-z0-9]{1,64}", re.ASCII)
#: The attribute with the bytes of a CloudEvent in Base64, and the header that says that the data are such a text.
BINARY_DATA, ENCODING_HEADER, BASE64 = "data_base64", "datacontentencoding", "base64"
_WHOLE = re.compile(r"-?[0-9]{1,19}", re.ASCII)
#: Valid names of headers. The number is limited, because another program may send any number of names.
_header_names: set[str] = set()
_MAX_NAMES = 1000


def text_value(name: str, value: object) -> str | None:
    """Return an attribute's value as text, None for null.

    Raises:
        DecodeError: it is an array or an object.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return dumps(value).decode()
    raise DecodeError(f"{name} is not text")


def whole_value(name: str, value: object, default: int, least: int, most: int) -> int:
    """Return an attribute's value as a whole number, `default` for null.

    Raises:
        DecodeError: it is not a number, or not from `least` to `most`.
    """
    if value is None:
        return default
    text = text_value(name, value) or ""
    found = int(text) if _WHOLE.fullmatch(text) else None
    if found is None and isinstance(value, float) and value.is_integer():
        found = int(value)
    if found is None or not least <= found <= most:
        raise DecodeError(f"{name} is not a whole number from {least} to {most}: {text[:80]!r}")
    return found


def header_values(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers among these attributes, which are all that have no other meaning.

    Raises:
        DecodeError: a name or a value is not valid.
    """
    if not _header_names.issuperset(found):
        for name in found:
            if not HEADER_NAME.fullmatch(name):
                raise DecodeError(f"not the name of an attribute, 1 to 64 lower-case letters and digits: {name[:80]!r}")
        if len(_header_names) < _MAX_NAMES:
            _header_names.update(found)
    return {name: text for name, value in found.items() if (text := text_value(name, value)) is not None}


def with_data(found: dict[str, Any]) -> dict[str, Any]:
    """Return attributes with data: null where there is none, and for the bytes of a CloudEvent their Base64 text.

    Raises:
        DecodeError: there are data and bytes, or the bytes are not Base64.
    """
    binary = found.pop(BINARY_DATA, None)
    if binary is None:
        found.setdefault("data", None)
        return found
    if found.get("data") is not None:
        raise DecodeError(f"the message has both data and {BINARY_DATA}")
    try:
        b64decode(binary, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise DecodeError(f"{BINARY_DATA} is not Base64") from error
    return found | {"data": binary, ENCODING_HEADER: BASE64}


# The fields of an entry as one text, for a message that waits in the line of its key: netstrings, by D. J. Bernstein.
#
# `lua/parts/line_fields.lua` writes it.


def unpacked(body: bytes, most: int) -> Iterator[tuple[str, bytes]]:
    """Return the packed fields of an entry, at most this many names and values.

    Raises:
        DecodeError: it is something else.
    """
    parts, at = list[bytes](), 0
    while at < len(body):
        size, colon, _ = body[at : at + 10].partition(b":")
        first = at + len(size) + 1
        at = first + (int(size) if colon and size.isdigit() else len(body)) + 1
        parts.append(body[first : at - 1])
    if at != len(body) or len(parts) % 2 or len(parts) > most:
        raise DecodeError("not a message of a line")
    return zip([name.decode() for name in parts[::2]], parts[1::2], strict=True)


#: The most bytes of one entry. Parsing JSON can take 25 times its size in memory.
MAX_ENTRY_BYTES = 1024 * 1024
MAX_NAME_LENGTH = 255
#: The most fields and values of one entry: a script accepts only some thousands of arguments.
MAX_PARTS = 1000
#: Priorities are from -MAX_PRIORITY to MAX_PRIORITY.
MAX_PRIORITY = 100
#: Names for some of them, wherever a program or a person says one. Messages have the numbers.
PRIORITIES = {"high": 10, "normal": 0, "low": -10}
#: A priority as a program says it.
Priority = int | Literal["high", "normal", "low"]
#: Values of the attribute `alone`: whether the crash before was charged as an attempt.
CHARGED, SUSPECT = "1", "suspect"

#: The attribute of a message that a breaker lets through.
PROBE = "mqprobe"
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
        PROBE,
        "message",
    )
)


def numbered(priority: Any) -> Any:
    """Return the number of a priority that is named, or of an IntEnum or IntegerChoices; anything else as it is."""
    if type(priority) is int:
        return priority
    if isinstance(priority, IntEnum):
        return priority.value
    return PRIORITIES.get(priority, priority) if isinstance(priority, str) else priority


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
    object. The time is a number, which saves 13 bytes. `alone` is the message's attribute.
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

    A message without an id gets that of its entry, with `id_end` appended: two partitions may have the same entry ids.
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
        text = None  # the field `data` is null: a retry must write the text in Base64
    if body is None or BINARY_DATA in outer:
        values = with_data(values)
    return values, text


#: Valid names by their bytes. The number is limited, because another program may send any number of names.
known_names: dict[bytes, str] = {}


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
        text_value(PROBE, values.get(PROBE)) or "",
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


# Decode the entries of a reply together: faster than one by one, with the same results.

#: The fields of most entries of our own producers.
_OURS = (b"id", b"type", b"data")
#: Makes a named tuple in half the time that its own constructor takes.
_new = tuple.__new__


def decode_entries(
    entries: list[Any], *, queue: str, stream: int, read_at: float = 0.0, id_end: str = ""
) -> list[Delivery | Undecodable]:
    """Return what decode_entry() returns for each entry. An entry is its id with its fields, or None for no fields.

    The list is emptied.
    """
    parse = parser_of([fields[5] for _, fields in entries if fields is not None and len(fields) == 6])
    decoded: list[Delivery | Undecodable] = []
    add, start, ms = decoded.append, b"-", 0
    # What is decoded is freed at once: the garbage collector need not look at it.
    entries.reverse()
    while entries:
        entry, fields = entries.pop()
        try:
            first, message_id, second, type_, third, text = fields
            # isalnum() is the fastest check of an id. Ids of partitions have a dot; see _decode_any() for others.
            is_plain = message_id.isalnum() or message_id.replace(b".", b"").isalnum()
            if is_plain and (first, second, third) == _OURS and len(message_id) <= MAX_NAME_LENGTH:
                name = known_names.get(type_)
                if name is not None and len(text) <= MAX_ENTRY_BYTES:
                    # Many entries have the time of the one before.
                    if not entry.startswith(start):
                        ms, start = entry_ms(entry), entry.partition(b"-")[0] + b"-"
                    # All values one by one: to add the defaults with * takes twice as long.
                    values = (
                        message_id.decode(),
                        name,
                        parse(text),
                        queue,
                        1,
                        None,
                        ms,
                        None,
                        0,
                        None,
                        NO_HEADERS,
                        False,
                    )
                    add(_new(Delivery, (_new(Message, values), stream, entry, text, False, False, "", read_at, "")))
                    continue
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001, S110 - decode_entry() finds the reason
            pass
        add(decode_entry(fields or [], queue=queue, stream=stream, entry=entry, read_at=read_at, id_end=id_end))
    return decoded
