"""Read the values of attributes, which other programs write in all forms that JSON has.

null means that the attribute is absent. A number or a boolean where text is expected has its form in JSON as its text,
as in CloudEvents. What does not fit is an error: it would be lost, or mean something else.
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from mq_django.core.jsontext import dumps
from mq_django.errors import DecodeError

#: In CloudEvents, names of extension attributes are lower-case letters and digits.
HEADER_NAME = re.compile(r"[a-z0-9]{1,64}", re.ASCII)
#: The bytes of a CloudEvent in Base64, and the header that says so of the text that the handler gets.
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
