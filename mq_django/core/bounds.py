"""What a message may hold when it is published: what decoding accepts, less what consumers add to it."""

from typing import Any

from mq_django.core.attempt_history import MAX_DATA
from mq_django.core.configs import DeliveryOptions
from mq_django.core.jsontext import dumps
from mq_django.core.messages import Message
from mq_django.core.wire import MAX_ENTRY_BYTES, MAX_PARTS, RESERVED, encode_body
from mq_django.errors import InvalidMessage, MessageTooLarge

#: Headers of one message: with all other attributes they are as many as an entry may have.
MAX_HEADERS = MAX_PARTS // 2 - len(RESERVED)
#: Levels of lists and dicts in data. Parsers take about twice as many, less where the stack is deep already.
MAX_LEVELS = 500
#: Bytes that a retry adds: the attempt, the time and the id; and the history, which short data alone is given.
_ADDED, _HISTORY = 1024, 384 * 1024


def data_text(data: Any, config: DeliveryOptions) -> bytes:
    """Return data as JSON text that a queue or topic takes.

    Raises:
        InvalidMessage: it is not JSON, or nested too deep.
        MessageTooLarge: it has more bytes than MAX_SIZE.
    """
    text = dumps(data)
    size = len(text)
    if size > config.max_size:
        raise MessageTooLarge(f"{size} bytes of data are more than the {config.max_size} that {config.name!r} takes")
    # Only a long text can be nested deep, and only one with many brackets is worth a walk.
    if size > MAX_LEVELS and text.count(b"[") + text.count(b"{") > MAX_LEVELS and _levels(data) > MAX_LEVELS:
        raise InvalidMessage(f"The data is nested deeper than {MAX_LEVELS} levels")
    return text


def check_whole(message: Message, text: bytes) -> None:
    """Check that a message stays within what consumers accept, also after it has waited and was retried.

    Raises:
        InvalidMessage: it has too many headers.
        MessageTooLarge: its headers and data are too long together, in the form in which they are longest.
    """
    # The other attributes are short: with the longest data they are within the limit.
    if not message.headers:
        return
    if len(message.headers) > MAX_HEADERS:
        raise InvalidMessage(f"{len(message.headers)} headers are more than the {MAX_HEADERS} a message may have")
    size = len(encode_body(message, text, member=""))
    most = MAX_ENTRY_BYTES - _ADDED - (_HISTORY if len(text) <= MAX_DATA else 0)
    if size > most:
        raise MessageTooLarge(f"{size} bytes of data and headers are more than the {most} a message may have")


def _levels(data: Any) -> int:
    """Return how deep data is nested, one more than the limit for all that is deeper."""
    found, level = 0, [data]
    while found <= MAX_LEVELS and (inside := [each for each in level if isinstance(each, dict | list | tuple)]):
        found += 1
        level = [item for each in inside for item in (each.values() if isinstance(each, dict) else each)]
    return found
