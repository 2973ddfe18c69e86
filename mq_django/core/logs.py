"""Loggers whose records are one line each.

A line break in a name or an id could forge log lines, and an escape sequence could hide some.
"""

import logging
from typing import Any

from mq_django.core.visible import line


class _OneLine(logging.Filter):
    """Escapes unprintable characters in the arguments of a record."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(_one_line, record.args))
        return True


def _one_line(value: Any) -> Any:
    if isinstance(value, BaseException):
        value = str(value)
    if isinstance(value, str):
        return value if value.isprintable() else line(value)
    return line(value) if isinstance(value, bytes) else value


_ONE_LINE = _OneLine()


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a module. All modules of this package use this function."""
    logger = logging.getLogger(name)
    logger.addFilter(_ONE_LINE)
    return logger
