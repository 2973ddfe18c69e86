"""Statistics of queues, many in one round trip, and what of their messages runs. Read-only."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any, Literal, NamedTuple

from mq_django.conf import QueueConfig, TopicConfig, get_config
from mq_django.core import clock
from mq_django.core.breakers import read_holds
from mq_django.core.jsontext import LAST_MS, score_ms, whole
from mq_django.core.limits import read_changes
from mq_django.core.message_format import entry_ms
from mq_django.errors import StoreError
from mq_django.inspector import queue_view
from mq_django.inspector.consumers import SLOT_KINDS, Consumers, ConsumerView, FullSlots, SlotKind, housekeepers_of
from mq_django.inspector.message_views import MessageView
from mq_django.inspector.readers import held, open_reader, reader_of
from mq_django.inspector.stream_reader import Receipt
from mq_django.registry import kinds
from mq_django.stores.background_jobs import jobs_of
from mq_django.stores.counters import DEPTH, TOOK, WAITED, WHAT, added, counter_fields, minute_fields, there
from mq_django.stores.dead_letters import text_of
from mq_django.stores.members import read_membership
from mq_django.stores.topic_stats import MAX_NAMES, TopicStats, topic_stats
from mq_django.transport.failures import readable
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Transport, fan_out, is_gone, reply_or_raise

#: Messages of a log that a page counts if Redis does not report the lag of a group.
MAX_COUNTED = 10_000
#: Counters that a page reads; with more of them, only the totals or one name are read.
MAX_COUNTERS = 30_000
DEPTHS = tuple(DEPTH + state for state in queue_view.STATES)


def read_views(
    configs: Sequence[QueueConfig], transports: Sequence[Transport], *, minutes: int
) -> list[queue_view.QueueView | StoreError]:
    """Return the statistics of queues, with the totals of the last minutes; an error for a queue that cannot be read.

    Each queue has its transport. One round trip per server, with one command per queue; one more if there are topics.
    """
    now_ms = clock.now_ms()
    hour, hours = now_ms // 3_600_000, minute_fields(now_ms // 60_000, minutes)
    readers = list(map(reader_of, configs, transports))
    pipelines = [[reader.read_command(hour, *hours)] for reader in readers]
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
        return topic_stats(topics, transports, at_most=MAX_COUNTED, max_groups=MAX_NAMES)
    except StoreError as error:
        return [error] * len(topics)


def read_closely(
    configs: Sequence[QueueConfig], transports: Sequence[Transport], *, of: str = ""
) -> tuple[list[queue_view.QueueView | StoreError], queue_view.Activity]:
    """Return the statistics of a queue, or of its partitions, and the activity of the last hour of all together.

    The activity is that of messages named `of`, or of all. Each partition also has its totals.
    """
    now_ms = clock.now_ms()
    hour = now_ms // 3_600_000
    views = read_views(configs, transports, minutes=0 if len(configs) == 1 else queue_view.WINDOW)
    readable_ones = [number for number, view in enumerate(views) if isinstance(view, queue_view.QueueView)]
    if not readable_ones:
        return views, queue_view.NONE
    keys = [[configs[number].keys.minutes(hour - ago) for ago in (0, 1)] for number in readable_ones]
    found = counted(keys, [transports[number] for number in readable_ones], slots=60, of=of)
    activity = queue_view.activity_of_hour(*found.hashes, now_ms=now_ms, of=of)
    return views, replace(activity, names_left_out=found.names_left_out)


def _with_log(
    view: queue_view.QueueView | StoreError, name: str, found: TopicStats | StoreError
) -> queue_view.QueueView | StoreError:
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
    return replace(
        view,
        ready=ready,
        lag=group.lag,
        pending=pending,
        oldest_ms=max(ages, default=None),
        retention=None if group.alarm is None else group.share or 0.0,
        lost=group.lost,
    )


@readable
def _view(config: QueueConfig, reply: Any, counted_ms: int, hours: Sequence[Sequence[bytes]]) -> queue_view.QueueView:
    found = reply_or_raise(reply)
    now_ms, deliverable, pending, delayed, unhandled, parked, dead, oldest, next_due, state, members, *more = found
    counted, (pause, jobs, *lines) = more[:2], more[2:]
    lines, has_runtime_schedules, holds = lines or ((), 0, ())
    this_hour, last_hour = (there(fields, values) for fields, values in zip(hours, counted, strict=True))
    due_ms, membership = score_ms(next_due), read_membership(_pairs(members))
    first_parked, held_keys, held_messages, held_since = lines or (None, 0, 0, None)
    parked_ms = whole(first_parked, LAST_MS)
    changeable = get_config().queue(config.public_name).limits.changeable
    changed = read_changes(*pause[4:]) if changeable else {}
    return queue_view.QueueView(
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
        # A rate of keys makes them wait on purpose.
        parked_ms=None if parked_ms is None or config.limits.changed(changed).key_rate else max(0, now_ms - parked_ms),
        held=queue_view.HeldKeys(held_keys, held_messages, whole(held_since, LAST_MS)),
        next_due_ms=None if due_ms is None else max(0, due_ms - now_ms),
        pause=_pause(*pause[:4]) if state == b"PAUSED" else None,
        jobs=tuple(job for job in jobs_of(jobs).values() if job.state == "running"),
        consumers=Consumers(membership, now_ms=now_ms),
        has_runtime_schedules=bool(has_runtime_schedules),
        holds=tuple(read_holds(holds).values()),
        limit_changes={name: changed[name] for name in changeable if name in changed},
        external=config.external,
        housekeepers=housekeepers_of(membership, now_ms=now_ms),
        activity=queue_view.activity_of_hour(this_hour, last_hour, now_ms=counted_ms)
        if any(hours)
        else queue_view.NONE,
    )


def _pause(who: bytes | None, reason: bytes | None, since: bytes | None, name: bytes | None) -> queue_view.Pause:
    return queue_view.Pause(text_of(who), text_of(reason), whole(since, LAST_MS), text_of(name))


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


class Counters(NamedTuple):
    """The counters of hashes."""

    hashes: list[Mapping[bytes, bytes]]
    #: There are too many of them: see counted().
    names_left_out: bool


def counted(keys: Sequence[Sequence[str]], transports: Sequence[Transport], *, slots: int, of: str = "") -> Counters:
    """Return the counters of hashes: all if there are few, else only the totals, or only the name `of`.

    Those of several partitions, each of which has its transport and the same number of hashes, are added up. Two round
    pipelines per server.
    """
    lengths = fan_out(transports, [[("HLEN", key) for key in each] for each in keys])
    many = sum(reply_or_raise(length) for each in lengths for length in each) > MAX_COUNTERS
    if not many:
        replies = fan_out(transports, [[("HGETALL", key) for key in each] for each in keys])
        found = [[_pairs(reply_or_raise(reply)) for reply in each] for each in replies]
    else:
        kinds = (*WHAT, *TOOK, *WAITED) if of else (*WHAT, *DEPTHS, *TOOK, *WAITED)
        fields = [field + of.encode() for field in counter_fields(range(slots), kinds)]
        replies = fan_out(transports, [[("HMGET", key, *fields) for key in each] for each in keys])
        found = [[there(fields, reply_or_raise(reply)) for reply in each] for each in replies]
    return Counters([each[0] if len(each) == 1 else added(each) for each in zip(*found, strict=True)], many)


# The sums over the partitions of a queue.


def summed(config: QueueConfig, parts: Sequence[queue_view.QueueView]) -> queue_view.QueueView:
    """Return the view of a queue from its partitions' views; without partitions its own view.

    Counts are added up, and ages are the longest. Each consumer is listed once, with all that it runs. What differs
    between partitions is in `parts`.
    """
    if not config.parts:
        return parts[0]
    known = [part for part in parts if not part.error]
    if not known:
        return queue_view.QueueView(
            name=config.name, error=parts[0].error, external=config.external, parts=tuple(parts)
        )
    pauses = [part.pause for part in known if part.pause is not None]
    blockers = [part.blocker for part in known if part.blocker is not None]
    return replace(
        sums_of(config.name, known),
        pause=pauses[0] if len(pauses) == len(known) else None,
        consumers=_merged(part.consumers for part in known),
        blocker=max(blockers, key=lambda blocker: blocker.held_ms, default=None),
        has_runtime_schedules=any(part.has_runtime_schedules for part in known),
        holds=tuple({hold.subject: hold for part in known for hold in part.holds}.values()),
        limit_changes=known[0].limit_changes,
        external=config.external,
        housekeepers=_merged(part.housekeepers for part in known),
        parts=tuple(parts),
    )


def sums_of(name: str, known: Sequence[queue_view.QueueView]) -> queue_view.QueueView:
    """Return one view with the messages and the activity of several: at least one, each of which could be read."""
    counts: Any = {
        what: sum(getattr(view, what) for view in known) for what in (*queue_view.STATES, "lag", "fetched", "lost")
    }
    return queue_view.QueueView(
        name=name,
        now_ms=max(view.now_ms for view in known),
        **counts,
        oldest_ms=_most(view.oldest_ms for view in known),
        fetched_ms=_most(view.fetched_ms for view in known),
        parked_ms=_most(view.parked_ms for view in known),
        held=_held([view.held for view in known]),
        retention=max((view.retention for view in known if view.retention is not None), default=None),
        next_due_ms=min((view.next_due_ms for view in known if view.next_due_ms is not None), default=None),
        jobs=tuple(chain.from_iterable(view.jobs for view in known)),
        activity=_activity([view.activity for view in known]),
    )


def _most(found: Iterable[int | None]) -> int | None:
    return max((each for each in found if each is not None), default=None)


def _held(found: Sequence[queue_view.HeldKeys]) -> queue_view.HeldKeys:
    since = [each.since_ms for each in found if each.since_ms is not None]
    keys, messages = sum(each.keys for each in found), sum(each.messages for each in found)
    return queue_view.HeldKeys(keys, messages, min(since, default=None))


def _activity(found: Sequence[queue_view.Activity]) -> queue_view.Activity:
    """Return the totals. Times are not added up: pages add up the counters first."""
    first = found[0]
    steps = {what: zip(*(getattr(each, what) for each in found), strict=True) for what in queue_view.HAPPENED}
    happened: Any = {what: tuple(map(sum, each)) for what, each in steps.items()}
    return queue_view.Activity(**happened, elapsed=first.elapsed, minutes=first.minutes, since_ms=first.since_ms)


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
        "took_ms": sum(one.took_ms or 0 for one in found),
    }
    counts = [one.runs for one in found if one.runs is not None]
    if len(counts) == len(found):
        described["runs"] = sum(counts)
    return replace(latest, described=described, asked=next((one.asked for one in found if one.asked), ""))


# Messages that consumers have fetched and not started, as of the last heartbeats.

#: Pending entries of a stream that are read to find the oldest one that does not run: as many as run, and some that
#: consumers hold which do not announce what they run. At most MAX_READ.
SPARE, MAX_READ = 20, 500


class _Entry(NamedTuple):
    """A pending entry of a stream."""

    ms: int
    stream: int
    entry: str
    consumer: str


def with_fetched(
    views: Sequence[queue_view.QueueView], configs: Sequence[QueueConfig], transports: Sequence[Transport]
) -> list[queue_view.QueueView]:
    """Return queues, each with the messages that its consumers have fetched and not started.

    One round trip per server if consumers hold more messages than they run, else none. Messages of consumers that do
    not announce what they run are left out.
    """
    running = [_running(view) if view.pending else {} for view in views]
    asked = [
        number
        for number, view in enumerate(views)
        if running[number] and view.pending > sum(running[number].values()) and configs[number].keys.streams()
    ]
    found = dict(enumerate(map(_without_streams, views, configs, running)))
    # The queues were read, and are shown without this.
    with suppress(StoreError):
        pipelines = [list(_commands(configs[number], sum(running[number].values()))) for number in asked]
        for number, replies in zip(asked, fan_out([transports[number] for number in asked], pipelines), strict=True):
            read = _with_streams(views[number], running[number], replies)
            found[number] = views[number] if isinstance(read, StoreError) else read
    return list(found.values())


def _running(view: queue_view.QueueView) -> Mapping[str, int]:
    """Return by consumer how many messages it runs. Those that do not announce it are left out.

    Includes consumers without a recent heartbeat: their messages may run until they are recovered.
    """
    return {one.id: one.runs for one in view.consumers if one.runs is not None}


def _without_streams(
    view: queue_view.QueueView, config: QueueConfig, running: Mapping[str, int]
) -> queue_view.QueueView:
    """Return a queue in RSMQ's format, which has no streams: only consumers of mq_django hold what is pending there.

    It does not store when a message became visible, so the age of these messages is unknown.
    """
    if config.keys.streams() or not running:
        return view
    return replace(view, fetched=max(0, view.pending - sum(running.values())))


def _commands(config: QueueConfig, running: int) -> Iterator[Command]:
    for stream in config.keys.streams():
        yield ("XPENDING", stream, config.keys.group)
        yield ("XPENDING", stream, config.keys.group, "-", "+", min(MAX_READ, running + SPARE))


@readable
def _with_streams(
    view: queue_view.QueueView, running: Mapping[str, int], replies: Sequence[Any]
) -> queue_view.QueueView:
    held: Counter[str] = Counter()
    entries: list[_Entry] = []
    for stream, (summary, rows) in enumerate(zip(replies[::2], replies[1::2], strict=True)):
        # Without a stream, or without its group, nothing is pending in it.
        if is_gone(summary) or is_gone(rows):
            continue
        for name, count in reply_or_raise(summary)[3] or ():
            held[_text(name)] += whole(count) or 0
        for entry, name, *_ in reply_or_raise(rows):
            entries.append(_Entry(entry_ms(entry), stream, entry.decode(), _text(name)))
    fetched = sum(max(0, held[name] - count) for name, count in running.items())
    if not fetched:
        return view
    oldest = _oldest(view, running, sorted(entry for entry in entries if entry.consumer in running))
    return replace(view, fetched=fetched, fetched_ms=None if oldest is None else max(0, view.now_ms - oldest.ms))


def _text(name: bytes) -> str:
    return name.decode(errors="backslashreplace")


def _oldest(view: queue_view.QueueView, running: Mapping[str, int], entries: Collection[_Entry]) -> _Entry | None:
    """Return the oldest entry that no consumer runs.

    Heartbeats list some of the entries that run. The others that run are the oldest ones of their consumer, because it
    starts messages in order.
    """
    listed = {
        (consumer.id, item.source, item.entry.partition("@")[0])
        for consumer in view.consumers
        for item in consumer.running
    }
    known = {entry for entry in entries if (entry.consumer, entry.stream, entry.entry) in listed}
    left = Counter(running)
    left.subtract(entry.consumer for entry in known)
    for entry in entries:
        if entry in known:
            continue
        if left[entry.consumer] <= 0:
            return entry
        left[entry.consumer] -= 1
    return None


# For how long the handlers of pending messages have been running, as of the last heartbeats.

#: A pending message: its handler runs, its consumer may run it, has not started it, or is dead.
HolderState = Literal["running", "held", "fetched", "abandoned"]

#: Consumer and reference of a running message -> for how long it has been running, in ms.
RunTimes = Mapping[tuple[str, str], int]


def run_times(queue: queue_view.QueueView) -> RunTimes:
    """Return the run times of the messages that live consumers are handling: of each consumer the longest 20."""
    ref_of = open_reader(queue.name).ref_of
    return {
        (consumer.id, ref): item.ms
        for consumer in queue.consumers
        if consumer.alive
        for item in consumer.running
        if (ref := ref_of((item.source, item.entry))) is not None
    }


def run_time(view: MessageView, times: RunTimes) -> int | None:
    """Return for how long a message has been running, in ms; None if no consumer has announced that it runs."""
    return times.get((view.consumer, view.ref))


def held_by(view: MessageView, queue: queue_view.QueueView) -> tuple[HolderState, int]:
    """Return what the consumer of a pending message does with it, and for how long its handler runs, in ms."""
    holder = next((consumer for consumer in queue.consumers if consumer.id == view.consumer and consumer.alive), None)
    if holder is None:
        return "abandoned", view.held_ms
    ms = run_time(view, run_times(queue))
    if ms is not None:
        return "running", ms
    return "fetched" if holder.lists_running else "held", view.held_ms


# What holds all slots of a queue's consumers, so that its messages wait.

#: The most deliveries whose messages are read to name their handlers.
MAX_BLOCKERS = 50


class _Full(NamedTuple):
    """All slots of one kind are busy, in all consumers of a queue."""

    kind: SlotKind
    consumers: Sequence[ConsumerView]
    slots: Sequence[FullSlots]

    @property
    def longest(self) -> FullSlots:
        """Return the slots of which one has run a handler for longest."""
        return max(self.slots, key=lambda slots: slots.longest.ms)


def with_blockers(views: Sequence[queue_view.QueueView]) -> list[queue_view.QueueView]:
    """Return queues, each with what holds all slots of its consumers while its messages wait.

    One round trip per server if there is such a queue, else none.
    """
    full = {view.name: found for view in views if (found := _full(view))}
    names = _names([found.longest for found in full.values()]) if full else {}
    return [replace(view, blocker=_blocker(full[view.name], names)) if view.name in full else view for view in views]


def _full(view: queue_view.QueueView) -> _Full | None:
    if view.paused or not view.awaits_slots:
        return None
    needed = {SLOT_KINDS[is_async] for is_async in kinds(view.name)} or set(SLOT_KINDS)
    consumers = []
    for consumer in filter(lambda one: one.is_fetching, view.consumers):
        if not any(slots.kind in needed for slots in consumer.full):
            # So no more is read of the others.
            return None
        consumers.append(consumer)
    for kind in SLOT_KINDS:
        slots = [slots for consumer in consumers for slots in consumer.full if slots.kind == kind]
        # Each consumer has at most one of a kind.
        if kind in needed and slots and len(slots) == len(consumers):
            return _Full(kind, consumers, slots)
    return None


def _names(slots: Sequence[FullSlots]) -> Mapping[tuple[str, Receipt], str]:
    """Return the names of messages by queue and receipt, without those whose handlers have ended since."""
    receipts: dict[str, list[Receipt]] = {}
    for queue, receipt in list(dict.fromkeys(map(_longest, slots)))[:MAX_BLOCKERS]:
        receipts.setdefault(queue, []).append(receipt)
    try:
        found = held(receipts)
    except StoreError:
        # The queues were read, and are shown without this.
        return {}
    return {(queue, receipt): view.name for queue in found for receipt, view in found[queue].items()}


def _longest(slots: FullSlots) -> tuple[str, Receipt]:
    return slots.queue, (slots.longest.source, slots.longest.entry)


def _blocker(full: _Full, names: Mapping[tuple[str, Receipt], str]) -> queue_view.Blocker | None:
    longest = full.longest
    name = names.get(_longest(longest))
    if name is None:
        return None
    threads = sum(consumer.threads or 0 for consumer in full.consumers)
    return queue_view.Blocker(
        kind=full.kind,
        threads=threads if full.kind == "threads" else 0,
        consumers=tuple(consumer.id for consumer in full.consumers),
        queue=longest.queue,
        name=name,
        ms=longest.longest.ms,
        held_ms=min(slots.ms for slots in full.slots),
    )
