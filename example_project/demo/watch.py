"""What the demo asks about the queues and the outbox: all of it through the inspector."""

from collections.abc import Iterable, Iterator
from typing import Literal

from django.db import DEFAULT_DB_ALIAS

from mq_django import inspector, queues
from mq_django.conf import get_config
from mq_django.inspector import message_lists, outbox_views
from mq_django.inspector.message_views import MessageState, MessageView
from mq_django.inspector.outbox_views import OutboxRow, outboxes
from mq_django.transport.connections import get_client

#: Where a message is that is not handled yet: in the outbox, or in Redis.
LookupState = MessageState | Literal["in the outbox"]

#: Messages of a page.
PAGE = 500


def totals() -> inspector.Totals:
    """Return the counts of all queues together."""
    return inspector.totals()


def is_consumed() -> bool:
    """Say whether every queue has a live consumer."""
    return all(view.alive for view in inspector.overview())


def is_busy() -> bool:
    """Say whether something is in the outbox, ready or being worked on."""
    if in_outbox():
        return True
    counts = totals()
    return counts.ready + counts.pending > 0


def in_outbox() -> int:
    """Return how many messages wait in the outbox."""
    return sum(view.waiting for view in outboxes())


def states(names: Iterable[str] = ()) -> dict[str, LookupState]:
    """Return where each message of some queues is, or of all, by its id."""
    chosen = list(names) or list(queues)
    found: dict[str, LookupState] = {row.message_id: "in the outbox" for queue in chosen for row in rows(queue)}
    # Last: the row of a message that is in Redis may be there for a moment longer.
    for queue in chosen:
        found |= {message_id: state for state, ids in inspector.ids(queue) for message_id in ids}
    return found


def rows(destination: str) -> Iterator[OutboxRow]:
    """Yield the rows of the outbox for a queue or topic: those that wait, then those that were set aside."""
    for set_aside in (False, True):
        after: int | None = 0
        while after is not None:
            page = outbox_views.page_of(DEFAULT_DB_ALIAS, destination, set_aside=set_aside, after=after, limit=PAGE)
            yield from page.rows
            after = page.after


def delayed_and_dead(queue: str) -> Iterator[MessageView]:
    """Yield the messages of a queue that wait for their time or were buried."""
    states: tuple[MessageState, ...] = ("delayed", "dead")
    for state in states:
        after: str | None = ""
        while after is not None:
            page = message_lists.messages(queue, state, after=after, limit=PAGE)
            yield from page.rows
            after = page.after or None


def forget_all() -> None:
    """Delete the demo's keys from a Redis that goes on without it."""
    client = get_client("inspect")
    for key in client.scan_iter(match=f"{get_config().namespace}:*", count=1000):
        client.unlink(key)
