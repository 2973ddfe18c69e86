"""Text from elsewhere, with everything that would hide or reorder it spelled out."""

from collections.abc import Iterator

#: What may stay as it is where lines are kept.
LINE_CHARACTERS = "\n\t"


def runs(text: str, *, lines: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield (text, is it spelled out) for the runs of printable and of spelled-out characters, in order.

    Control characters, bidirectional and zero-width marks, separators of lines and lone surrogates are
    spelled as `U+202E`; with `lines`, line breaks and tabs stay.
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
    """Return `text` for a terminal, a log or a title, with each such character as `<U+202E>`."""
    return "".join(f"<{part}>" if odd else part for part, odd in runs(text, lines=lines))


def line(value: bytes | str) -> str:
    """Return text or bytes from elsewhere as one printable line, each character or byte that is none spelled out."""
    text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
    return text if text.isprintable() else escape(text)


def truncate(text: str, limit: int) -> str:
    """Return `text`, shortened to `limit` characters with a mark that says so."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
