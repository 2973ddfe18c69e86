"""Check the arguments of a publish when it is called, before anything is sent."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from inspect import Parameter, signature
from typing import Any, TypeVar

from mq_django.core.clock import MAX_DELAY, Duration, check_aware, read_duration
from mq_django.core.jsontext import LAST_MS, dumps
from mq_django.core.keys import PARKED_PREFIX, STEP_PREFIX, UNIQUE_PREFIX
from mq_django.core.message_format import (
    HEADER_NAME,
    MAX_ENTRY_BYTES,
    MAX_NAME_LENGTH,
    MAX_PARTS,
    MAX_PRIORITY,
    PRIORITIES,
    RESERVED,
    encode_body,
    numbered,
)
from mq_django.core.messages import NO_HEADERS, Message
from mq_django.core.queue_configs import DeliveryOptions
from mq_django.core.retries import MAX_DATA
from mq_django.core.texts import class_name, repr_of
from mq_django.errors import InvalidArguments, InvalidMessage, MessageTooLarge, NotSupported

T = TypeVar("T")

#: The values of on_conflict, the default first: without and with unique_for.
CONFLICTS, CLAIM_CONFLICTS = ("replace", "keep", "earliest", "error"), ("error", "keep")
#: The value of unique_for for a key that is taken until the message is handled.
UNTIL_HANDLED = "handled"
#: The most headers of one message: with all other attributes an entry has MAX_PARTS.
MAX_HEADERS = MAX_PARTS // 2 - len(RESERVED)
#: The most levels of lists and dicts in data. Parsers accept about twice as many, and fewer on a deep stack.
MAX_LEVELS = 500
#: Bytes for what a retry adds: attempt, time and id, and the history, which only messages with short data keep.
_ADDED, _HISTORY = 1024, 384 * 1024
_ORDERED = (
    "Queue {0!r} has ORDERED, so all its messages use the outbox, or none: outbox={1} contradicts its OUTBOX, {2}. A "
    "message that is published at once would overtake messages of its key that a relay publishes"
)
_SURROGATE = re.compile("[\ud800-\udfff]")


#: The names of options in other libraries, and ours in `publish()` and `using()`.
_OURS = {
    **dict.fromkeys(("countdown", "delay_seconds", "delay_ms"), ("delay",)),
    **dict.fromkeys(("eta", "run_at", "run_after", "deliver_at", "schedule"), ("run_after", "deliver_at")),
    **dict.fromkeys(("time_limit", "soft_time_limit", "job_timeout"), ("timeout",)),
    **dict.fromkeys(("max_retries", "retries", "max_attempts", "autoretry_for", "retry_backoff"), ("retry",)),
    "bind": ("takes_context",),
    **dict.fromkeys(("task_id", "job_id"), ("message_id",)),
    **dict.fromkeys(("ttl", "max_age", "expires_in"), ("expires",)),
    "queue": ("queue_name",),
}


def instead_of(call: Callable[..., Any], names: Iterable[str], written: str = "") -> str:
    """Return a sentence that says which of our options to write for others, or "" if there is none.

    Args:
        call: the function, whose options are its keyword-only parameters.
        names: the options.
        written: how the function's options are written, such as "publish({})"; "": by its name.
    """
    options = {each.name for each in signature(call).parameters.values() if each.kind is Parameter.KEYWORD_ONLY}
    named = dict.fromkeys(known for name in names for known in (name, *_OURS.get(name, ())) if known in options)
    shown = ", ".join(f"{name}=..." for name in named)
    return f". Write {(written or f'{call.__name__}(..., {{}})').format(shown)}" if named else ""


def unknown_options(call: Callable[..., Any], names: Collection[str], written: str = "") -> InvalidArguments:
    """Return the error for options that a function does not have; see instead_of()."""
    first, *_ = names
    said = f"{call.__qualname__}() got an unexpected keyword argument {first!r}"
    return InvalidArguments(f"{said}{instead_of(call, names, written)}")


def check_iterable(what: str, given: Iterable[T]) -> Iterator[T]:
    """Return an iterator over an argument.

    Raises:
        InvalidMessage: it is nothing that can be iterated over.
    """
    try:
        return iter(given)
    except TypeError:
        raise InvalidMessage(f"{what} must be iterable, such as a list, not {repr_of(given)}") from None


def check_text(what: str, value: object) -> str:
    """Return a text that is a valid key or id, else raise InvalidMessage."""
    if not isinstance(value, str) or not 0 < len(value) <= 255 or not value.isprintable():
        raise InvalidMessage(f"{what} must be 1 to 255 printable characters, not {repr_of(value, 300)}")
    return value


def check_id(value: object, destination: DeliveryOptions) -> str:
    """Return a valid message id, else raise InvalidMessage, or NotSupported if the destination has other ids."""
    found = check_text("message_id", value)
    if found.startswith((UNIQUE_PREFIX, PARKED_PREFIX, STEP_PREFIX)):
        raise InvalidMessage(f"A message's id cannot start with {found[:2]!r}")
    if destination.id_form is not None and not destination.id_form.fullmatch(found):
        check_supported(destination, "message_id", found)
    return found


def check_name(name: object) -> str:
    """Return a valid message name, else raise InvalidMessage."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        if hasattr(type(name), "enqueue"):
            raise InvalidMessage(f"{repr_of(name, 300)} is a task, which is sent by task.enqueue(...)")
        raise InvalidMessage(
            f"A message's name is 1 to {MAX_NAME_LENGTH} printable characters, not {repr_of(name, 300)}"
        )
    return name


def check_message_names(names: Sequence[object]) -> None:
    """Check the names of messages as check_name() does; those that are alike once."""
    for name in dict.fromkeys(names) if {*map(type, names)} == {str} else names:
        check_name(name)


def check_headers(headers: Mapping[Any, Any]) -> Mapping[str, str]:
    """Return a copy of valid headers, else raise InvalidMessage."""
    if not headers:
        return NO_HEADERS
    if not isinstance(headers, Mapping):
        raise InvalidMessage(f"Headers are a dict of text by name, not {repr_of(headers)}")
    found = dict(headers)
    for name, value in found.items():
        if not isinstance(name, str) or not HEADER_NAME.fullmatch(name) or name in RESERVED:
            raise InvalidMessage(f"A header's name is 1 to 64 lower-case letters and digits, not {repr_of(name, 300)}")
        if not isinstance(value, str):
            raise InvalidMessage(f"Header {name!r} must be text, not {class_name(type(value))}")
        if not value.isprintable() and _SURROGATE.search(value):
            raise InvalidMessage(f"Header {name!r} has a lone surrogate, which is not text")
    return found


def check_priority(priority: object) -> int:
    """Return a valid priority as a number, else raise InvalidMessage."""
    found: object = numbered(priority)
    if type(found) is not int or not -MAX_PRIORITY <= found <= MAX_PRIORITY:
        words = f"a whole number from {-MAX_PRIORITY} to {MAX_PRIORITY}, or {', '.join(PRIORITIES)}"
        raise InvalidMessage(f"priority must be {words}, not {repr_of(priority)}")
    return found


def uniqueness(
    unique: str | None, unique_for: Duration | str | None, on_conflict: str | None, *, waits: bool
) -> tuple[int | None, str]:
    """Return PublishOptions.claim_ms and PublishOptions.on_conflict for the options of a unique key.

    Raises:
        InvalidMessage: the options exclude each other, or need a message that `waits` until it is due.
    """
    claims = unique_for is not None
    allowed = CLAIM_CONFLICTS if claims else CONFLICTS
    conflict = allowed[0] if on_conflict is None else on_conflict
    if conflict not in allowed:
        raise InvalidMessage(f"on_conflict must be one of {', '.join(allowed)} here, not {repr_of(on_conflict)}")
    if unique is None and (claims or on_conflict is not None):
        raise InvalidMessage(f"{'unique_for' if claims else 'on_conflict'}= needs unique=")
    if unique is not None and not claims and not waits:
        raise InvalidMessage("unique= needs delay=, deliver_at= (run_after= of a task) or unique_for=")
    return (None if unique_for is None else _claim_ms(unique_for)), conflict


def postponable(
    at_most: Duration, delay: Duration | None, unique: str | None, unique_for: object, conflict: str
) -> int:
    """Return PublishOptions.postpone_ms for the options of a publish.

    Raises:
        InvalidMessage: at_most is no time from `delay` on, or no publish would postpone the message.
    """
    most, delay_ms = math.ceil(_milliseconds("at_most", at_most)), due(delay, None)[0]
    if unique is None or delay_ms is None:
        raise InvalidMessage("at_most= needs unique= and delay=: it limits how long publishes postpone a message")
    if unique_for is not None or conflict != "replace":
        other = "unique_for=" if unique_for is not None else f"on_conflict={conflict!r}"
        raise InvalidMessage(f"at_most= contradicts {other}, with which no publish postpones the message that waits")
    if most < delay_ms:
        raise InvalidMessage(f"at_most={repr_of(at_most)} is shorter than delay={repr_of(delay)}")
    return math.ceil(most - delay_ms)


def due(delay: Duration | None, deliver_at: datetime | None) -> tuple[float | None, int | None]:
    """Return (milliseconds from now, milliseconds since 1970). At least one is None."""
    if delay is not None and deliver_at is not None:
        raise InvalidMessage("Give delay= or deliver_at=, not both")
    if deliver_at is not None:
        return None, _moment_ms("deliver_at", deliver_at)
    return (None if delay is None else _milliseconds("delay", delay)), None


def expiry(expires: Duration | datetime, at_ms: int) -> int:
    """Return when a message that is published at `at_ms` expires, both in milliseconds since 1970.

    A datetime in the past is accepted, because a deadline may pass before the call: the message expires at once.

    Raises:
        InvalidMessage: it is neither a datetime nor a duration above zero, or not a valid date.
    """
    if isinstance(expires, datetime):
        found = _moment_ms("expires", expires)
    elif (seconds := _seconds("expires", expires, "a datetime, ")) > 0:
        found = at_ms + round(seconds * 1000)
    else:
        raise InvalidMessage(f"expires must be above zero, not {repr_of(expires)}")
    if not 0 <= found <= LAST_MS:
        raise InvalidMessage(f"A message expires between 1970 and 9999, not at {repr_of(expires)}")
    return found


def uses_outbox(destination: DeliveryOptions, wish: bool | None) -> bool:
    """Return whether a publish uses the outbox: by its argument `outbox`, else by the option OUTBOX.

    Raises:
        InvalidMessage: the queue has ORDERED, and only some messages would use the outbox.
        NotSupported: the destination has no outbox.
    """
    usual = bool(destination.outbox)
    if wish is None or wish == usual:
        return usual
    if wish and (text := destination.why_unsupported("outbox")) is not None:
        raise NotSupported(text.format(config=destination))
    if getattr(destination, "ordered", False):
        raise InvalidMessage(_ORDERED.format(destination.public_name, wish, usual))
    return wish


def check_supported(destination: DeliveryOptions, option: str, value: object = None) -> None:
    """Raise NotSupported if a destination lacks an option of a publish."""
    if (text := destination.why_unsupported(option)) is not None:
        raise NotSupported(text.format(config=destination, value=value))


def data_text(data: Any, config: DeliveryOptions) -> bytes:
    """Return data as JSON text, within the limits of a queue or topic.

    Raises:
        InvalidMessage: it is not JSON, or nested too deep.
        MessageTooLarge: it has more bytes than MAX_SIZE.
    """
    text = dumps(data)
    _check_data(data, text, config)
    return text


def data_texts(values: Sequence[Any], config: DeliveryOptions) -> list[bytes]:
    """Return what data_text() returns for each value."""
    texts = list(map(dumps, values))
    if max(map(len, texts), default=0) > min(config.max_size, MAX_LEVELS):
        for value, text in zip(values, texts, strict=True):
            _check_data(value, text, config)
    return texts


def _check_data(data: Any, text: bytes, config: DeliveryOptions) -> None:
    size = len(text)
    if size > config.max_size:
        raise MessageTooLarge(f"{size} bytes of data are more than the {config.max_size} that {config.name!r} takes")
    # Only a long text with many brackets can be nested too deep.
    if size > MAX_LEVELS and text.count(b"[") + text.count(b"{") > MAX_LEVELS and _levels(data) > MAX_LEVELS:
        raise InvalidMessage(f"The data is nested deeper than {MAX_LEVELS} levels")


def check_whole(message: Message, text: bytes) -> None:
    """Check that consumers accept a message, even after it has waited and was retried.

    Raises:
        InvalidMessage: it has too many headers.
        MessageTooLarge: its headers and data together are too long in their longest encoding.
    """
    # The other attributes are short: even with the longest data they are within the limit.
    if not message.headers:
        return
    if len(message.headers) > MAX_HEADERS:
        raise InvalidMessage(f"{len(message.headers)} headers are more than the {MAX_HEADERS} a message may have")
    size = len(encode_body(message, text, member=""))
    most = MAX_ENTRY_BYTES - _ADDED - (_HISTORY if len(text) <= MAX_DATA else 0)
    if size > most:
        raise MessageTooLarge(f"{size} bytes of data and headers are more than the {most} a message may have")


def _claim_ms(unique_for: Duration | str) -> int:
    if unique_for == UNTIL_HANDLED:
        return 0
    found = math.ceil(_milliseconds("unique_for", unique_for, f'"{UNTIL_HANDLED}", '))
    if not found:
        raise InvalidMessage(f"unique_for must be above zero, not {repr_of(unique_for)}")
    return found


def _milliseconds(option: str, value: object, others: str = "") -> float:
    seconds = _seconds(option, value, others)
    if not 0 <= seconds <= MAX_DELAY.total_seconds():
        raise InvalidMessage(f"{option} must be 0 to {MAX_DELAY.days} days, not {repr_of(value)}")
    # A duration has whole microseconds. Callers round up to whole milliseconds, because a message must not be early.
    return round(seconds * 1_000_000) / 1000


def _seconds(option: str, value: object, others: str = "") -> float:
    """Return the seconds of a duration. `others` are the other kinds of values of the option, for the error."""
    try:
        return read_duration(value).total_seconds()
    except TypeError as error:
        raise InvalidMessage(f"{option} must be {others}{error}, not {repr_of(value)}") from error


def _moment_ms(option: str, moment: object) -> int:
    try:
        return min(math.ceil(check_aware(moment).timestamp() * 1000), LAST_MS)  # datetime.max would be rounded up
    except TypeError as error:
        raise InvalidMessage(f"{option} must be {error}, not {repr_of(moment)}") from error


def _levels(data: Any) -> int:
    """Return how deep data is nested, at most MAX_LEVELS + 1."""
    found, level = 0, [data]
    while found <= MAX_LEVELS and (inside := [each for each in level if isinstance(each, dict | list | tuple)]):
        found += 1
        level = [item for each in inside for item in (each.values() if isinstance(each, dict) else each)]
    return found
