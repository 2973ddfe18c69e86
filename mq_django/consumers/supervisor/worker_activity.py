"""The running messages, the busy lanes and the counts of a consumer, as its supervisor announces them."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from mq_django.consumers.shared_state import SharedState
from mq_django.stores.members import MAX_RUNNING


def worker_activity(shared_state: SharedState, queues: range) -> list[Mapping[str, Any]]:
    """Return for each queue the running messages of a consumer, longest first, and its handled and failed counts."""
    now = time.monotonic()
    running: dict[int, list[Any]] = {}
    counts: Counter[int] = Counter()
    for item in sorted(shared_state.running(), key=lambda item: item.since):
        counts[item.receipt.queue] += 1
        entries = running.setdefault(item.receipt.queue, [])
        if len(entries) < MAX_RUNNING:
            stream, entry = item.receipt.stream, item.receipt.entry.decode(errors="replace")
            entries.append([stream, entry, max(0, round((now - item.since) * 1000))])
    found: list[Mapping[str, Any]] = []
    for number in queues:
        handled, failed = shared_state.counted(number)
        entries = running.get(number, [])
        # Without it, a shorter list has all of them.
        more = {"runs": counts[number]} if counts[number] >= MAX_RUNNING else {}
        found.append({"running": entries, **more, "handled": handled, "failed": failed})
    return found


def lanes_in_use(shared_state: SharedState, threads: int, queues: Sequence[str]) -> Mapping[str, Any]:
    """Return how many threads and coroutines of a consumer run a handler, and what holds all of one kind.

    While all are busy, no queue of the consumer makes progress, so each queue gets this.
    """
    now, running = time.monotonic(), shared_state.running()
    lanes = {
        "threads": (threads, [item for item in running if item.lane < threads]),
        "coroutines": (shared_state.lanes - threads, [item for item in running if item.lane >= threads]),
    }
    full = {}
    for kind, (count, busy) in lanes.items():
        if len(busy) >= count:
            busy.sort(key=lambda item: item.since)
            receipt = busy[0].receipt
            ages = [max(0, round((now - item.since) * 1000)) for item in (busy[0], busy[-1])]
            full[kind] = [queues[receipt.queue], receipt.stream, receipt.entry.decode(errors="replace"), *ages]
    return {"busy": [len(busy) for _, busy in lanes.values()], **({"full": full} if full else {})}
