"""RSMQ's format: names, ids, limits, and how bodies are encoded and decoded."""

import re
import secrets
import string
import time

from mq_django.core.jsontext import dumps
from mq_django.core.keys import NAME
from mq_django.core.messages import Delivery, Message, Undecodable
from mq_django.core.wire import MAX_ENTRY_BYTES, decode_body, encode_body, isolation, message_of
from mq_django.errors import DecodeError, InvalidFormat, InvalidMessage, InvalidValue

DEFAULT_VT, DEFAULT_DELAY, DEFAULT_MAXSIZE = 30, 0, 65536
MAX_SECONDS = 9_999_999
MIN_MAXSIZE, MAX_MAXSIZE, UNLIMITED = 1024, 65536, -1

#: The name of messages that other programs have sent: their data is the body as text.
TEXT = "message"

#: The most messages that one call sends or receives, because a call blocks Redis.
MAX_SENT, MAX_RECEIVED = 1000, 500

#: An id: microseconds since 1970 in base 36, and 22 random letters and digits.
MESSAGE_ID = re.compile(r"[a-zA-Z0-9:]{32}", re.ASCII)
_OWN_ID = re.compile(r"[0-9a-z]{10}[a-zA-Z0-9]{22}", re.ASCII)
_DIGITS = string.digits + string.ascii_lowercase
_LETTERS = string.digits + string.ascii_letters


def check_queue(name: object) -> str:
    """Return a valid name of a new queue, else raise InvalidFormat."""
    # The key of a queue `QUEUES` would be that of the set of names.
    if not isinstance(name, str) or not NAME.fullmatch(name) or name == "QUEUES":
        raise InvalidFormat(f"Invalid qname format: 1 to 160 letters, digits, - and _, not {name!r:.200}")
    return name


def check_existing(name: object) -> str:
    """Return a name that other programs may give a queue, which is any without a colon, else raise InvalidFormat."""
    if not isinstance(name, str) or not name or ":" in name or name == "QUEUES":
        raise InvalidFormat(f"Invalid qname format: {name!r:.200}")
    return name


def check_seconds(what: str, value: object) -> int:
    """Return `vt` or `delay`, else raise InvalidValue."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_SECONDS:
        raise InvalidValue(f"{what} must be between 0 and {MAX_SECONDS}, not {value!r:.100}")
    return value


def check_maxsize(value: object) -> int:
    """Return a `maxsize`, else raise InvalidValue."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number or (value != UNLIMITED and not MIN_MAXSIZE <= value <= MAX_MAXSIZE):  # type: ignore[operator]
        raise InvalidValue(f"maxsize must be between {MIN_MAXSIZE} and {MAX_MAXSIZE}, or -1, not {value!r:.100}")
    return int(value)  # type: ignore[call-overload, no-any-return]


def check_count(what: str, value: object, most: int) -> int:
    """Return a valid number of messages of one call, else raise InvalidValue. RSMQ itself handles only one per call."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidValue(f"{what} must be between 1 and {most}, not {value!r:.100}")
    return value


def units(text: str) -> int:
    """Return a text's length in UTF-16 units, as RSMQ counts it."""
    return len(text) + sum(character > "\uffff" for character in text)


def tail() -> str:
    """Return the random part of an id."""
    bits = secrets.randbits(132)
    return "".join(_LETTERS[bits // 62**place % 62] for place in range(22))


#: Microseconds in the latest id.
_latest = 0


def new_id() -> str:
    """Return an id for a message that is published now. The ids of one thread increase.

    Ids of two threads may have the same microsecond. They still differ in 22 random characters, and there is no defined
    order between threads.
    """
    global _latest  # noqa: PLW0603 - the clock may stand still between two calls
    micros = _latest = max(_latest + 1, time.time_ns() // 1000)
    head = ""
    while micros:
        micros, digit = divmod(micros, 36)
        head = _DIGITS[digit] + head
    return head + tail()


def sent_micros(message_id: str) -> int | None:
    """Return when a message was sent, in microseconds since 1970; None if its id does not have the time."""
    return int(message_id[:10], 36) if _OWN_ID.fullmatch(message_id) else None


def encode(message: Message, data_text: bytes) -> bytes:
    """Return a message as an RSMQ body: text as it is, anything else as JSON with the message's attributes."""
    plain = message.name == TEXT and isinstance(message.data, str)
    if plain and message.key is None and message.expires_ms is None and not message.headers:
        return str(message.data).encode()
    return encode_body(message._replace(attempt=1), data_text, member=message.id)


def decode(
    body: bytes, *, queue: str, message_id: str, first_ms: int, attempt: int, alone: str, receipt: bytes
) -> Delivery | Undecodable:
    """Return the delivery of an RSMQ message. One of another program gets the name TEXT and its text as data."""
    if len(body) > MAX_ENTRY_BYTES:
        return Undecodable(0, receipt, [body], f"{len(body)} bytes are more than the {MAX_ENTRY_BYTES} there may be")
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        return Undecodable(0, receipt, [body], str(error))
    sent = sent_micros(message_id)
    moment = first_ms if sent is None else sent // 1000
    try:
        found = decode_body(body, needs_data=True)
        message = message_of({**found, "id": message_id}, queue=queue, entry=receipt)
        data_text = dumps(found["data"])
    except (DecodeError, InvalidMessage):
        # InvalidMessage: data that can be parsed may be nested too deep to be encoded.
        message, data_text = Message(message_id, TEXT, text, queue), dumps(text)
    own = message._replace(
        attempt=max(1, attempt), published_ms=message.published_ms or moment, priority=0, unique=None, claims=False
    )
    return Delivery(own, 0, receipt, data_text, *isolation(alone or None))
