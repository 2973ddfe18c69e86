"""The log formats of `runconsumer`: text and JSON."""

import io
import json
import logging
import sys
from datetime import UTC, datetime
from types import TracebackType

from mq_django.core.logs import lines_of, one_line
from mq_django.core.texts import traceback_of

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
