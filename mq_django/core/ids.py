"""Ids of messages, consumers and supervisors."""

import itertools
import os
import re
import secrets
from collections.abc import Mapping
from typing import NamedTuple
from zlib import crc32

from mq_django.core.keys import CALLBACK_PREFIX, HOMES, STEP_PREFIX

#: The most characters of a name or id that is looked for.
MAX_TEXT = 10_000
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
_prefix = ""
_counter = itertools.count()


def token() -> str:
    """Return 64 random bits as 13 lower-case letters and digits."""
    bits = secrets.randbits(64)
    return "".join(_ALPHABET[bits // 36**digit % 36] for digit in range(13))


def new_id() -> str:
    """Return a globally unique id.

    It is a random prefix of this process and a counter. That takes 0.2 µs, a tenth of a random id.
    """
    return f"{_prefix}{next(_counter):x}"


def new_ids(count: int, end: str = "") -> list[str]:
    """Return new ids with a common end."""
    prefix = _prefix
    return [f"{prefix}{number:x}{end}" for number in itertools.islice(_counter, count)]


def is_text(value: object, *, errors: str = "strict") -> bool:
    """Return whether something is named by a value at all: text without a lone surrogate, of up to MAX_TEXT characters.

    Args:
        value: what somebody asks for.
        errors: "surrogateescape" if names may have bytes that are not UTF-8.
    """
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        return False
    try:
        value.encode(errors=errors)
    except UnicodeEncodeError:
        return False
    return True


def _restart() -> None:
    global _prefix, _counter  # noqa: PLW0603 - the state of this process, and the reason for this function
    _prefix = token()
    _counter = itertools.count()


_restart()
# With its parent's prefix a forked child would make the same ids.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart)

# The ids of runs of workflows, and of the messages of their steps and callbacks.

#: Prefix of the names of messages that are steps. Consumers that do not know steps set them aside.
STEP_NAME = "step:"
#: A run's id: the digit of its home, and a random part.
_RUN = re.compile(r"[0-9a-f][0-9a-z]{8,40}", re.ASCII)
_STEP = re.compile(r"w:([0-9a-f][0-9a-z]{8,40})\.(\d{1,9})\.(\d{1,9})", re.ASCII)


class StepId(NamedTuple):
    """The parts of the id of a step's message."""

    run: str
    step: int
    #: The round of the run in which it was started.
    round: int


def new_run_id(*, unique: str | None = None) -> str:
    """Return the id of a new run. Runs with the same unique key are in the same home."""
    made = token()
    return HOMES[crc32((made if unique is None else unique).encode()) % len(HOMES)] + made


def is_run_id(value: object) -> bool:
    """Return whether a value is the id of a run."""
    return isinstance(value, str) and _RUN.fullmatch(value) is not None


def message_id_of(run_id: str, step: str | int, of_round: int) -> str:
    """Return the id of the message of a step, or of a callback: success, failure or finish."""
    prefix = STEP_PREFIX if str(step).isdigit() else CALLBACK_PREFIX
    return f"{prefix}{run_id}.{step}.{of_round}"


def read_step_id(message_id: str) -> StepId | None:
    """Return the parts of the id of a step's message, or None if it is no such id."""
    found = _STEP.fullmatch(message_id)
    return StepId(found[1], int(found[2]), int(found[3])) if found else None


# Correlation ids: texts that name the request or message with which a chain of messages began.

#: The header of messages. CloudEvents has an extension of this name.
CORRELATION_HEADER = "correlationid"
#: ASCII without spaces, because ids are written to logs and to HTTP headers.
_VALID = re.compile(r"[!-~]{1,128}", re.ASCII)


def valid_correlation_id(value: object) -> str | None:
    """Return a valid correlation id, or None if it is not one."""
    return value if isinstance(value, str) and _VALID.fullmatch(value) else None


def correlation_id_in(headers: Mapping[str, str]) -> str | None:
    """Return the valid correlation id in a message's headers, or None."""
    return valid_correlation_id(headers.get(CORRELATION_HEADER))
