"""RSMQ's format: names, ids, limits, and how bodies are encoded and decoded."""

import math
import re
import secrets
import string

from mq_django.core import clock
from mq_django.core.jsontext import dumps
from mq_django.core.keys import NAME
from mq_django.core.message_format import MAX_ENTRY_BYTES, decode_body, encode_body, isolation, message_of
from mq_django.core.messages import Delivery, Message, Undecodable
from mq_django.core.texts import repr_of
from mq_django.errors import DecodeError, InvalidFormat, InvalidMessage, InvalidValue, MissingParameter

DEFAULT_VT, DEFAULT_DELAY, DEFAULT_MAXSIZE = 30, 0, 65536
MAX_SECONDS = 9_999_999
MIN_MAXSIZE, MAX_MAXSIZE, UNLIMITED = 1024, 65536, -1

#: The name of messages that other programs have sent: their data is the body as text.
TEXT = "message"

#: Maximum messages that a call sends or receives, because a call blocks Redis.
MAX_SENT, MAX_RECEIVED = 1000, 500

#: An id: microseconds since 1970 in base 36, and 22 random letters and digits.
MESSAGE_ID = re.compile(r"[a-zA-Z0-9:]{32}", re.ASCII)
_OWN_ID = re.compile(r"[0-9a-z]{10}[a-zA-Z0-9]{22}", re.ASCII)
#: The part of a text that JavaScript's parseInt() reads; numbers with more digits are out of bounds.
_NUMBER = re.compile(r"\s*([+-]?[0-9]{1,20})", re.ASCII)
#: The fields of a queue's hash that are not messages.
_ATTRIBUTES = frozenset(("vt", "delay", "maxsize", "created", "modified", "totalrecv", "totalsent"))
_DIGITS = string.digits + string.ascii_lowercase
_LETTERS = string.digits + string.ascii_letters


def check_queue(name: object) -> str:
    """Return a valid name of a new queue, else raise InvalidFormat."""
    found = _text("qname", name)
    # The key of a queue `QUEUES` would be that of the set of names.
    if not NAME.fullmatch(found) or found == "QUEUES":
        raise InvalidFormat(f"Invalid qname format: 1 to 160 letters, digits, - and _, not {repr_of(found, 200)}")
    return found


def check_existing(name: object) -> str:
    """Return a name that other programs may give a queue, which is any without a colon, else raise InvalidFormat."""
    found = _text("qname", name)
    if ":" in found or found == "QUEUES":
        raise InvalidFormat(f"Invalid qname format: {repr_of(found, 200)}")
    return found


def check_id(message_id: object) -> str:
    """Return an id that other programs may give a message, else raise InvalidFormat."""
    found = _text("id", message_id)
    # Fields of the queue's hash that are not messages.
    if found in _ATTRIBUTES or (found.endswith((":rc", ":fr")) and not MESSAGE_ID.fullmatch(found)):
        raise InvalidFormat(f"Invalid id format: {repr_of(found)}")
    return found


def check_missing(message_id: str) -> None:
    """Raise InvalidFormat for the id of a message that does not exist, if RSMQ would not accept it."""
    if not MESSAGE_ID.fullmatch(message_id):
        raise InvalidFormat(f"Invalid id format: 32 letters and digits, not {repr_of(message_id)}")


def _text(what: str, value: object) -> str:
    """Return a text that can be part of a key or command, else raise InvalidFormat."""
    if value is None or value == "":
        raise MissingParameter(f"No {what} supplied")
    if not isinstance(value, str) or encode_text(value).decode() != value:
        raise InvalidFormat(f"Invalid {what} format: {repr_of(value, 200)}")
    return value


def check_seconds(what: str, value: object) -> int:
    """Return `vt` or `delay`, else raise InvalidValue."""
    number = _integer(value)
    if number is None or not 0 <= number <= MAX_SECONDS:
        raise InvalidValue(f"{what} must be between 0 and {MAX_SECONDS}, not {repr_of(value)}")
    return number


def check_maxsize(value: object) -> int:
    """Return a `maxsize`, else raise InvalidValue."""
    number = _integer(value)
    if number is None or (number != UNLIMITED and not MIN_MAXSIZE <= number <= MAX_MAXSIZE):
        raise InvalidValue(f"maxsize must be between {MIN_MAXSIZE} and {MAX_MAXSIZE}, or -1, not {repr_of(value)}")
    return number


def _integer(value: object) -> int | None:
    """Return a number as npm's rsmq reads it, which also accepts text and cuts fractions off; None if it is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str):
        found = _NUMBER.match(value)
        return int(found[1]) if found else None
    return int(value) if isinstance(value, int) or math.isfinite(value) else None


def check_count(what: str, value: object, most: int) -> int:
    """Return a valid number of messages of one call, else raise InvalidValue. RSMQ itself handles only one per call."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidValue(f"{what} must be between 1 and {most}, not {repr_of(value)}")
    return value


def units(text: str) -> int:
    """Return a text's length in UTF-16 units, as RSMQ counts it."""
    return len(text) + sum(character > "\uffff" for character in text)


def encode_text(text: str) -> bytes:
    """Return a body as UTF-8, with a replacement character for each lone surrogate, as npm's rsmq stores it."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        # As UTF-16 two surrogates that belong together are one character.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def tail() -> str:
    """Return the random part of an id."""
    bits = secrets.randbits(132)
    return "".join(_LETTERS[bits // 62**digit % 62] for digit in range(22))


#: Microseconds in the latest id.
_latest = 0


def new_id() -> str:
    """Return an id for a message that is published now. The ids of one thread increase.

    Ids of two threads may have the same microsecond. They still differ in 22 random characters, and there is no defined
    order between threads.
    """
    global _latest  # noqa: PLW0603 - the clock may stand still between two calls
    micros = _latest = max(_latest + 1, clock.now_us())
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
    body: bytes,
    *,
    queue: str,
    message_id: str,
    first_ms: int,
    attempt: int,
    alone: str,
    receipt: bytes,
    history: str = "",
    read_at: float = 0.0,
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
    return Delivery(own, 0, receipt, data_text, *isolation(alone or None), history, read_at)
