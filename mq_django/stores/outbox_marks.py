"""The marks of outboxes in Redis: which rows of a claim are published, and the scripts that write that."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mq_django.conf import DeliveryOptions, QueueConfig
from mq_django.core.jsontext import whole
from mq_django.core.keys import QueueKeys
from mq_django.core.logs import get_logger
from mq_django.core.messages import CancelResult
from mq_django.core.texts import repr_of
from mq_django.errors import StoreError
from mq_django.signals import message_cancelled, send_signal
from mq_django.stores.message_streams import end_streams
from mq_django.stores.partition_transport import PUBLISH
from mq_django.stores.results import end_cancelled
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Transport

#: The most characters of a reason for which a row was refused.
REASON = 300
#: Why a row is refused whose unique key another message has.
TAKEN = "Another message has this unique key"


class ClaimName(NamedTuple):
    """What names a claim in Redis."""

    #: The UUID of the outbox, and the number of partitions.
    field: str
    #: The number of the claim for its destination, from 1.
    number: int
    token: str


@dataclass(frozen=True, slots=True)
class Mark:
    """What Redis knows of a claim."""

    #: "DONE"; or why nothing was written: "FULL", "GAP", "BEHIND", "FOREIGN", "ENDED".
    word: str
    #: Of the latest claim that Redis knows.
    number: int
    token: str
    #: The claim's last row that is published or refused; 0: none.
    done: int
    #: Row -> the reason for which it was refused.
    refused: Mapping[int, str] = field(default_factory=dict)


class NotNext(Exception):
    """A chunk was not published, because it is not what comes next. `mark` has what Redis knows."""

    def __init__(self, mark: Mark) -> None:
        super().__init__(mark.word)
        self.mark = mark


class OutboxMarks:
    """The marks of one outbox in the hash slot of a destination: of a queue, a topic or a partition."""

    def __init__(self, destination: DeliveryOptions, transport: Transport) -> None:
        self._key = destination.keys.outbox
        self._transport = transport

    def refuse(self, name: ClaimName, after: int, refused: Sequence[tuple[int, str]] = ()) -> Mark:
        """Note that rows are not published, with the reasons, and return the mark. Without any it is written again.

        Raises:
            NotNext: these are not the rows that come after `after`, or the claim is not the latest.
            StoreError: Redis cannot be reached, or refuses.
        """
        args: list[Argument] = [*name, after]
        for row, reason in refused:
            args += (row, _line(reason))
        return self._run("outbox_refuse", args)

    def end(self, name: ClaimName) -> Mark:
        """End a claim, so that nobody publishes more of it, and return the mark. It may be repeated.

        Raises:
            NotNext: the claim is not the latest.
            StoreError: Redis cannot be reached, or refuses.
        """
        return self._run("outbox_end", [*name])

    def _run(self, script: str, args: Sequence[Argument]) -> Mark:
        mark = mark_of(self._transport.run(script, [self._key], args))
        if mark.word != "DONE":
            raise NotNext(mark)
        return mark


class OutboxTransport(Transport):
    """Sends what a store publishes of the rows of claims: the same script notes it in the mark.

    Args:
        destination: the queue, topic or partition of the store.
        transport: sends the commands.
    """

    def __init__(self, destination: DeliveryOptions, transport: Transport) -> None:
        self._key = destination.keys.outbox
        self._transport = transport
        #: The arguments of the next publish.
        self._chunk: list[Argument] = []
        #: The mark after the latest publish.
        self.mark: Mark | None = None

    def begin(self, name: ClaimName, after: int, last: int, *, answers: str = "", refuses: str = "") -> None:
        """Set what the next publish is.

        Args:
            name: the claim.
            after: the row before the first of this chunk, 0 for the first row of the claim.
            last: the last row of this chunk.
            answers, refuses: see `lua/around/outbox_publish.lua`.
        """
        self._chunk = [*name, after, last, answers, refuses]
        self.mark = None

    def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """See Transport.pipeline().

        Raises:
            NotNext: nothing was written, because this chunk does not come next.
        """
        *results, publish = commands
        if scripts.name_of(publish) not in PUBLISH:
            return self._transport.pipeline(commands)
        args: list[Argument] = []
        for _set, key, text, _px, ttl in results:
            # With the message, by the same script: a chunk that is sent again must not write its results again.
            args += (str(key).partition(":result:")[2], text, ttl)
        keys = [*(str(command[1]) for command in results), self._key]
        args += [*self._chunk, len(results)]
        (reply,) = self._transport.pipeline([scripts.within(publish, "outbox_publish", keys=keys, args=args)])
        if isinstance(reply, Exception):
            return [*(b"OK" for _ in results), reply]
        self.mark = mark_of(reply)
        if self.mark.word not in ("DONE", "FULL"):
            raise NotNext(self.mark)
        return [*(b"OK" for _ in results), reply[6]]


def mark_of(reply: Any) -> Mark:
    """Return the mark in the reply of a script.

    Raises:
        StoreError: it is no such reply.
    """
    try:
        word, number, token, done, _ended, refused = reply[:6]
        lines = [line.partition("\t") for line in refused.decode().splitlines()]
        return Mark(
            word.decode(),
            whole(number) or 0,
            token.decode(),
            whole(done) or 0,
            {number: reason for row, _, reason in lines if (number := whole(row)) is not None},
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise StoreError(f"Not the mark of an outbox: {repr_of(reply, 200)}") from error


def _line(reason: str) -> str:
    return " ".join(reason.split())[:REASON] or "refused"


# The ids of messages that have ended, for the outboxes that keep their rows until then: OUTBOX with KEEP_UNTIL.

logger = get_logger(__name__)

#: Ids that a script call adds.
BATCH = 500
#: Entries that a call reads. Each has the ids of a batch.
ENTRIES = 20


def wants_ended(config: QueueConfig) -> bool:
    """Return whether somebody asks which messages were deleted, and not only how many."""
    is_asked = config.keeps_results or config.keeps_rows or config.stream is not None
    return is_asked or bool(message_cancelled.receivers)


def note_ended(
    transport: Transport,
    config: QueueConfig,
    message_ids: Sequence[str | bytes],
    how: str = "Cancelled while it waited",
    *,
    is_asked: bool = False,
) -> None:
    """Note that messages were deleted before they were handled: in results, streams, for outboxes, and by the signal.

    `is_asked`: somebody has cancelled these by their ids. An error of Redis is logged, because the messages are deleted
    in any case.
    """
    ids = [each.decode(errors="replace") if isinstance(each, bytes) else each for each in message_ids]
    end_cancelled(transport, config, ids, how)
    end_streams(transport, config, ids, how, always=is_asked)
    note_rows(transport, config, message_ids)
    announce_cancelled(config, ids, how)


def announce_cancelled(
    config: DeliveryOptions, message_ids: Sequence[str], how: str = "Cancelled while it waited"
) -> None:
    """Send the signal for messages that were deleted before they were handled. Errors of receivers are logged."""
    for message_id in message_ids if message_cancelled.receivers else ():
        send_signal(message_cancelled, CancelResult, queue=config.public_name, message_id=message_id, error=how)


def note_rows(transport: Transport, config: QueueConfig, message_ids: Sequence[str | bytes]) -> None:
    """Note for outboxes that messages have ended, if their rows are kept until then. An error of Redis is logged."""
    if not config.keeps_rows or not message_ids:
        return
    known: list[Argument] = list(message_ids)
    try:
        for at in range(0, len(known), BATCH):
            transport.ask(ended_command(config.keys, known[at : at + BATCH]))
    except StoreError as error:
        logger.warning("Rows of deleted messages of queue %s stay in their outbox: %s", config.name, error)


def ended_command(keys: QueueKeys, message_ids: Sequence[Argument]) -> Command:
    """Return the command that adds ids of messages that have ended. At most 500."""
    return scripts.command("ended_add", keys=[keys.ended], args=message_ids)


class EndedMessages:
    """The messages of a queue or partition that have ended, as one outbox reads them.

    Args:
        config: the queue or partition.
        transport: sends the commands.
        outbox: names the outbox: its UUID.
    """

    def __init__(self, config: QueueConfig, transport: Transport, outbox: str) -> None:
        self._keys = config.keys
        self._transport = transport
        self._outbox = outbox

    def read(self) -> tuple[str, list[str]]:
        """Return the last entry that was read, "" if there is none, and the ids after those that were read before.

        Raises:
            StoreError: Redis cannot be reached, or refuses.
        """
        last, *ids = self._run("ended_read", [self._outbox, ENTRIES])
        return last.decode(), [each.decode(errors="replace") for each in ids]

    def done(self, last: str) -> None:
        """Note up to which entry this outbox has read. Entries that each outbox has read are deleted.

        Raises:
            StoreError: Redis cannot be reached, or refuses.
        """
        self._run("ended_done", [self._outbox, last])

    def _run(self, script: str, args: Sequence[Argument]) -> Any:
        return self._transport.run(script, [self._keys.ended, self._keys.outbox], args)
