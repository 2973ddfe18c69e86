"""What holds all lanes of a queue's consumers, so that its messages wait."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from mq_django.errors import StoreError
from mq_django.inspector.consumers import LANE_KINDS, ConsumerView, FullLanes, LaneKind
from mq_django.inspector.queue_view import Blocker, QueueView
from mq_django.inspector.readers import held
from mq_django.inspector.room_reader import Receipt
from mq_django.registry import kinds

#: The most deliveries whose messages are read to name their handlers.
MAX_READ = 50


class _Full(NamedTuple):
    """All lanes of one kind are busy, in all consumers of a queue."""

    kind: LaneKind
    consumers: Sequence[ConsumerView]
    lanes: Sequence[FullLanes]

    @property
    def longest(self) -> FullLanes:
        """Return the lanes of which one has run a handler for longest."""
        return max(self.lanes, key=lambda lanes: lanes.longest.ms)


def with_blockers(views: Sequence[QueueView]) -> list[QueueView]:
    """Return queues, each with what holds all lanes of its consumers while its messages wait.

    One round trip per server if there is such a queue, else none.
    """
    full = {view.name: found for view in views if (found := _full(view))}
    names = _names([found.longest for found in full.values()]) if full else {}
    return [replace(view, blocker=_blocker(full[view.name], names)) if view.name in full else view for view in views]


def _full(view: QueueView) -> _Full | None:
    if view.paused or not view.awaits_lanes:
        return None
    consumers = [consumer for consumer in view.consumers if consumer.is_fetching]
    needed = {LANE_KINDS[is_async] for is_async in kinds(view.name)} or set(LANE_KINDS)
    for kind in LANE_KINDS:
        lanes = [lanes for consumer in consumers for lanes in consumer.full if lanes.kind == kind]
        # Each consumer has at most one of a kind.
        if kind in needed and lanes and len(lanes) == len(consumers):
            return _Full(kind, consumers, lanes)
    return None


def _names(lanes: Sequence[FullLanes]) -> Mapping[tuple[str, Receipt], str]:
    """Return the names of messages by queue and receipt, without those whose handlers have ended since."""
    receipts: dict[str, list[Receipt]] = {}
    for queue, receipt in list(dict.fromkeys(map(_place, lanes)))[:MAX_READ]:
        receipts.setdefault(queue, []).append(receipt)
    try:
        found = held(receipts)
    except StoreError:
        # The queues were read, and are shown without this.
        return {}
    return {(queue, receipt): view.message.name for queue in found for receipt, view in found[queue].items()}


def _place(lanes: FullLanes) -> tuple[str, Receipt]:
    return lanes.queue, (lanes.longest.source, lanes.longest.entry)


def _blocker(full: _Full, names: Mapping[tuple[str, Receipt], str]) -> Blocker | None:
    longest = full.longest
    name = names.get(_place(longest))
    if name is None:
        return None
    threads = sum(consumer.threads or 0 for consumer in full.consumers)
    return Blocker(
        kind=full.kind,
        threads=threads if full.kind == "threads" else 0,
        consumers=tuple(consumer.id for consumer in full.consumers),
        queue=longest.queue,
        name=name,
        ms=longest.longest.ms,
        held_ms=min(lanes.ms for lanes in full.lanes),
    )
