"""The ids of messages that have ended, for the outboxes that keep their rows until then: OUTBOX with KEEP_UNTIL."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from mq_django.conf import DeliveryOptions, QueueConfig
from mq_django.core.keys import QueueKeys
from mq_django.core.logs import get_logger
from mq_django.core.lookup import CancelResult
from mq_django.core.outcomes import Ack, Cancel, Expire
from mq_django.errors import StoreError
from mq_django.signals import message_cancelled
from mq_django.stores.results import end_cancelled
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Wire, reply_or_raise

logger = get_logger(__name__)

#: The outcomes after which a message has ended. Steps of workflows have no rows.
ENDS = frozenset({Ack, Cancel, Expire})
#: Ids that one script call adds.
BATCH = 500
#: Entries that one call reads. Each has the ids of a batch.
ENTRIES = 20


def wants_ended(config: QueueConfig) -> bool:
    """Return whether somebody asks which messages were deleted, and not only how many."""
    return config.keeps_results or config.keeps_rows or bool(message_cancelled.receivers)


def note_ended(
    wire: Wire, config: QueueConfig, message_ids: Sequence[str | bytes], how: str = "Cancelled while it waited"
) -> None:
    """Note that messages were deleted before they were handled: in results of tasks, for outboxes, and by the signal.

    An error of Redis is logged, because the messages are deleted in any case.
    """
    end_cancelled(wire, config, message_ids, how)
    note_rows(wire, config, message_ids)
    announce_cancelled(config, message_ids, how)


def announce_cancelled(
    config: DeliveryOptions, message_ids: Sequence[str | bytes], how: str = "Cancelled while it waited"
) -> None:
    """Send the signal for messages that were deleted before they were handled. Errors of receivers are logged."""
    for each in message_ids if message_cancelled.receivers else ():
        message_id = each.decode(errors="replace") if isinstance(each, bytes) else each
        message_cancelled.send_robust(CancelResult, queue=config.public_name, message_id=message_id, error=how)


def note_rows(wire: Wire, config: QueueConfig, message_ids: Sequence[str | bytes]) -> None:
    """Note for outboxes that messages have ended, if their rows are kept until then. An error of Redis is logged."""
    if not config.keeps_rows or not message_ids:
        return
    known: list[Argument] = list(message_ids)
    try:
        for at in range(0, len(known), BATCH):
            reply_or_raise(wire.trip([ended_command(config.keys, known[at : at + BATCH])])[0])
    except StoreError as error:
        logger.warning("Rows of deleted messages of queue %s stay in their outbox: %s", config.name, error)


def ended_command(keys: QueueKeys, message_ids: Sequence[Argument]) -> Command:
    """Return the command that adds ids of messages that have ended. At most 500."""
    return scripts.command("ended_add", keys=[keys.ended], args=message_ids)


class Held(NamedTuple):
    """Deliveries that a consumer must still hold."""

    stream: str
    group: Argument
    consumer: str
    entries: Sequence[bytes]


def notes_of(
    kind: type, keys: QueueKeys, message_ids: Sequence[Argument], keeps_rows: bool, held: Held | None
) -> list[Command]:
    """Return the commands that note what becomes of messages before they are settled. At most 500 messages.

    Args:
        kind: the type of the outcome.
        keys: those of the queue.
        message_ids: the ids of the messages.
        keeps_rows: outboxes keep rows until their messages have ended.
        held: only of those that are still held; None: of all.
    """
    stream, args = list[str](), list(message_ids)
    if held is not None:
        stream, args = [held.stream], [held.group, held.consumer]
        for pair in zip(held.entries, message_ids, strict=True):
            args += pair
    found = list[Command]()
    if kind is Expire:
        found.append(scripts.command("expired_add", keys=[keys.expired, *stream], args=args))
    if keeps_rows and kind in ENDS:
        found.append(scripts.command("ended_add", keys=[keys.ended, *stream], args=args))
    return found


class EndedMessages:
    """The messages of a queue or partition that have ended, as one outbox reads them.

    Args:
        config: the queue or partition.
        wire: sends the commands.
        outbox: names the outbox: its UUID.
    """

    def __init__(self, config: QueueConfig, wire: Wire, outbox: str) -> None:
        self._keys = config.keys
        self._wire = wire
        self._outbox = outbox

    def read(self) -> tuple[str, list[str]]:
        """Return the last entry that was read, "" if there is none, and the ids after those that were read before.

        Raises:
            StoreError: Redis cannot be reached, or refuses.
        """
        last, *ids = reply_or_raise(self._run("ended_read", [self._outbox, ENTRIES]))
        return last.decode(), [each.decode(errors="replace") for each in ids]

    def done(self, last: str) -> None:
        """Note up to which entry this outbox has read. Entries that each outbox has read are deleted.

        Raises:
            StoreError: Redis cannot be reached, or refuses.
        """
        reply_or_raise(self._run("ended_done", [self._outbox, last]))

    def _run(self, script: str, args: Sequence[Argument]) -> Any:
        (reply,) = self._wire.trip([scripts.command(script, keys=[self._keys.ended, self._keys.outbox], args=args)])
        return reply
