"""The texts of exceptions, and exception classes by path.

An exception is made of other people's code: its `__str__`, the objects that its traceback shows, and its causes may
raise, end the process, or be very long. The functions here cannot fail, and what they return is bounded.

To look up a class nothing is imported, because paths come from Redis.
"""

import sys
import traceback
from collections.abc import Iterable, Iterator
from typing import TypeGuard, TypeVar

from mq_django.core.redaction import replace_logins

# Make unprintable characters in untrusted text visible, such as those that hide or reorder text.

Kind = TypeVar("Kind")

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


def listing(names: Iterable[str]) -> str:
    """Return names for a sentence, sorted; "none" if there are none."""
    return ", ".join(sorted(names)) or "none"


def truncate(text: str, limit: int) -> str:
    """Return `text`, shortened to `limit` characters with an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


#: The most characters of a path.
LONGEST = 1000
#: The most characters of an exception's text, and of a traceback, whose end is kept.
MAX_TEXT, MAX_TRACEBACK = 10_000, 100_000
#: More characters of a value that are searched for secrets.
MAX_URL = 1000


#: The names that Python stores in a class. A metaclass may show something else, or raise.
_NAME, _QUALNAME, _MODULE = (vars(type)[name].__get__ for name in ("__name__", "__qualname__", "__module__"))


def is_a(value: object, kind: type[Kind]) -> TypeGuard[Kind]:
    """Return whether a value of other people is of a class. isinstance() asks its `__class__`, which may raise."""
    return issubclass(type(value), kind)


def class_name(kind: type) -> str:
    """Return the name of a class."""
    return str.__str__(_NAME(kind))


def path_of(kind: type) -> str:
    """Return the path of a class as tracebacks show it. A module that is no text is left out."""
    name, module = str.__str__(_QUALNAME(kind)), _MODULE(kind)
    module_name = str.__str__(module) if issubclass(type(module), str) else "builtins"
    return name if module_name == "builtins" else f"{module_name}.{name}"


def text_of(value: object, part: slice = slice(MAX_TEXT)) -> str:
    """Return a part of the text of an exception or another value; that of its class if it has none."""
    if value is None:
        return ""
    try:
        return str(value)[part]
    except BaseException:  # noqa: BLE001 - its __str__ may even exit
        return f"{path_of(type(value))} without a text"


def repr_of(value: object, limit: int = 100) -> str:
    """Return the repr() of a value for a message: one printable line of up to `limit` characters, without secrets.

    A value without one, such as 10**5000 or a list that is nested too deep, is shown by its class.
    """
    try:
        # A URL may stand anywhere. If it were cut first, the end of its password could not be told.
        return line(replace_logins(f"{value!r:.{limit + MAX_URL}}", "[redacted]"))[:limit]
    except BaseException:  # noqa: BLE001 - its __repr__ may even exit
        return f"a value of {type.__repr__(type(value))}"[:limit]


def summary_of(error: BaseException) -> str:
    """Return an exception's path and text, as the last line of a traceback has them."""
    path = path_of(type(error))
    try:
        return f"{path}: {error}"[:MAX_TEXT]
    except BaseException:  # noqa: BLE001 - its __str__ may even exit
        return path


def traceback_of(error: BaseException) -> str:
    """Return an exception's traceback with its causes; without them if one of them cannot be shown."""
    try:
        text = "".join(traceback.format_exception(error))
    except BaseException:  # noqa: BLE001 - to find a name, Python asks objects for their attributes
        text = "".join(["Traceback (most recent call last):\n", *_frames(error), summary_of(error), "\n"])
    return text[-MAX_TRACEBACK:]


def has_usual_traceback(error: BaseException) -> bool:
    """Return whether Python can format an exception, in no more characters than are kept."""
    try:
        return sum(map(len, traceback.format_exception(error))) <= MAX_TRACEBACK
    except BaseException:  # noqa: BLE001 - to find a name, Python asks objects for their attributes
        return False


def _frames(error: BaseException) -> list[str]:
    try:
        return traceback.format_tb(error.__traceback__)
    except BaseException:  # noqa: BLE001 - source lines come from loaders of others
        return []


def exception_of(path: str) -> type[BaseException] | None:
    """Return an exception class by its path, or None when no imported module has it; see object_of()."""
    found = object_of(path)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def object_of(path: str) -> object | None:
    """Return what a path names, or None when no imported module has it.

    A path is the module and the qualified name, or only the name for a builtin exception.
    """
    if len(path) > LONGEST:
        return None
    parts = path.split(".")
    for end in range(len(parts) - 1, -1, -1):
        module = sys.modules.get(".".join(parts[:end]) or "builtins")
        if module is not None:
            return _within(module, parts[end:])
    return None


def _within(found: object, names: list[str]) -> object | None:
    for name in names:
        # Not getattr(), because a module's __getattr__ may import something.
        found = vars(found).get(name) if hasattr(found, "__dict__") else None
    return found
