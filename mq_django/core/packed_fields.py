"""The fields of an entry as one text, for a message that waits in the line of its key: netstrings, by D. J. Bernstein.

`lua/parts/packed_fields.lua` writes it.
"""

from collections.abc import Iterator

from mq_django.errors import DecodeError


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
