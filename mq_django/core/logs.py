"""Loggers whose records are one line each, of a bounded length, and whose calls cannot fail.

A line break in a name or an id could forge log lines, an escape sequence could hide some, and what another program has
written may be of any length. A project's filter may raise, its stream may be closed, and a traceback may be impossible
to format: none of these may cost a message.
"""

import logging
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from textwrap import indent
from typing import Any

from mq_django.core.texts import escape, has_usual_traceback, is_a, line, path_of, text_of, traceback_of, truncate
from mq_django.errors import HandlerTimeout

#: The most characters of a text among the arguments of a record, such as a name. An exception may have more.
LONGEST = 1000


class _Harmless(logging.Filter):
    """Escapes unprintable characters in a record's arguments, and replaces a traceback that formatters cannot make."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(one_line, record.args))
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not has_usual_traceback(error):
            # Formatters use `exc_text` if it is set.
            record.exc_text = lines_of(error)
        return True


def lines_of(error: BaseException) -> str:
    """Return an exception's traceback for a log. It is indented, because it may quote messages."""
    return indent(escape(traceback_of(error), lines=True), "  ", lambda _: True).rstrip("\n")


def one_line(value: Any) -> Any:
    """Return a text or an exception as one printable line, and anything else unchanged."""
    if isinstance(value, BaseException):
        return line(text_of(value))
    # Cut first: to escape a character takes a hundred times as long as to count it.
    return truncate(line(value[: LONGEST + 1]), LONGEST) if isinstance(value, str | bytes) else value


_HARMLESS = _Harmless()


class SafeLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose calls end nothing: what fails in the logging of a project is named on stderr."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Return a record's text and options as they are."""
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log as a logger does. It raises nothing but what interrupts a handler."""
        # Skip this frame: `logging` would name it as the caller.
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        try:
            self.logger.log(level, msg, *args, **kwargs)
        except (Exception, SystemExit) as error:
            if is_a(error, HandlerTimeout):
                raise
            with suppress(Exception):
                sys.stderr.write(f"Logging failed with {path_of(type(error))}, for a record of {self.logger.name}\n")


def get_logger(name: str) -> SafeLogger:
    """Return the logger of a module. All modules of this package use this function."""
    logger = logging.getLogger(name)
    logger.addFilter(_HARMLESS)
    return SafeLogger(logger)
