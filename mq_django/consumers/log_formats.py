"""The log formats of `runconsumer`: text and JSON."""

import json
import logging
import sys
from datetime import UTC, datetime
from textwrap import indent
from types import TracebackType
from typing import Any, TextIO

from django.core.management.base import OutputWrapper

from mq_django.core.visible import escape

#: Attributes of records about messages, see failure_logs.
EXTRA = ("queue", "message_id", "handler", "attempt")

_LEVELS = {0: logging.WARNING, 1: logging.INFO}
_LINE = "%(asctime)s %(levelname)-7s %(message)s"


_Caught = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class TextFormatter(logging.Formatter):
    """Formats a record as one line. Tracebacks are indented, because they may quote messages."""

    def formatException(self, ei: _Caught) -> str:  # noqa: N802 - the name is logging's
        """Return the lines of a traceback."""
        return indent(escape(super().formatException(ei), lines=True), "  ", lambda _: True)


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
        found |= {name: value for name in EXTRA if (value := getattr(record, name, None)) is not None}
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return json.dumps(found)


class LoggedOutput(OutputWrapper):
    """Logs what the command prints, such as what its checks have found, so that each line is a JSON object."""

    def __init__(self, out: TextIO, level: int) -> None:
        super().__init__(out)
        self._level = level

    def write(  # type: ignore[override]  # as Django's has it
        self, msg: str = "", style_func: Any = None, ending: str | None = None
    ) -> None:
        """Log a text."""
        if text := msg.strip():
            logging.getLogger("mq_django").log(self._level, "%s", text)


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
                    # Its records would be written twice, as Django's with DEBUG.
                    each.removeHandler(found)
                else:
                    found.setFormatter(handler.formatter)


def _reaches_root(logger: logging.Logger | None) -> bool:
    """Return whether the records of a logger come to the handlers of the root logger."""
    while logger is not None and logger.propagate:
        logger = logger.parent
    return logger is None
