"""The running messages and the counts of a consumer, as its supervisor announces them."""

import time
from collections.abc import Mapping
from typing import Any

from mq_django.consumers.shared_state import SharedState

#: The most running messages of one consumer and queue in a heartbeat: those that have run longest.
MAX_RUNNING = 20


def worker_activity(shared_state: SharedState, queues: range) -> list[Mapping[str, Any]]:
    """Return for each queue the running messages of a consumer, longest first, and its handled and failed counts."""
    now = time.monotonic()
    running: dict[int, list[Any]] = {}
    for item in sorted(shared_state.running(), key=lambda item: item.since):
        entries = running.setdefault(item.receipt.queue, [])
        if len(entries) < MAX_RUNNING:
            stream, entry = item.receipt.stream, item.receipt.entry.decode(errors="replace")
            entries.append([stream, entry, max(0, round((now - item.since) * 1000))])
    found: list[Mapping[str, Any]] = []
    for number in queues:
        handled, failed = shared_state.counted(number)
        found.append({"running": running.get(number, []), "handled": handled, "failed": failed})
    return found
