"""The line of a key: its parked messages, and its heads, which are the messages that the parked ones wait for."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from mq_django.conf import QueueConfig, get_config
from mq_django.core.jsontext import score_ms, whole
from mq_django.core.keys import READY
from mq_django.core.limits import key_hash
from mq_django.core.message_format import decode_body, decode_entry, entry_ms, message_of
from mq_django.core.messages import Delivery, Message
from mq_django.core.redaction import redact_forms
from mq_django.core.texts import repr_of
from mq_django.errors import DecodeError, NotSupported
from mq_django.inspector import dead_letters
from mq_django.inspector.actions import Outcome, effect_of
from mq_django.inspector.message_views import MessageView, ref_of
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import quick_stats
from mq_django.inspector.statistics import held_by
from mq_django.inspector.stream_reader import one_queue
from mq_django.stores.activity import Effect, recorded
from mq_django.stores.dead_letters import fields_of, is_entry, text_of
from mq_django.stores.line_store import NO_KEY, Skip, read_command, skip_head
from mq_django.transport.connections import open_transport
from mq_django.transport.sessions import Transport, reply_or_raise

# The keys that have most of the parked messages, by a sample.

#: Parked messages that are looked at.
SAMPLE = 500
#: A key is shown from this share of them on, and so many keys at most.
MIN_SHARE, MAX_NOISY = 0.02, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyShare:
    """A key and its share of the parked messages of a queue."""

    key: str
    #: The hash of the key, as in `mq_django.core.limits.key_hash()`.
    hash: int
    #: Of those that were looked at, 0 to 1.
    share: float


def noisy_keys(config: QueueConfig, transport: Transport) -> Sequence[KeyShare]:
    """Return the keys that have most of the parked messages of a queue, largest share first.

    Raises:
        StoreError: cannot reach Redis.
    """
    (reply,) = transport.pipeline([("ZRANDMEMBER", config.keys.parked, SAMPLE, "WITHSCORES")])
    # Those below 0 are held.
    lines = Counter(line for line in map(whole, reply_or_raise(reply)[1::2]) if line is not None)
    most = [(line, count / lines.total()) for line, count in lines.items()]
    shares = sorted((each for each in most if each[1] >= MIN_SHARE), key=lambda each: (-each[1], each[0]))[:MAX_NOISY]
    commands = [read_command(config, line, count=1, max_bytes=MAX_BYTES) for line, _ in shares]
    first = [reply_or_raise(reply)[4:6] for reply in (transport.pipeline(commands) if commands else ())]
    keys = [_of_entry(config.name, *found).key if found else None for found in first]
    return [KeyShare(key=key or "", hash=line, share=share) for key, (line, share) in zip(keys, shares, strict=True)]


#: The most parked messages and heads of a line that are listed.
MAX_LISTED = 20
#: A field or body of more bytes is not read.
MAX_BYTES = 32 * 1024

HeadState = Literal[
    "running",  # a consumer is handling it
    "held",  # a consumer holds it, and may run it: not all consumers announce what they run
    "fetched",  # a consumer holds it, and does not run it yet
    "abandoned",  # its consumer is dead
    "ready",
    "delayed",  # it is due later, for example for its next attempt
    "unhandled",  # no consumer has its handler
    "on hold",  # its name or key is held
    "dead",  # it is a dead letter
    "gone",  # it is nowhere: the next look at the line drops its token
]
_WAITS: dict[bytes, HeadState] = {
    b"ready": "ready",
    b"due": "delayed",
    b"unhandled": "unhandled",
    b"held": "on hold",
    b"dead": "dead",
}
_SOURCES = {"0": "ready", "1": "front"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LineHead:
    """A message that has a token of its key: others of the key wait until it gives that up."""

    #: Names it for skip(): see `lua/parts/tokens.lua`.
    token: str
    state: HeadState
    id: str
    name: str
    attempt: int
    #: The consumer that holds it.
    consumer: str = ""
    #: Since when it is there, in ms since 1970: since the start of its handler, its delivery, or its burial.
    since_ms: int | None = None
    #: When a delayed one is due, in ms since 1970.
    due_ms: int | None = None

    @property
    def can_be_skipped(self) -> bool:
        """Return whether its key can go on without it: it neither runs nor is about to."""
        return self.state in ("delayed", "unhandled", "on hold", "dead")

    @property
    def entry(self) -> str:
        """Return the entry of its stream or of its dead letter, or its member."""
        return self.token[2:]

    @property
    def ref(self) -> str | None:
        """Return the reference of a ready or pending one, as in a MessageView; None for others."""
        source = _SOURCES.get(self.token[:1])
        return None if source is None else f"{source}.{self.entry}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLine:
    """The line of one key, by the clock of Redis."""

    queue: str
    #: With secrets replaced; "" for the messages without a key, or if no message of the line tells it.
    key: str
    #: Names the line: see line_of().
    hash: int
    now_ms: int
    #: Whether the messages of a key run in their order, so that all others wait for its head.
    ordered: bool
    #: Parked messages, and the first of them.
    parked: int
    first: Sequence[MessageView]
    #: Messages with a token, and the first of them. With order there is at most one.
    tokens: int
    heads: Sequence[LineHead]

    @property
    def blocking(self) -> LineHead | None:
        """Return the head that all others wait for; None without order, and without a head."""
        return self.heads[0] if self.ordered and self.heads else None


def key_line(queue: str, key: str | None) -> KeyLine:
    """Return the line of a key; None: of the messages without a key, which only queues with FAIR have.

    Raises:
        UnknownQueue: the queue is not configured.
        NotSupported: it has no lines, because it has no limits by key, no ORDERED and no FAIR.
        StoreError: cannot reach Redis.
    """
    config = get_config().queue(queue)
    if not config.limits.of_keys:
        raise NotSupported(f"Queue {repr_of(queue)} has no lines: no limits by key, no ORDERED and no FAIR")
    # An argument of a command line may have what UTF-8 cannot encode.
    text = "" if key is None else key.encode(errors="replace").decode()
    # Of a queue with partitions, each has a line of the messages without a key.
    part = config.partition_for(key=text) if text else one_queue(queue)
    return line_of(part.name, line_hash(None if key is None else text), key=text)


def line_hash(key: str | None) -> int:
    """Return what names the line of a key; None: the line of the messages without a key."""
    return NO_KEY if key is None else key_hash(key)


def line_of(queue: str, line: int, *, key: str = "", view: QueueView | None = None) -> KeyLine:
    """Return a line by the hash of its key; see key_line().

    A queue without lines may have what is left of them.

    Args:
        key: shown if no message of the line tells its key.
        view: the queue as it was read before; None: it is read if that is necessary.
    """
    config = _config(queue)
    command = read_command(config, line, count=MAX_LISTED, max_bytes=MAX_BYTES)
    now_ms, parked, tokens, listed, *rows = open_transport("inspect", config.connection).ask(command)
    split = 2 * listed
    waiting = [(member, _of_entry(queue, member, flat)) for member, flat in _rows(rows[:split], 2)]
    found = [_Token(*row) for row in _rows(rows[split:], 5)]
    if view is None and any(token.state == b"pending" for token in found):
        view = quick_stats(queue)
    seen = [(_message(queue, token), token) for token in found]
    messages = [message for _, message in waiting] + [message for message, _ in seen]
    keys = [*(message.key for message in messages if message.key), *([key] if key else [])]
    return KeyLine(
        queue=queue,
        key=redact_forms(keys[0]) if keys else "",
        hash=line,
        now_ms=now_ms,
        ordered=config.limits.ordered,
        parked=parked,
        first=[replace(message, state="parked", ref=ref_of(member)) for member, message in waiting],
        tokens=tokens,
        heads=[_head(message, token, now_ms, view) for message, token in seen],
    )


@recorded(
    "skip message",
    queue="queue",
    about=lambda given: [given["token"][2:]],
    effect=lambda _, word: Effect(word == "SKIPPED"),
)
def skip(queue: str, line: int, token: str) -> Skip:
    """Let a key go on without its head, which waits: it stays where it is, and is out of order from now on.

    Returns:
        `CHANGED` if the head is another one now, `RUNS` if it runs or is about to.
    """
    config = _config(queue)
    return skip_head(config, open_transport("inspect", config.connection), line, token)


@recorded("redrive", queue="queue", about=lambda given: [given["head"].id], effect=effect_of)
def redrive_head(queue: str, head: LineHead) -> Outcome:
    """Redrive the dead letter that its key waits for, before the other messages of the key."""
    return dead_letters.redrive(queue, [head.entry])


def _config(queue: str) -> QueueConfig:
    config = one_queue(queue)
    if config.store != "stream":
        raise NotSupported(f"Queue {repr_of(queue)} has no lines")
    return config


class _Token(NamedTuple):
    """A token in the reply of `lines_read`."""

    token: bytes
    state: bytes
    #: The consumer, or the due time.
    detail: bytes
    held_ms: int
    found: list[Any]


def _rows(flat: list[Any], width: int) -> list[tuple[Any, ...]]:
    return list(zip(*[iter(flat)] * width, strict=True))


def _message(queue: str, token: _Token) -> MessageView:
    """Return what is known of the message of a token."""
    named = token.token[2:]
    if token.state == b"dead":
        fields = fields_of(token.found)
        key = fields.get(b"partitionkey")
        return MessageView(
            id=text_of(fields.get(b"id")) or named.decode(errors="backslashreplace"),
            name=text_of(fields.get(b"type")),
            attempt=whole(text_of(fields.get(b"deadattempts"))) or 1,
            key=None if key is None else text_of(key),
        )
    if token.state in (b"due", b"unhandled", b"held"):
        return _of_body(queue, *token.found)
    return _of_entry(queue, named, token.found)


def _of_body(queue: str, body: bytes | int, named: bytes) -> MessageView:
    message_id = named.decode(errors="backslashreplace")
    try:
        attributes = decode_body(body) if isinstance(body, bytes) else {}
        if not attributes:
            return MessageView(id=message_id)
        return _without_data(message_of({"id": message_id, **attributes}, queue=queue, entry=named))
    except (DecodeError, UnicodeDecodeError) as error:
        return MessageView(id=message_id, problem=str(error))


def _of_entry(queue: str, named: bytes, flat: list[Any]) -> MessageView:
    """Return the message in the fields of an entry, of which long ones may be missing."""
    is_whole = bool(flat) and not any(isinstance(value, int) for value in flat)
    found = decode_entry(flat, queue=queue, stream=READY, entry=named) if is_whole else None
    if isinstance(found, Delivery):
        return _without_data(found.message)
    fields = fields_of(flat)
    message_id = text_of(fields.get(b"id")) or named.decode(errors="backslashreplace")
    return MessageView(id=message_id, name=text_of(fields.get(b"type")), problem=found.reason if found else "")


def _without_data(message: Message) -> MessageView:
    return MessageView(
        id=message.id,
        name=message.name,
        attempt=message.attempt,
        key=message.key,
        published_ms=message.published_ms,
    )


def _head(message: MessageView, token: _Token, now_ms: int, view: QueueView | None) -> LineHead:
    state, consumer, since_ms, entry = _WAITS.get(token.state, "gone"), "", None, token.token[2:]
    if token.state == b"pending" and view is not None:
        consumer = token.detail.decode(errors="backslashreplace")
        state, ms = _held(view, message, token, consumer)
        since_ms = now_ms - ms
    elif state == "dead" and is_entry(entry.decode(errors="replace")):
        since_ms = entry_ms(entry)
    return LineHead(
        token=token.token.decode(errors="backslashreplace"),
        state=state,
        id=message.id,
        name=message.name,
        attempt=message.attempt,
        consumer=consumer,
        since_ms=since_ms,
        due_ms=score_ms(token.detail) if state == "delayed" else None,
    )


def _held(view: QueueView, message: MessageView, token: _Token, consumer: str) -> tuple[HeadState, int]:
    """Return whether a pending message runs, and for how long it is so, in ms."""
    source = _SOURCES.get(token.token[:1].decode(errors="replace"), "ready")
    ref = f"{source}.{ref_of(token.token[2:])}"
    return held_by(replace(message, consumer=consumer, ref=ref, held_ms=token.held_ms), view)
