"""Rows of outboxes that are refused or kept, and claims that are ended."""

from collections.abc import Callable, Iterator
from contextlib import suppress

from mq_django.conf import get_config
from mq_django.core.messages import ACK, Bury, Expire
from mq_django.errors import StoreError
from mq_django.stores.base import Settlement
from mq_django.stores.outbox_marks import ClaimName, EndedMessages, NotNext, OutboxMarks, note_ended
from tests.stores.contracts.stage import Stage, message_of, rsmq_id
from tests.stores.everything import ME

FIRST, LATER = ClaimName("0utb0x:1", 1, "token"), ClaimName("0utb0x:1", 2, "other")


def scenes() -> Iterator[Callable[[Stage], None]]:
    """Yield every scene."""
    yield from (refused, ended, kept)


def refused(stage: Stage) -> None:
    stage.queue()
    marks = OutboxMarks(get_config().queue("emails"), stage.transport())
    with stage.under("the first rows of a claim"):
        marks.refuse(FIRST, 0, [(3, "too large"), (4, "of two\nlines")])
    for title, claim, after in (
        ("the same once more", FIRST, 0),
        ("another claim with this number", FIRST._replace(token="foreign"), 4),
    ):
        with stage.under(title), suppress(NotNext):
            marks.refuse(claim, after, [(5, "no")])
    with stage.under("none: the mark is written again"):
        marks.refuse(FIRST, 4)
    with stage.under("of a later claim"):
        marks.refuse(LATER, 0, [(6, "no")])
    with stage.under("the earlier one is late"), suppress(NotNext):
        marks.refuse(FIRST, 4, [(5, "no")])


def ended(stage: Stage) -> None:
    stage.queue()
    marks = OutboxMarks(get_config().queue("emails"), stage.transport())
    with stage.under("nothing is published"):
        marks.end(FIRST)
    with stage.under("once more"):
        marks.end(FIRST)
    with stage.under("of a later claim"):
        marks.end(LATER)
    for title, claim in (("there is a later one", FIRST), ("another one", LATER._replace(token="foreign"))):
        with stage.under(title), suppress(NotNext):
            marks.end(claim)


def kept(stage: Stage) -> None:
    store = stage.queue(OUTBOX={"KEEP_UNTIL": "handled"})
    store.publish([message_of(1), message_of(2), message_of(3)])
    first, second, third = store.take(ME, count=3)
    with stage.under("rows that are kept: a message is handled, one has expired, and one is buried"):
        store.settle(ME, [Settlement(first, ACK), Settlement(second, Expire()), Settlement(third, Bury("no"))])
    store.publish([message_of(4, delay_ms=60_000)])
    with stage.under("rows that are kept: one is cancelled"):
        store.cancel(rsmq_id(4))
    outbox = EndedMessages(store.config, stage.transport(), "0utb0x")
    with stage.under("rows that are kept: an outbox reads that"):
        last, _ = outbox.read()
    with stage.under("rows that are kept: it has read that"):
        outbox.done(last)
    with stage.under("rows that are kept: there is no more"):
        outbox.read()
    stage.client.delete(store.config.keys.ended)
    stage.client.set(store.config.keys.ended, "mine")
    with stage.under("rows that are kept: a key of another type"):
        note_ended(stage.transport(), store.config, ["x"])
        with suppress(StoreError):
            outbox.read()
        with suppress(StoreError):
            outbox.done("1-1")
