"""The ids of runs of workflows, and of the messages of their steps and callbacks."""

import re
from typing import NamedTuple
from zlib import crc32

from mq_django.core.ids import token
from mq_django.core.workflow_keys import CALLBACK_PREFIX, HOMES, STEP_PREFIX

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
