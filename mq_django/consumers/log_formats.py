"""Log lines that a person can follow, or JSON."""

import json
import logging
import sys
from datetime import UTC, datetime
from textwrap import indent
from types import TracebackType

from mq_django.core.visible import escape

_LEVELS = {0: logging.WARNING, 1: logging.INFO}
_LINE = "%(asctime)s %(levelname)-7s %(message)s"


_Caught = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class TextFormatter(logging.Formatter):
    """One line a record; those of a traceback, which may quote a message, are indented."""

    def formatException(self, ei: _Caught) -> str:  # noqa: N802 - the name is logging's
        """Return the lines of a traceback."""
        return indent(escape(super().formatException(ei), lines=True), "  ", lambda _: True)


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

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
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return json.dumps(found)


def configure_logs(form: str, *, verbosity: int) -> None:
    """Write the lines of mq_django to stderr as `text` or `json`, unless the project's LOGGING takes them."""
    logger = logging.getLogger("mq_django")
    if logger.handlers and form == "text":
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter(_LINE))
    logger.handlers = [handler]
    logger.setLevel(_LEVELS.get(verbosity, logging.DEBUG))
    logger.propagate = False
