"""What a consumer does and has done, as its supervisor tells people."""

import time
from collections.abc import Mapping
from typing import Any

from mq_django.consumers.shared_state import SharedState

#: Of what a consumer runs in one queue a heartbeat tells so many, those that run longest.
MAX_TOLD = 20


def doing(shared_state: SharedState, queues: range) -> list[Mapping[str, Any]]:
    """Return for each queue what a consumer runs, the longest first, and how many it has handled and failed."""
    now = time.monotonic()
    running: dict[int, list[Any]] = {}
    for item in sorted(shared_state.running(), key=lambda item: item.since):
        entries = running.setdefault(item.receipt.queue, [])
        if len(entries) < MAX_TOLD:
            home, entry = item.receipt.home, item.receipt.entry.decode(errors="replace")
            entries.append([home, entry, max(0, round((now - item.since) * 1000))])
    found: list[Mapping[str, Any]] = []
    for number in queues:
        handled, failed = shared_state.counted(number)
        found.append({"running": running.get(number, []), "handled": handled, "failed": failed})
    return found
