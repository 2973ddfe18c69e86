"""Correlation ids: texts that name the request or message with which a chain of messages began."""

import re
from collections.abc import Mapping

#: The header of messages. CloudEvents has an extension of this name.
CORRELATION_HEADER = "correlationid"
#: ASCII without spaces, because ids are written to logs and to HTTP headers.
_VALID = re.compile(r"[!-~]{1,128}", re.ASCII)


def valid_correlation_id(value: object) -> str | None:
    """Return a valid correlation id, or None if it is not one."""
    return value if isinstance(value, str) and _VALID.fullmatch(value) else None


def correlation_id_in(headers: Mapping[str, str]) -> str | None:
    """Return the valid correlation id in a message's headers, or None."""
    return valid_correlation_id(headers.get(CORRELATION_HEADER))
