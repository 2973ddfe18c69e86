"""The fields of a stream's entry as scripts reply them, some left out for their length."""

from collections.abc import Mapping, Sequence

#: A value that is too long for a page is its length instead.
Fields = Mapping[bytes, bytes | int]


def fields_of(flat: Sequence[bytes | int]) -> Fields:
    """Return the fields that a script replied, names and values in turn."""
    names = [name for name in flat[::2] if isinstance(name, bytes)]
    return dict(zip(names, flat[1::2], strict=True))


def text_of(value: bytes | int | None) -> str:
    """Return a field as text: what is not UTF-8 is spelled out, what was left out is empty."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else ""
