"""Why a message is not running: one cause, the nearest."""

from dataclasses import dataclass
from typing import Literal

from mq_django.inspector import entries
from mq_django.inspector.entries import MAX_BEFORE, EntryView
from mq_django.inspector.messages import WaitingView
from mq_django.inspector.queues import QueueView

Kind = Literal[
    "broken",  # it is no message, and is buried or dropped when its turn comes
    "delayed",  # its due time is to come
    "due",  # consumers are about to make it ready
    "unhandled",  # no consumer has its handler
    "held",  # a consumer works on it
    "abandoned",  # its consumer is gone
    "paused",
    "unconsumed",  # nobody consumes the queue
    "behind",  # others stand before it
    "next",  # nothing stands in its way
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a message is not running, or that it is."""

    kind: Kind
    #: Of "behind": how many stand before it.
    count: int = 0
    #: There may be more than `count`.
    at_least: bool = False
    #: Of "delayed", until it is due; of "held" and "abandoned", since when.
    ms: int = 0
    #: Of "held" and "abandoned".
    consumer: str = ""


def why_waiting(view: WaitingView, queue: QueueView) -> Cause:
    """Return why a message in the waiting room does not run."""
    if view.message.error:
        return Cause(kind="broken")
    if view.room == "unhandled":
        return Cause(kind="unhandled")
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
    count = entries.before(queue.name, view)
    if not count:
        return Cause(kind="next")
    return Cause(kind="behind", count=count, at_least=count >= MAX_BEFORE)


def _of_queue(queue: QueueView) -> Cause | None:
    if queue.paused:
        return Cause(kind="paused")
    return None if queue.alive else Cause(kind="unconsumed")
