"""Rows of outboxes: published by the script of a publish with their mark, refused, and claims that are ended."""

from collections.abc import Callable, Iterator
from contextlib import suppress

from mq_django.conf import get_config
from mq_django.core.outcomes import ACK, Bury, Expire
from mq_django.core.publication import Publication
from mq_django.errors import AlreadyPublished, QueueFull, StoreError
from mq_django.stores import open_publisher
from mq_django.stores.base import Settlement
from mq_django.stores.ended_messages import EndedMessages, note_ended
from mq_django.stores.outbox_marks import TAKEN, ClaimName, NotNext, OutboxMarks, OutboxWire
from tests.stores.contracts.stage import Stage, message_of, rsmq_id
from tests.stores.everything import ME

FIRST, LATER = ClaimName("0utb0x:1", 1, "token"), ClaimName("0utb0x:1", 2, "other")


def scenes() -> Iterator[Callable[[Stage], None]]:
    """Yield every scene."""
    yield from (published, refused, ended, keys_taken, of_a_partition, kept)


class Outbox:
    """A queue, and what publishes rows to it."""

    def __init__(self, stage: Stage, name: str = "emails") -> None:
        place = get_config().queue(name)
        self.wire = OutboxWire(place, stage.wire())
        self.marks = OutboxMarks(place, stage.wire())
        self.store = open_publisher(place, self.wire)

    def publish(
        self, claim: ClaimName, after: int, last: int, *items: Publication, answers: str = "", refuses: str = ""
    ) -> None:
        self.wire.begin(claim, after, last, answers=answers, refuses=refuses)
        with suppress(NotNext, QueueFull, AlreadyPublished):
            self.store.publish(items)


def published(stage: Stage) -> None:
    stage.queue(MAX_DEPTH=3)
    outbox = Outbox(stage)
    with stage.under("rows of an outbox: the first ones of a claim"):
        outbox.publish(FIRST, 0, 7, message_of(1), message_of(2))
    with stage.under("rows of an outbox: the same once more"):
        outbox.publish(FIRST, 0, 7, message_of(1), message_of(2))
    with stage.under("rows of an outbox: the next ones, for which there is no room"):
        outbox.publish(FIRST, 7, 9, message_of(3), message_of(4))
    with stage.under("rows of an outbox: fewer"):
        outbox.publish(FIRST, 7, 8, message_of(3))
    with stage.under("rows of an outbox: another claim with this number"):
        outbox.publish(FIRST._replace(token="foreign"), 8, 9, message_of(5))
    with stage.under("rows of an outbox: not the first ones of a later claim"):
        outbox.publish(LATER, 10, 11, message_of(6))
    stage.client.delete(outbox.store.keys.ready)
    with stage.under("rows of an outbox: a later claim"):
        outbox.publish(LATER, 0, 11, message_of(6))
    with stage.under("rows of an outbox: the earlier one is late"):
        outbox.publish(FIRST, 8, 9, message_of(4))


def refused(stage: Stage) -> None:
    stage.queue()
    outbox = Outbox(stage)
    with stage.under("the first rows of a claim"):
        outbox.marks.refuse(FIRST, 0, [(3, "too large"), (4, "of two\nlines")])
    for title, claim, after in (
        ("the same once more", FIRST, 0),
        ("another claim with this number", FIRST._replace(token="foreign"), 4),
    ):
        with stage.under(title), suppress(NotNext):
            outbox.marks.refuse(claim, after, [(5, "no")])
    with stage.under("none: the mark is written again"):
        outbox.marks.refuse(FIRST, 4)
    with stage.under("of a later claim"):
        outbox.marks.refuse(LATER, 0, [(6, "no")])
    with stage.under("the earlier one is late"), suppress(NotNext):
        outbox.marks.refuse(FIRST, 4, [(5, "no")])


def ended(stage: Stage) -> None:
    stage.queue()
    outbox = Outbox(stage)
    with stage.under("nothing is published"):
        outbox.marks.end(FIRST)
    with stage.under("once more"):
        outbox.marks.end(FIRST)
    with stage.under("rows of an outbox: the claim was ended"):
        outbox.publish(FIRST, 0, 3, message_of(1))
    outbox.publish(LATER, 0, 3, message_of(1))
    with stage.under("some is published"):
        outbox.marks.end(LATER)
    for title, claim in (("there is a later one", FIRST), ("another one", LATER._replace(token="foreign"))):
        with stage.under(title), suppress(NotNext):
            outbox.marks.end(claim)


def keys_taken(stage: Stage) -> None:
    stage.queue()
    outbox = Outbox(stage)
    delayed = {"delay_ms": 5000, "unique": "u", "keeps_result": True}
    with stage.under("rows of an outbox: tasks with results"):
        outbox.publish(FIRST, 0, 1, message_of(1, **delayed), answers="ids")
    for number, conflict in ((2, "keep"), (3, "error"), (4, "replace")):
        with stage.under(f"rows of an outbox: the unique key waits: {conflict}"):
            item = message_of(number, **delayed, on_conflict=conflict)
            outbox.publish(FIRST, number - 1, number, item, answers="ids", refuses=TAKEN if number == 3 else "")
    claims = {"claim_ms": 0, "unique": "k", "keeps_result": True}
    for number, conflict in ((5, "error"), (6, "keep"), (7, "error")):
        with stage.under(f"rows of an outbox: {number} claims the unique key: {conflict}"):
            item = message_of(number, **claims, on_conflict=conflict)
            outbox.publish(
                FIRST, number - 1, number, item, answers="holder", refuses=TAKEN if conflict == "error" else ""
            )


def of_a_partition(stage: Stage) -> None:
    stage.configure(QUEUES={"emails": {"PARTITIONS": 2}})
    outbox = Outbox(stage, "emails.1")
    with stage.under("rows of an outbox: to a partition"):
        outbox.publish(FIRST, 0, 1, message_of(1))


def kept(stage: Stage) -> None:
    store = stage.queue(OUTBOX={"KEEP_UNTIL": "handled"})
    store.publish([message_of(1), message_of(2), message_of(3)])
    first, second, third = store.take(ME, count=3)
    with stage.under("rows that are kept: a message is handled, one has expired, and one is buried"):
        store.settle(ME, [Settlement(first, ACK), Settlement(second, Expire()), Settlement(third, Bury("no"))])
    store.publish([message_of(4, delay_ms=60_000)])
    with stage.under("rows that are kept: one is cancelled"):
        store.cancel(rsmq_id(4))
    outbox = EndedMessages(store.config, stage.wire(), "0utb0x")
    with stage.under("rows that are kept: an outbox reads that"):
        last, _ = outbox.read()
    with stage.under("rows that are kept: it has read that"):
        outbox.done(last)
    with stage.under("rows that are kept: there is no more"):
        outbox.read()
    stage.client.delete(store.config.keys.ended)
    stage.client.set(store.config.keys.ended, "mine")
    with stage.under("rows that are kept: a key of another type"):
        note_ended(stage.wire(), store.config, ["x"])
        with suppress(StoreError):
            outbox.read()
        with suppress(StoreError):
            outbox.done("1-1")
