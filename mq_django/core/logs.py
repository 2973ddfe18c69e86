"""Loggers whose records are one line each, of a bounded length, and whose calls cannot fail.

A line break in a name or an id could forge log lines, an escape sequence could hide some, and what another program has
written may be of any length. A project's filter may raise, its stream may be closed, and a traceback may be impossible
to format: none of these may cost a message.
"""

import io
import json
import logging
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from datetime import UTC, datetime
from textwrap import indent
from types import TracebackType
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


#: Attributes of records about messages, see failure_logs. `mq_django.observability.correlation` has a filter that sets
#: the last one.
EXTRA = ("queue", "message_id", "handler", "attempt", "correlation_id")

_LEVELS = {0: logging.WARNING, 1: logging.INFO}
_LINE = "%(asctime)s %(levelname)-7s %(message)s"


_Caught = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class TextFormatter(logging.Formatter):
    """Formats a record as one line. Tracebacks are indented, because they may quote messages."""

    def formatException(self, ei: _Caught) -> str:  # noqa: N802 - the name is logging's
        """Return the lines of a traceback."""
        return lines_of(ei[1]) if ei[1] is not None else ""


class JsonFormatter(logging.Formatter):
    """Formats a record as one line with a JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        found = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
            "thread": record.threadName,
        }
        found |= {name: one_line(value) for name in EXTRA if (value := getattr(record, name, None)) is not None}
        if record.exc_info:
            found["traceback"] = traceback_of(record.exc_info[1]) if record.exc_info[1] else ""
        return json.dumps(found)


class LogStream(io.StringIO):
    """Logs what the command prints, such as what its checks have found, so that each line is a JSON object."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self._level = level

    def write(self, text: str, /) -> int:
        """Log a text, unless it is empty, and return its length."""
        if found := text.strip():
            logging.getLogger("mq_django").log(self._level, "%s", found)
        return len(text)


def configure_logs(form: str, *, verbosity: int) -> None:
    """Write the logs of mq_django to stderr as text, unless the project's LOGGING handles them, or all logs as JSON."""
    logger, root = logging.getLogger("mq_django"), logging.getLogger()
    if logger.handlers and form == "text":
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter(_LINE))
    logger.handlers = [handler]
    logger.setLevel(_LEVELS.get(verbosity, logging.DEBUG))
    logger.propagate = False
    if form == "json":
        logging.captureWarnings(capture=True)
        root.handlers = root.handlers or [handler]
        for each in (root, *map(logging.getLogger, logging.root.manager.loggerDict)):
            for found in list(each.handlers):
                # Not those that write to files, which are StreamHandlers, too.
                if type(found) is not logging.StreamHandler:
                    continue
                if each is not root and handler in root.handlers and _reaches_root(each):
                    # Else its records are written twice: by it, and by the root logger.
                    each.removeHandler(found)
                else:
                    found.setFormatter(handler.formatter)


def _reaches_root(logger: logging.Logger | None) -> bool:
    """Return whether the records of a logger come to the handlers of the root logger."""
    while logger is not None and logger.propagate:
        logger = logger.parent
    return logger is None
