"""Make unprintable characters in untrusted text visible, such as those that hide or reorder text."""

from collections.abc import Iterator

#: Characters that stay when lines are kept.
LINE_CHARACTERS = "\n\t"


def runs(text: str, *, lines: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield (text, is_escaped) for the runs of printable and of escaped characters, in order.

    Control characters, bidirectional and zero-width marks, line separators and lone surrogates are written as
    `U+202E`. With `lines`, line breaks and tabs stay.
    """
    plain: list[str] = []
    for character in text:
        if character.isprintable() or (lines and character in LINE_CHARACTERS):
            plain.append(character)
            continue
        if plain:
            yield "".join(plain), False
            plain.clear()
        yield f"U+{ord(character):04X}", True
    if plain:
        yield "".join(plain), False


def escape(text: str, *, lines: bool = False) -> str:
    """Return `text` for a terminal, a log or a title, with each unprintable character as `<U+202E>`."""
    return "".join(f"<{part}>" if is_escaped else part for part, is_escaped in runs(text, lines=lines))


def line(value: bytes | str) -> str:
    """Return untrusted text or bytes as one printable line, with all other characters and bytes escaped."""
    text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
    return text if text.isprintable() else escape(text)


def truncate(text: str, limit: int) -> str:
    """Return `text`, shortened to `limit` characters with an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
