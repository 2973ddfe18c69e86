"""The sums over the partitions of a queue."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from mq_django.conf import QueueConfig
from mq_django.inspector.activity import Activity
from mq_django.inspector.consumers import ConsumerView
from mq_django.inspector.queue_view import Blocker, QueueView


def summed(config: QueueConfig, parts: Sequence[QueueView]) -> QueueView:
    """Return the view of a queue from those of its partitions; of a queue without partitions its own view.

    Counts are added up, and ages are the longest. Each consumer is listed once, with all that it runs. What differs
    between partitions is in `parts`.
    """
    if not config.parts:
        return parts[0]
    known = [part for part in parts if not part.error]
    if not known:
        return QueueView(name=config.name, error=parts[0].error, consume=config.consume, parts=tuple(parts))
    damages = [part.damage for part in known if part.damage is not None]
    pauses = [part.pause for part in known if part.pause is not None]
    return QueueView(
        name=config.name,
        now_ms=max(part.now_ms for part in known),
        ready=sum(part.ready for part in known),
        lag=sum(part.lag for part in known),
        pending=sum(part.pending for part in known),
        delayed=sum(part.delayed for part in known),
        unhandled=sum(part.unhandled for part in known),
        parked=sum(part.parked for part in known),
        dead=sum(part.dead for part in known),
        fetched=sum(part.fetched for part in known),
        oldest_ms=_most(part.oldest_ms for part in known),
        fetched_ms=_most(part.fetched_ms for part in known),
        next_due_ms=min((part.next_due_ms for part in known if part.next_due_ms is not None), default=None),
        pause=pauses[0] if len(pauses) == len(known) else None,
        jobs=tuple(chain.from_iterable(part.jobs for part in known)),
        damage=min(damages, key=lambda damage: damage.age_ms, default=None),
        consumers=_merged(part.consumers for part in known),
        blocker=_worst([part.blocker for part in known]),
        consume=config.consume,
        housekeepers=_merged(part.housekeepers for part in known),
        activity=_activity([part.activity for part in known]),
        parts=tuple(parts),
    )


def _most(found: Iterable[int | None]) -> int | None:
    return max((each for each in found if each is not None), default=None)


def _worst(found: Sequence[Blocker | None]) -> Blocker | None:
    return max((each for each in found if each is not None), key=lambda blocker: blocker.held_ms, default=None)


def _activity(found: Sequence[Activity]) -> Activity:
    """Return the totals. Times are not added up: whoever shows them adds up the counters first."""
    first = found[0]
    return Activity(
        published=_added(each.published for each in found),
        handled=_added(each.handled for each in found),
        retried=_added(each.retried for each in found),
        buried=_added(each.buried for each in found),
        elapsed=first.elapsed,
        minutes=first.minutes,
        since_ms=first.since_ms,
    )


def _added(found: Iterable[Sequence[int]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*found, strict=True)))


def _merged(found: Iterable[Sequence[ConsumerView]]) -> tuple[ConsumerView, ...]:
    """Return the consumers of all partitions, each once, live ones first."""
    by_id: dict[str, list[ConsumerView]] = {}
    for consumer in chain.from_iterable(found):
        by_id.setdefault(consumer.id, []).append(consumer)
    return tuple(sorted(map(_consumer, by_id.values()), key=lambda one: (not one.alive, one.id)))


def _consumer(found: Sequence[ConsumerView]) -> ConsumerView:
    # Its supervisor sends its heartbeat to one partition after another: the latest one counts.
    latest = min(found, key=lambda one: (one.seen_ms_ago is None, one.seen_ms_ago or 0))
    if len(found) == 1:
        return latest
    ago = latest.seen_ms_ago or 0
    running = sorted((item for one in found for item in one.running), key=lambda item: -item.ms)
    described: dict[str, Any] = {
        **latest.described,
        # Times are as of the heartbeat.
        "running": [[item.source, item.entry, max(0, item.ms - ago)] for item in running],
        "handled": sum(one.handled for one in found),
        "failed": sum(one.failed for one in found),
    }
    counts = [one.runs for one in found if one.runs is not None]
    if len(counts) == len(found):
        described["runs"] = sum(counts)
    return replace(latest, described=described, asked=next((one.asked for one in found if one.asked), ""))
