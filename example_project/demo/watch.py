"""What the demo asks about the queues: all of it through the inspector."""

from collections.abc import Iterable, Iterator

from mq_django import inspector, queues
from mq_django.conf import get_config
from mq_django.inspector import dead_letters, messages
from mq_django.inspector.message_ids import MessageState
from mq_django.inspector.message_views import MessageView
from mq_django.transport.connections import get_client

#: Messages of a page.
PAGE = 500


def totals() -> inspector.Totals:
    """Return the counts of all queues together."""
    return inspector.totals()


def is_consumed() -> bool:
    """Say whether every queue has a live consumer."""
    return all(view.alive for view in inspector.overview())


def is_busy() -> bool:
    """Say whether something is ready or being worked on."""
    counts = totals()
    return counts.ready + counts.pending > 0


def places(names: Iterable[str] = ()) -> dict[str, MessageState]:
    """Return where each message of some queues is, or of all, by its id."""
    chosen = list(names) or list(queues)
    return {message_id: place for queue in chosen for place, found in inspector.ids(queue) for message_id in found}


def delayed_and_dead(queue: str) -> Iterator[MessageView]:
    """Yield the messages of a queue that wait for their time or were buried."""
    start = 0
    while found := messages.waiting(queue, "delayed", start=start, limit=PAGE).waiting:
        yield from (view.message for view in found)
        start += len(found)
    before = ""
    while letters := dead_letters.page(queue, limit=PAGE, before=before).letters:
        yield from (letter.message for letter in letters)
        before = letters[-1].entry


def forget_all() -> None:
    """Delete the demo's keys from a Redis that goes on without it."""
    client = get_client("inspect")
    for key in client.scan_iter(match=f"{get_config().namespace}:*", count=1000):
        client.unlink(key)
