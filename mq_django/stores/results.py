"""The results of tasks: a STRING each with a time to live, one JSON line for the task and one for each attempt.

Lines are appended without reading what is there, so that keeping a result costs no round trip. A consumer that no
longer held its delivery writes a line too, because its attempt did happen; which line decides follows from the stream
entries, whose ids only rise, and not from the order in which the lines came.
"""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mq_django.conf import QueueConfig
from mq_django.core.jsontext import dumps, loads
from mq_django.core.keys import QueueKeys
from mq_django.core.messages import Delivery, Message
from mq_django.core.outcomes import Ack, Bury, Retry
from mq_django.errors import DecodeError
from mq_django.stores.base import Outgoing, Settlement
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Wire, reply_or_raise

#: A result lives at least this long while its task has not ended: a backlog of days is one that people ask about.
UNFINISHED_TTL_MS = 7 * 24 * 3600 * 1000
#: Results of one script call. Redis serves nobody else meanwhile: about 1 ms at this size.
BATCH = 500
MAX_TRACEBACK = 4 * 1024
#: Attempts whose traceback is kept, besides the last: what fails a thousand times fails in the same way.
MAX_TRACEBACKS = 5

READY, FAILED, SUCCESSFUL = "READY", "FAILED", "SUCCESSFUL"

_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*)(: |$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What one run of a task came to."""

    #: READY: it is tried again; FAILED; SUCCESSFUL.
    status: str
    number: int
    consumer: str
    #: Milliseconds since 1970.
    started_ms: int
    finished_ms: int
    #: The path of the exception's class, when it failed.
    error: str | None = None
    traceback: str = ""
    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What is known of an enqueued task."""

    queue: str
    #: The name of its message: the task's path.
    name: str
    #: Its message's data.
    data: Any
    enqueued_ms: int | None
    priority: int
    due_ms: int | None
    #: In the order in which they were delivered.
    attempts: Sequence[Attempt]

    @property
    def status(self) -> str:
        """Return what the last attempt left."""
        return self.attempts[-1].status if self.attempts else READY


def ready_command(config: QueueConfig, outgoing: Outgoing) -> Command:
    """Return the command that keeps a task's result from its enqueuing on."""
    message = outgoing.message
    now_ms = int(time.time() * 1000)
    due_ms = outgoing.due_ms or (None if outgoing.delay_ms is None else now_ms + outgoing.delay_ms)
    waits_ms = max(0, (due_ms or now_ms) - now_ms)
    line = _task_line(message, outgoing.data_text, due_ms)
    return ("SET", config.keys.result(message.id), line, "PX", waits_ms + _unfinished_ttl_ms(config))
