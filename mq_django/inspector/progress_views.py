"""The progress of messages for display, without secrets."""

import math
from collections.abc import Sequence
from dataclasses import replace

from mq_django.conf import get_config
from mq_django.core.logs import get_logger
from mq_django.core.redaction import redact_text
from mq_django.core.reports import Progress
from mq_django.errors import StoreError, UnknownQueue
from mq_django.stores.progress_reports import read_progress_of
from mq_django.transport.connections import open_wires

logger = get_logger(__name__)


def progress_of(asked: Sequence[tuple[str, str]]) -> list[Progress | None]:
    """Return the progress of messages, with the secrets in their notes replaced, in one round trip per server.

    It is None for one of which none is known, and for all if one cannot be read: a page shows the rest.

    Args:
        asked: the queue and the id of each message. Messages of queues that are not configured have no progress.
    """
    found: list[Progress | None] = [None] * len(asked)
    known = []
    for number, (queue, message_id) in enumerate(asked):
        try:
            known.append((number, get_config().queue(queue), message_id))
        except UnknownQueue:
            continue
    if not known:
        return found
    wires = open_wires("inspect", [config.connection for _, config, _ in known])
    try:
        read = read_progress_of([(config, message_id) for _, config, message_id in known], wires)
    except StoreError as error:
        logger.warning("The progress of messages cannot be read: %s", error)
        return found
    for (number, _, _), progress in zip(known, read, strict=True):
        found[number] = None if progress is None else replace(progress, note=redact_text(progress.note))
    return found


def progress_line(done: float, total: float | None, note: str, **_: object) -> str:
    """Return progress as text for a terminal: "3 of 10, 30 %: note"."""
    progress = Progress(done=done, total=total)
    text = f"{done:.10g}" if total is None else f"{done:.10g} of {total:.10g}"
    if progress.fraction is not None:
        text += f", {math.floor(progress.fraction * 100)} %"
    return f"{text}: {note}" if note else text
