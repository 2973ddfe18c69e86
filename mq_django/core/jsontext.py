"""JSON text to values and back: strict, and the same whether or not orjson is installed."""

import json
import re
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NoReturn

from mq_django.errors import DecodeError, InvalidMessage

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
#: orjson turns integers over 64 bits into floats, so text with a run of 19 digits goes to the standard library.
_LONG_NUMBER = re.compile(rb"\d{19}")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def dumps(value: Any) -> bytes:
    """Return `value` as compact UTF-8 JSON text.

    Raises:
        InvalidMessage: it holds something JSON has no form for: NaN, a set, a datetime, half a surrogate pair.
    """
    try:
        return _encode(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessage(f"The data is not JSON: {error}") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode
_fast_loads = import_module("orjson").loads if find_spec("orjson") else None


def _standard_loads(text: bytes) -> Any:
    decoded = text.decode()
    value = _decode(decoded)
    # An escaped half of a surrogate pair parses, and then breaks whoever encodes the value again.
    if "\\u" in decoded and _LONE_SURROGATE.search(json.dumps(value, ensure_ascii=False)):
        raise ValueError("half a surrogate pair is not text")
    return value


def loads(text: bytes) -> Any:
    """Return the value of UTF-8 JSON text.

    Raises:
        DecodeError: it is not JSON, or nested too deep to read.
    """
    try:
        if _fast_loads is not None and _LONG_NUMBER.search(text) is None:
            return _fast_loads(text)
        return _standard_loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise DecodeError(f"not JSON: {reason[:200]}") from error
