"""Statistics of queues, many in one round trip. Read-only."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from mq_django.conf import QueueConfig, TopicConfig, get_config
from mq_django.core import clock
from mq_django.core.message_format import entry_ms
from mq_django.core.numbers import LAST_MS, score_ms, whole
from mq_django.errors import StoreError
from mq_django.inspector.activity import NONE, WINDOW, Activity, activity_of_hour
from mq_django.inspector.consumers import ConsumerView, consumers_of, housekeepers_of
from mq_django.inspector.queue_view import Blocker, Pause, QueueView
from mq_django.inspector.readers import reader_of
from mq_django.stores.background_jobs import jobs_of
from mq_django.stores.counters import TOOK, WAITED, WHAT, added, counter_fields, minute_fields, there
from mq_django.stores.dead_letters import text_of
from mq_django.stores.members import read_membership
from mq_django.stores.topic_stats import TopicStats, topic_stats
from mq_django.transport.failures import readable
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Transport, fan_out, reply_or_raise

#: Messages of a log that a page counts if Redis does not report the lag of a group.
MAX_COUNTED = 10_000


def look(
    configs: Sequence[QueueConfig], transports: Sequence[Transport], *, minutes: int
) -> list[QueueView | StoreError]:
    """Return the statistics of queues, with the totals of the last minutes; an error for a queue that cannot be read.

    Each queue has its transport. One round trip per server, with one command per queue; one more if there are topics.
    """
    now_ms = clock.now_ms()
    hour, hours = now_ms // 3_600_000, minute_fields(now_ms // 60_000, minutes)
    readers = list(map(reader_of, configs, transports))
    pipelines = [[reader.look_command(hour, *hours)] for reader in readers]
    replies = [reply for (reply,) in fan_out(transports, pipelines)]
    views = [_view(config, reply, now_ms, hours) for config, reply in zip(configs, replies, strict=True)]
    # A group is on the server of its topic.
    by_topic = {reader.topic: transport for reader, transport in zip(readers, transports, strict=True) if reader.topic}
    topics = [get_config().topic(name) for name in by_topic]
    stats = dict(zip(by_topic, _stats(topics, list(by_topic.values())), strict=True))
    return [
        _with_log(view, config.keys.group, stats[reader.topic]) if reader.topic else view
        for view, config, reader in zip(views, configs, readers, strict=True)
    ]


def _stats(topics: Sequence[TopicConfig], transports: Sequence[Transport]) -> Sequence[TopicStats | StoreError]:
    """Return the statistics of topics; errors if none of their servers can be reached."""
    try:
        return topic_stats(topics, transports, at_most=MAX_COUNTED)
    except StoreError as error:
        return [error] * len(topics)


def look_closely(
    configs: Sequence[QueueConfig], transports: Sequence[Transport], *, longest: int, of: str = ""
) -> tuple[list[QueueView | StoreError], Activity]:
    """Return the statistics of a queue, or of its partitions, and the activity of the last hour of all together.

    The activity is that of messages named `of`, or of all. Includes the activity by name if there are at most `longest`
    counters. Each partition also has its totals.
    """
    now_ms = clock.now_ms()
    hour = now_ms // 3_600_000
    views = look(configs, transports, minutes=0 if len(configs) == 1 else WINDOW)
    readable_ones = [number for number, view in enumerate(views) if isinstance(view, QueueView)]
    if not readable_ones:
        return views, NONE
    keys = [[configs[number].keys.minutes(hour - ago) for ago in (0, 1)] for number in readable_ones]
    found = counted(keys, [transports[number] for number in readable_ones], slots=60, longest=longest)
    return views, activity_of_hour(*found, now_ms=now_ms, of=of)


def _with_log(view: QueueView | StoreError, name: str, found: TopicStats | StoreError) -> QueueView | StoreError:
    """Add a group's undelivered and pending messages of its topic's log."""
    if isinstance(view, StoreError):
        return view
    if isinstance(found, StoreError):
        return found
    group = found.group(name)
    if group is None:
        return view
    ages = [age for age in (group.lag_ms if group.lag else None, view.oldest_ms) if age is not None]
    ready, pending = view.ready + group.lag, view.pending + group.pending
    return replace(view, ready=ready, lag=group.lag, pending=pending, oldest_ms=max(ages, default=None))


@readable
def _view(config: QueueConfig, reply: Any, counted_ms: int, hours: Sequence[Sequence[bytes]]) -> QueueView:
    found = reply_or_raise(reply)
    now_ms, deliverable, pending, delayed, unhandled, parked, dead, oldest, next_due, state, members, *more = found
    counted, (pause, jobs) = more[:2], more[2:]
    this_hour, last_hour = (there(fields, values) for fields, values in zip(hours, counted, strict=True))
    due_ms, membership = score_ms(next_due), read_membership(_pairs(members))
    return QueueView(
        name=config.name,
        now_ms=now_ms,
        # Another program may have deleted entries that are pending.
        ready=max(0, deliverable - pending),
        pending=pending,
        delayed=delayed,
        unhandled=unhandled,
        parked=parked,
        dead=dead,
        oldest_ms=max(0, now_ms - entry_ms(oldest)) if oldest else None,
        next_due_ms=None if due_ms is None else max(0, due_ms - now_ms),
        pause=_pause(*pause) if state == b"PAUSED" else None,
        jobs=tuple(job for job in jobs_of(jobs).values() if job.state == "running"),
        consumers=consumers_of(membership, now_ms=now_ms),
        external=config.external,
        housekeepers=housekeepers_of(membership, now_ms=now_ms),
        activity=activity_of_hour(this_hour, last_hour, now_ms=counted_ms) if any(hours) else NONE,
    )


def _pause(who: bytes | None, reason: bytes | None, at: bytes | None) -> Pause:
    return Pause(text_of(who), text_of(reason), whole(at, LAST_MS))


def _pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def hours_of(
    days: Sequence[int], configs: Sequence[QueueConfig | TopicConfig], transports: Sequence[Transport]
) -> list[list[Mapping[bytes, bytes]] | StoreError]:
    """Return the totals of the hours of each of the given days since 1970 by queue; an error if it cannot be read."""
    fields = counter_fields(range(24))
    pipelines: list[list[Command]] = [
        [("HMGET", config.keys.hours(day), *fields) for day in days] for config in configs
    ]

    @readable
    def read(replies: Sequence[Any]) -> list[Mapping[bytes, bytes]]:
        return [there(fields, reply_or_raise(reply)) for reply in replies]

    return list(map(read, fan_out(transports, pipelines)))


def counted(
    keys: Sequence[Sequence[str]], transports: Sequence[Transport], *, slots: int, longest: int
) -> list[Mapping[bytes, bytes]]:
    """Return the counters of hashes: all if there are at most `longest` fields, else only the totals.

    Those of several partitions, each of which has its transport and the same number of hashes, are added up. Two round
    pipelines per server.
    """
    lengths = fan_out(transports, [[("HLEN", key) for key in each] for each in keys])
    if sum(reply_or_raise(length) for each in lengths for length in each) <= longest:
        replies = fan_out(transports, [[("HGETALL", key) for key in each] for each in keys])
        found = [[_pairs(reply_or_raise(reply)) for reply in each] for each in replies]
    else:
        fields = counter_fields(range(slots), (*WHAT, *TOOK, *WAITED))
        replies = fan_out(transports, [[("HMGET", key, *fields) for key in each] for each in keys])
        found = [[there(fields, reply_or_raise(reply)) for reply in each] for each in replies]
    return [each[0] if len(each) == 1 else added(each) for each in zip(*found, strict=True)]


# The sums over the partitions of a queue.


def summed(config: QueueConfig, parts: Sequence[QueueView]) -> QueueView:
    """Return the view of a queue from those of its partitions; of a queue without partitions its own view.

    Counts are added up, and ages are the longest. Each consumer is listed once, with all that it runs. What differs
    between partitions is in `parts`.
    """
    if not config.parts:
        return parts[0]
    known = [part for part in parts if not part.error]
    if not known:
        return QueueView(name=config.name, error=parts[0].error, external=config.external, parts=tuple(parts))
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
        consumers=_merged(part.consumers for part in known),
        blocker=_worst([part.blocker for part in known]),
        external=config.external,
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
