"""Strict encoding and decoding of JSON, and the numbers in Redis, where other programs may have written anything.

JSON has the same results with and without orjson. Python's int() and float() raise for thousands of digits, accept
`inf`, and take a second for a very long text.
"""

import json
import marshal
import math
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NoReturn, cast

from mq_django.core.texts import class_name, repr_of
from mq_django.errors import DecodeError, InvalidMessage


def _refuse(value: object) -> NoReturn:
    raise TypeError(f"Object of type {class_name(type(value))} is not JSON serializable")


_form_of: Callable[[Any], Any] = _refuse
_lazy_types: tuple[type, ...] = ()


def use_forms(form_of: Callable[[Any], Any], lazy: type) -> None:
    """Set the forms in JSON of values that have none of their own, and the class of lazy texts.

    `conf` sets what Django's encoder does: this layer does not know it.

    Args:
        form_of: returns the form of a value, or raises TypeError or ValueError.
        lazy: the class.
    """
    global _form_of, _lazy_types
    _form_of, _lazy_types = form_of, (lazy,)


def evaluated(value: object) -> object:
    """Return the text of a lazy text, such as a translation, and any other value as it is."""
    return str(value) if issubclass(type(value), _lazy_types) else value


class _Encoder(json.JSONEncoder):
    def default(self, o: Any) -> Any:
        return _form_of(o)


_encode = _Encoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_orjson: Any = import_module("orjson") if find_spec("orjson") else None
_orjson_dumps: Any = getattr(_orjson, "dumps", None)
#: orjson turns integers over 64 bits into floats, so text with 19 digits in a row is parsed by the standard library.
#: This search takes a tenth of the time of a regular expression, which would take longer than the parsing.
_DIGITS_ALIKE = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19
#: The most bytes of texts that are searched at once.
_MAX_JOINED = 1024 * 1024
#: The last version of marshal that does not search for repeated objects, which would double its time.
_NO_REFERENCES = 2
#: Steps of the path to a value without a form in JSON that an error names.
MAX_PATH = 8
#: An escape in JSON text. Its group is a lone surrogate, which is not text.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)


def dumps(value: Any) -> bytes:
    """Return `value` as compact UTF-8 JSON text.

    Raises:
        InvalidMessage: it has a value that has no form in JSON: NaN, a set, bytes, a lone surrogate.
    """
    if _orjson is not None:
        # orjson has forms of its own for datetimes, UUIDs and enums, and encodes NaN as null. marshal accepts only
        # built-in types, so a value that both accept is accepted by the standard library, too.
        try:
            marshal.dumps(value, _NO_REFERENCES)
            text: bytes = _orjson_dumps(value)
            if b"null" not in text:
                # A copy, because orjson's result occupies at least a kilobyte: with a thousand of them, growing and
                # shrinking the heap took longer than the encoding.
                return b"%b" % text
        except (TypeError, ValueError):
            pass
    try:
        return _encode(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        path = invalid_at(value)
        raise InvalidMessage(f"The data is not JSON{path and f' at {path}'}: {error}") from error


def invalid_at(value: Any, levels: int = MAX_PATH) -> str:
    """Return where the first value is that has no form in JSON, such as "['user'][0]"; "" for all of it."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, item in items:
        try:
            _encode(item).encode()
        except (TypeError, ValueError, RecursionError):
            return f"[{repr_of(key, 50)}]" + (invalid_at(item, levels - 1) if levels else "")
    return ""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    # 1e999 parses as infinity, which cannot be encoded again.
    found = float(text)
    if math.isinf(found):
        raise ValueError("a number is larger than a double")
    return found


_decode = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite).decode


def _parse(text: bytes) -> Any:
    if _orjson is not None and _LONG_NUMBER not in text.translate(_DIGITS_ALIKE):
        return _orjson.loads(text)
    return _decode(_without_lone_surrogates(text).decode())


def parser_of(texts: Sequence[bytes]) -> Callable[[bytes], Any]:
    """Return the fastest function that returns what loads() returns for each of these texts, or raises a ValueError."""
    if _orjson is None or sum(map(len, texts)) > _MAX_JOINED:
        return loads
    is_plain = _LONG_NUMBER not in b",".join(texts).translate(_DIGITS_ALIKE)
    return cast("Callable[[bytes], Any]", _orjson.loads) if is_plain else loads


def _without_lone_surrogates(text: bytes) -> bytes:
    """Return JSON text with U+FFFD for each escaped lone surrogate, such as JavaScript writes for half of an emoji."""
    if b"\\ud" not in text and b"\\uD" not in text:
        return text
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], text)


def received(text: bytes) -> Any:
    """Return the data of JSON text that dumps() has written, as a handler receives them."""
    try:
        return loads(text)
    except DecodeError as error:
        raise AssertionError(f"dumps() has written what loads() cannot read: {text[:200]!r}") from error


def loads(text: bytes) -> Any:
    """Return the value of UTF-8 JSON text. U+FFFD replaces a lone surrogate: it could not be encoded again.

    Raises:
        DecodeError: it is not JSON, or nested too deep to read.
    """
    try:
        return _parse(text)
    except (ValueError, RecursionError) as error:
        # orjson refuses lone surrogates. Only now it is worth a search for them.
        valid = _without_lone_surrogates(text)
        if valid != text:
            return loads(valid)
        reason = str(error) or class_name(type(error))
        raise DecodeError(f"not JSON: {reason[:200]}") from error


def object_in(text: object) -> dict[str, Any]:
    """Return the object of JSON text in a reply of Redis; {} for anything else, which any program may have written."""
    try:
        found = loads(text) if isinstance(text, bytes) else None
    except DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


# Numbers in Redis.

#: The largest number that Redis counts to.
LARGEST = 2**63 - 1
#: The last time that has an RFC 3339 timestamp, in milliseconds since 1970.
LAST_MS = 253402300799999
#: The most characters of a number: 64 bits have 20 digits, a double has up to 24.
_LONGEST = 32


def whole(value: object, most: int = LARGEST) -> int | None:
    """Return the whole number from 0 to `most` in a reply of Redis, or None."""
    if isinstance(value, bytes | str) and len(value) <= _LONGEST and value.isascii() and value.isdigit():
        value = int(value)
    return value if isinstance(value, int) and 0 <= value <= most else None


def score(value: object) -> float | None:
    """Return the finite number in a reply of Redis, such as the score of a member, or None."""
    if not isinstance(value, int | float) and not (isinstance(value, bytes | str) and len(value) <= _LONGEST):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def score_ms(value: object) -> int | None:
    """Return the time in ms since 1970 in a score, rounded up, or None if it is not a valid date."""
    found = score(value)
    return math.ceil(found) if found is not None and 0 <= found <= LAST_MS else None
