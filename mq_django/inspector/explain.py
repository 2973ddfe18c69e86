"""Why a message is not running: one cause, the nearest."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from mq_django.conf import get_config
from mq_django.inspector.limit_standing import Standings
from mq_django.inspector.message_views import EntryView, WaitingView
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.readers import open_reader
from mq_django.inspector.room_reader import MAX_BEFORE
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled

Kind = Literal[
    "broken",  # it is no message, and is buried or dropped when its turn comes
    "delayed",  # its due time is to come
    "due",  # consumers are about to make it ready
    "unhandled",  # no consumer has its handler
    "parked",  # as many of its key are handled as may be
    "throttled",  # of its key were so many as may be in a time
    "held",  # a consumer works on it
    "abandoned",  # its consumer is gone
    "paused",
    "unconsumed",  # nobody consumes the queue
    "behind",  # others stand before it
    "full",  # as many of the queue are handled as may be
    "rate",  # of the queue were so many as may be in a time
    "next",  # it is ready
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a message is not running, or that it is."""

    kind: Kind
    #: Of "behind": how many stand before it; of "parked" and "throttled", of its key; of "full", how many are handled.
    count: int = 0
    #: There may be more than `count`.
    at_least: bool = False
    #: Of "delayed", until it is due; of "throttled" and "rate", until the next turn; of "held" and "abandoned", since
    #: when.
    ms: int = 0
    #: Of "held" and "abandoned".
    consumer: str = ""
    #: Of "parked" and "throttled".
    key: str = ""
    #: Of these, "full" and "rate": how many may be at once, or in `window`.
    most: int = 0
    window: timedelta = timedelta(0)


def why_waiting(view: WaitingView, queue: QueueView) -> Cause:
    """Return why a message in the waiting room does not run."""
    if view.message.error:
        return Cause(kind="broken")
    if view.room == "unhandled":
        return Cause(kind="unhandled")
    if view.room == "parked":
        return _of_queue(queue) or _of_key(view, queue.name)
    left = (view.due_ms or 0) - queue.now_ms
    if left > 0:
        return Cause(kind="delayed", ms=left)
    return _of_queue(queue) or Cause(kind="due")


def why_entry(view: EntryView, queue: QueueView) -> Cause:
    """Return why a message that is ready or pending does not run, or who runs it."""
    if view.consumer:
        lives = any(consumer.id == view.consumer and consumer.alive for consumer in queue.consumers)
        return Cause(kind="held" if lives else "abandoned", consumer=view.consumer, ms=view.held_ms)
    if view.message.error:
        return Cause(kind="broken")
    stopped = _of_queue(queue)
    if stopped is not None:
        return stopped
    count = open_reader(queue.name).before(view.home, view.entry)
    if not count:
        return _of_limits(queue) or Cause(kind="next")
    return Cause(kind="behind", count=count, at_least=count >= MAX_BEFORE)


def _of_queue(queue: QueueView) -> Cause | None:
    if queue.paused:
        return Cause(kind="paused")
    return None if queue.alive else Cause(kind="unconsumed")


def _of_key(view: WaitingView, name: str) -> Cause:
    key, limits = view.message.key or "", get_config().queue(name).limits
    use = _standings(name).of_key(key, view.member)
    most = limits.key_concurrency
    if most is not None and use.at_once >= most:
        return Cause(kind="parked", key=key, count=use.before, most=most)
    if limits.key_rate is not None:
        rate = limits.key_rate
        return Cause(
            kind="throttled", key=key, count=use.before, ms=use.next_ms or 0, most=rate.count, window=rate.window
        )
    # A permit is free, or there is no limit any more.
    return Cause(kind="due")


def _of_limits(queue: QueueView) -> Cause | None:
    limits = get_config().queue(queue.name).limits
    if not limits.of_queue:
        return None
    use = _standings(queue.name).of_queue(queue.pending)
    if use.is_full and limits.concurrency is not None:
        return Cause(kind="full", most=limits.concurrency, count=queue.pending)
    if use.next_ms and limits.rate is not None:
        return Cause(kind="rate", most=limits.rate.count, window=limits.rate.window, ms=use.next_ms)
    return None


def _standings(name: str) -> Standings:
    return Standings(get_config().queue(name), Pooled(get_client("inspect")))
