"""Hold the messages of a name or of a key, and open and close breakers by hand."""

from datetime import timedelta

from mq_django.conf import QueueConfig, get_config
from mq_django.core import clock
from mq_django.core.clock import Duration, read_duration
from mq_django.core.holds import MAX_HOLDS, Hold, Kind
from mq_django.core.ids import is_text
from mq_django.core.message_format import MAX_NAME_LENGTH
from mq_django.core.texts import repr_of
from mq_django.errors import InvalidFilter, QueueFull
from mq_django.inspector.queues import quick_stats
from mq_django.stores import open_store
from mq_django.stores.activity import recorded
from mq_django.stores.base import Store
from mq_django.transport.connections import open_transport

#: The longest hold with an end.
MOST = timedelta(days=366)


def holds(queue: str) -> tuple[Hold, ...]:
    """Return what is held of a queue or a group of a topic, by people and by breakers.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
    """
    return quick_stats(queue).holds


@recorded("hold", queue="queue", about=lambda given: [given["about"]])
def hold(queue: str, kind: Kind, about: str, *, who: str = "", reason: str = "", lasts: Duration | None = None) -> None:
    """Hold the messages of a name or of a key: they wait uncharged, while others go on.

    A handler that runs is not interrupted. A hold that exists already is replaced. In a queue with ORDERED the later
    messages of a held message's key wait with it.

    Args:
        queue: the queue, or the group of a topic.
        kind: "name" or "key".
        about: the name, or the key.
        who: who holds them, for others to see.
        reason: why.
        lasts: how long, a timedelta or seconds; None: until end_hold().

    Raises:
        UnknownQueue: the queue is not configured.
        InvalidFilter: the name or key cannot be one, or the hold would last more than a year.
        QueueFull: the queue has 100 holds.
        NotSupported: the queue is in RSMQ's format.
        StoreError: cannot reach Redis.
    """
    now = clock.now_ms()
    until = None if lasts is None else now + _milliseconds(lasts)
    made = Hold(kind=kind, value=_checked(kind, about), who=who, reason=reason, since_ms=now, until_ms=until)
    for store in _stores(queue):
        if not store.hold(made):
            raise QueueFull(f"Queue {repr_of(queue)} has {MAX_HOLDS} holds, which are the most it can have")


@recorded("end hold", queue="queue", about=lambda given: [given["about"]])
def end_hold(queue: str, kind: Kind, about: str) -> bool:
    """End a hold, or close a breaker, and return whether there was one. Its messages become ready.

    Args:
        queue: the queue, or the group of a topic.
        kind: "name", "key", or "queue" for a breaker of the whole queue.
        about: the name, the key, or "" for the queue.

    Raises:
        UnknownQueue: the queue is not configured.
        InvalidFilter: the name or key cannot be one.
        StoreError: cannot reach Redis.
    """
    subject = Hold(kind=kind, value=_checked(kind, about)).subject
    ended = [store.end_hold(subject) for store in _stores(queue)]
    return any(ended)


def _stores(queue: str) -> list[Store]:
    config = get_config().queue(queue)
    return [_open(part) for part in (config.parts or (config,))]


def _open(config: QueueConfig) -> Store:
    return open_store(config, open_transport("inspect", config.connection))


def _checked(kind: Kind, about: str) -> str:
    if kind == "queue" and about == "":
        return about
    if kind not in ("name", "key") or not is_text(about) or not 0 < len(about) <= MAX_NAME_LENGTH:
        raise InvalidFilter(f"Nothing has the {kind} {repr_of(about, 80)}")
    return about


def _milliseconds(lasts: Duration) -> int:
    try:
        found = read_duration(lasts)
    except TypeError as error:
        raise InvalidFilter(f"A hold lasts a time: {error}") from error
    if not timedelta(0) < found <= MOST:
        raise InvalidFilter(f"A hold lasts up to {MOST.days} days, not {repr_of(lasts)}")
    return round(found.total_seconds() * 1000)
