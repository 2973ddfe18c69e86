"""The fields of a stream's entry as scripts return them, with long values replaced by their length."""

from collections.abc import Mapping, Sequence

#: A value that is too long for a page is replaced by its length.
Fields = Mapping[bytes, bytes | int]


def fields_of(flat: Sequence[bytes | int]) -> Fields:
    """Return the fields of a flat list of names and values."""
    names = [name for name in flat[::2] if isinstance(name, bytes)]
    return dict(zip(names, flat[1::2], strict=True))


def text_of(value: bytes | int | None) -> str:
    """Return a value as text: bytes that are not UTF-8 are escaped, a length is empty text."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else ""
