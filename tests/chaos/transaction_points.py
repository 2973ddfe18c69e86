"""Points at which writers of orders, relays and consumers with an inbox end or stop: see points.py."""

from collections.abc import Callable
from typing import Any

from mq_django.inbox.once import Once
from mq_django.outbox.claims import OutboxTables
from mq_django.stores.outbox_marks import OutboxTransport
from tests.chaos.points import before, reached

OF_WRITERS = {
    "order-written": "the order and its messages are rows of an open transaction",
    "order-committed": "they are committed, and no relay is notified",
}
OF_RELAYS = {
    "relay-claimed": "rows are claimed, and none is published",
    "relay-sent": "a script has published rows and written the mark",
    "relay-finishing": "all rows are published, and the claim is open",
    "relay-deleting": "the transaction that deletes the rows is open",
    "relay-finished": "it is committed",
}
OF_HANDLERS = {
    "booked": "the effect and the next message are rows of an open transaction",
    "entered": "those of a batch are",
    "inbox-committed": "the row of the inbox is committed, and the message not acked",
}


def install() -> None:
    """Let this process end at these points."""
    OutboxTables.claim = _after("relay-claimed", OutboxTables.claim)  # type: ignore[method-assign]
    OutboxTransport.pipeline = _after("relay-sent", OutboxTransport.pipeline)  # type: ignore[method-assign]
    finish = before("relay-finishing", OutboxTables.finish)
    OutboxTables.finish = _after("relay-finished", finish)  # type: ignore[method-assign]
    OutboxTables._end_rows = before("relay-deleting", OutboxTables._end_rows)  # type: ignore[method-assign]
    Once._note_commit = _after("inbox-committed", Once._note_commit)  # type: ignore[method-assign]


def _after(point: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def watched(*args: Any, **options: Any) -> Any:
        result = call(*args, **options)
        # A claim that was not made is none.
        if result is not None or point == "inbox-committed":
            reached(point)
        return result

    return watched
