"""Messages that consumers have fetched and not started, as of the last heartbeats."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from mq_django.conf import QueueConfig
from mq_django.core.message_format import entry_ms
from mq_django.core.numbers import whole
from mq_django.errors import StoreError
from mq_django.inspector.consumers import SLOT_KINDS, ConsumerView, FullSlots, SlotKind
from mq_django.inspector.message_views import MessageView
from mq_django.inspector.queue_view import Blocker, QueueView
from mq_django.inspector.readers import held, open_reader
from mq_django.inspector.stream_reader import Receipt
from mq_django.registry import kinds
from mq_django.transport.failures import readable
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Transport, fan_out, is_gone, reply_or_raise

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
    views: Sequence[QueueView], configs: Sequence[QueueConfig], transports: Sequence[Transport]
) -> list[QueueView]:
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


def _running(view: QueueView) -> Mapping[str, int]:
    """Return by consumer how many messages it runs. Those that do not announce it are left out.

    Includes consumers without a recent heartbeat: their messages may run until they are recovered.
    """
    return {one.id: one.runs for one in view.consumers if one.runs is not None}


def _without_streams(view: QueueView, config: QueueConfig, running: Mapping[str, int]) -> QueueView:
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
def _with_streams(view: QueueView, running: Mapping[str, int], replies: Sequence[Any]) -> QueueView:
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


def _oldest(view: QueueView, running: Mapping[str, int], entries: Collection[_Entry]) -> _Entry | None:
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

#: Consumer and reference of a running message -> for how long it has been running, in ms.
RunTimes = Mapping[tuple[str, str], int]


def run_times(queue: QueueView) -> RunTimes:
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


def with_blockers(views: Sequence[QueueView]) -> list[QueueView]:
    """Return queues, each with what holds all slots of its consumers while its messages wait.

    One round trip per server if there is such a queue, else none.
    """
    full = {view.name: found for view in views if (found := _full(view))}
    names = _names([found.longest for found in full.values()]) if full else {}
    return [replace(view, blocker=_blocker(full[view.name], names)) if view.name in full else view for view in views]


def _full(view: QueueView) -> _Full | None:
    if view.paused or not view.awaits_slots:
        return None
    consumers = [consumer for consumer in view.consumers if consumer.is_fetching]
    needed = {SLOT_KINDS[is_async] for is_async in kinds(view.name)} or set(SLOT_KINDS)
    for kind in SLOT_KINDS:
        slots = [slots for consumer in consumers for slots in consumer.full if slots.kind == kind]
        # Each consumer has at most one of a kind.
        if kind in needed and slots and len(slots) == len(consumers):
            return _Full(kind, consumers, slots)
    return None


def _names(slots: Sequence[FullSlots]) -> Mapping[tuple[str, Receipt], str]:
    """Return the names of messages by queue and receipt, without those whose handlers have ended since."""
    receipts: dict[str, list[Receipt]] = {}
    for queue, receipt in list(dict.fromkeys(map(_place, slots)))[:MAX_BLOCKERS]:
        receipts.setdefault(queue, []).append(receipt)
    try:
        found = held(receipts)
    except StoreError:
        # The queues were read, and are shown without this.
        return {}
    return {(queue, receipt): view.name for queue in found for receipt, view in found[queue].items()}


def _place(slots: FullSlots) -> tuple[str, Receipt]:
    return slots.queue, (slots.longest.source, slots.longest.entry)


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
        held_ms=min(slots.ms for slots in full.slots),
    )
