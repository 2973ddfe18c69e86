"""Why a message is not running: the most immediate cause."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from mq_django.conf import QueueConfig, get_config
from mq_django.core.limits import Rate
from mq_django.core.numbers import score_ms, whole
from mq_django.inspector.key_lines import LineHead, line_hash, line_of
from mq_django.inspector.message_views import EntryView, WaitingView
from mq_django.inspector.queue_view import Blocker, Pause, QueueView
from mq_django.inspector.readers import open_reader
from mq_django.inspector.room_reader import MAX_BEFORE
from mq_django.inspector.run_times import run_time, run_times
from mq_django.transport import scripts
from mq_django.transport.connections import open_wire
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import reply_or_raise

Kind = Literal[
    "broken",  # it is not a valid message, and will be buried or dropped
    "delayed",  # its due time is in the future
    "due",  # supervisors are about to make it ready
    "unattended",  # it is due, and no supervisor does the housekeeping of the queue
    "unhandled",  # no consumer has its handler
    "unannounced",  # other programs handle the queue, and none announces its name
    "parked",  # the concurrency limit of its key is reached
    "throttled",  # the rate limit of its key is reached
    "ordered",  # a message of its key is before it, and has not ended
    "turn",  # other keys have their turn
    "running",  # a consumer is handling it
    "held",  # a consumer holds it, and may run it: not all consumers announce what they run
    "fetched",  # a consumer holds it, and does not run it yet
    "abandoned",  # its consumer is dead
    "paused",
    "unconsumed",  # the queue has no running consumer
    "busy",  # all lanes of the queue's consumers are busy
    "behind",  # other messages are before it
    "full",  # the concurrency limit of the queue is reached
    "rate",  # the rate limit of the queue is reached
    "next",  # it is ready
    "elsewhere",  # it is ready, and other programs handle the queue
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a message is not running, or that it is."""

    kind: Kind
    #: "behind" and "busy": messages before it; "parked", "throttled", "ordered" and "turn": parked ones of its key;
    #: "full": pending messages of the queue.
    count: int = 0
    #: `count` is a lower bound.
    at_least: bool = False
    #: "delayed": until it is due; "throttled" and "rate": until the next check; "running": for how long;
    #: "abandoned": since the last heartbeat.
    ms: int = 0
    #: Set for "busy".
    blocker: Blocker | None = None
    #: Set for "running", "held", "fetched" and "abandoned".
    consumer: str = ""
    #: Set for "parked", "throttled", "ordered" and "turn"; "" if it has none.
    key: str = ""
    #: Set for "ordered": the message that its key waits for, by the clock of `now_ms`.
    head: LineHead | None = None
    now_ms: int = 0
    #: Set for "parked", "throttled", "full" and "rate": the limit, of concurrency or per `window`.
    most: int = 0
    window: timedelta = timedelta(0)
    #: Set for "paused".
    pause: Pause | None = None


def why_waiting(view: WaitingView, queue: QueueView) -> Cause:
    """Return why a waiting message is not running."""
    if view.message.error:
        return Cause(kind="broken")
    if view.room == "unhandled":
        return Cause(kind="unhandled" if queue.consume else "unannounced")
    if view.room == "parked":
        return _of_queue(queue) or _of_key(view, queue)
    left = (view.due_ms or 0) - queue.now_ms
    if left > 0:
        return Cause(kind="delayed", ms=left)
    return _of_queue(queue) or Cause(kind="due" if queue.consume or queue.housekeepers else "unattended")


def why_entry(view: EntryView, queue: QueueView) -> Cause:
    """Return why a ready or pending message is not running, or which consumer holds it."""
    if view.consumer:
        return _of_holder(view, queue)
    if view.message.error:
        return Cause(kind="broken")
    stopped = _of_queue(queue)
    if stopped is not None:
        return stopped
    count = open_reader(queue.name).before(view.source, view.entry)
    limited = None if count else _of_limits(queue)
    if limited is not None:
        return limited
    kind: Kind = "busy" if queue.blocker else "behind" if count else "next" if queue.consume else "elsewhere"
    return Cause(kind=kind, count=count, at_least=count >= MAX_BEFORE, blocker=queue.blocker)


def _of_holder(view: EntryView, queue: QueueView) -> Cause:
    """Return why a pending message is not running, or that it is, by the consumer that holds it."""
    holder = next((consumer for consumer in queue.consumers if consumer.id == view.consumer and consumer.alive), None)
    if holder is None:
        return Cause(kind="abandoned", consumer=view.consumer, ms=view.held_ms)
    ms = run_time(view, run_times(queue))
    if ms is not None:
        return Cause(kind="running", consumer=view.consumer, ms=ms)
    if queue.blocker and holder.full:
        return Cause(kind="busy", consumer=view.consumer, blocker=queue.blocker)
    return Cause(kind="fetched" if holder.lists_running else "held", consumer=view.consumer)


def _of_queue(queue: QueueView) -> Cause | None:
    if queue.paused:
        return Cause(kind="paused", pause=queue.pause)
    return None if queue.is_served else Cause(kind="unconsumed")


def _of_key(view: WaitingView, queue: QueueView) -> Cause:
    """Return which limit of its key, which message of it or which turn a parked message waits for."""
    config, key = get_config().queue(queue.name), view.message.key or ""
    keys, score = config.keys, line_hash(view.message.key)
    commands: list[Command] = [
        ("ZRANK", keys.parked, view.member),
        ("ZCOUNT", keys.parked, "-inf", f"({score}"),
        ("ZCOUNT", keys.permits, score, score),
        ("ZSCORE", keys.next_checks, score),
        ("ZSCORE", keys.tags, score),
        scripts.command("clock_read", keys=[keys.parked], args=[]),
    ]
    replies = open_wire("inspect", config.connection).trip(commands)
    rank, first_rank, permits, next_check, tag, now_us = (reply_or_raise(reply) for reply in replies)
    before, most, rate = max(0, (rank or 0) - first_rank), config.limits.key_concurrency, config.limits.key_rate
    if config.limits.ordered and permits:
        line = line_of(queue.name, score, view=queue)
        if line.blocking is not None:
            return Cause(kind="ordered", key=key, count=before, head=line.blocking, now_ms=line.now_ms)
    elif most is not None and permits >= most:
        return Cause(kind="parked", key=key, count=before, most=most)
    left = max(0, (score_ms(next_check) or 0) - now_us // 1000)
    if config.limits.fair is not None and (tag is not None or rate is None or not left):
        return Cause(kind="turn", key=key, count=before)
    if rate is not None:
        return Cause(kind="throttled", key=key, count=before, ms=left, most=rate.count, window=rate.window)
    # A permit is free, or the limit was removed.
    return Cause(kind="due")


def _of_limits(queue: QueueView) -> Cause | None:
    config = get_config().queue(queue.name)
    most, rate = config.limits.concurrency, config.limits.rate
    if most is not None and queue.pending >= most:
        return Cause(kind="full", most=most, count=queue.pending)
    if rate is not None and (left := _until_free(config, rate)):
        return Cause(kind="rate", most=rate.count, window=rate.window, ms=left)
    return None


def _until_free(config: QueueConfig, rate: Rate) -> int:
    """Return the milliseconds until the rate of a queue allows another delivery; 0: now."""
    wire = open_wire("inspect", config.connection)
    clock = scripts.command("clock_read", keys=[config.keys.limits], args=[])
    log, now_us = map(reply_or_raise, wire.trip([("HGET", config.keys.limits, "r"), clock]))
    now = int(now_us)
    grants = [word.partition(b":") for word in (log or b"").split()]
    counted = [(whole(at) or 0, whole(count) or 0) for at, _, count in grants]
    used = [(at, count) for at, count in counted if at >= now - rate.micros]
    if sum(count for _, count in used) < rate.count:
        return 0
    return max(1, (used[0][0] + rate.micros + 1 - now) // 1000)
