"""Pause and resume a queue, and what else its hash `control` has: changed limits, its order, problems, requests."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mq_django.conf import QueueConfig
from mq_django.core.jsontext import LAST_MS, dumps, loads, score, whole
from mq_django.core.keys import QueueKeys
from mq_django.core.limits import LimitChange, LimitName
from mq_django.core.logs import get_logger
from mq_django.core.messages import CancelResult, Delivery
from mq_django.core.stacks import MAX_BYTES
from mq_django.errors import DecodeError, StoreError
from mq_django.stores.base import CancelRequest
from mq_django.transport import scripts
from mq_django.transport.failures import readable
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Transport, fan_out, reply_or_raise


def pause_command(keys: QueueKeys, *, who: str, reason: str, name: str = "") -> Command:
    """Return the command that pauses a queue. After 100 ms no handler starts.

    A queue that is paused already keeps who paused it, why, since when, and the name of the action. Deliveries that
    have not started by then return to the queue; no attempt is counted. A supervisor that is not subscribed at this
    moment notices the pause when it polls, up to a second later.
    """
    return scripts.command("control_pause", keys=[keys.control], args=[keys.wake, "1", who, reason, name])


def resume_command(keys: QueueKeys, *, name: str = "") -> Command:
    """Return the command that resumes a queue, if `name` is given only one that the action of this name paused."""
    return scripts.command("control_pause", keys=[keys.control], args=[keys.wake, "0", "", "", name])


def changed(reply: object) -> bool:
    """Return whether one of these commands changed the queue, by its reply.

    Raises:
        StoreError: Redis refused.
    """
    return bool(reply_or_raise(reply) == b"CHANGED")


def limits_command(
    keys: QueueKeys, changes: Mapping[LimitName, LimitChange | None], *, after_ms: int | None
) -> Command:
    """Return the command that changes limits, from the next fetch on: see `lua/limits_change.lua`.

    Args:
        keys: of the queue.
        changes: None: the limit of the settings.
        after_ms: when up to 1,000 keys that wait for a limit are looked at, in ms from now; None: as before.
    """
    words = [word for name, change in changes.items() for word in (name, change.encoded() if change else "")]
    args: list[Argument] = ["" if after_ms is None else after_ms, *words]
    return scripts.command("limits_change", keys=[keys.control, keys.next_checks], args=args)


# Switch the order of a queue on or off: not while a supervisor or a delivery goes by the other setting.

logger = get_logger(__name__)

#: Seconds until a consumer asks again whether it may use the queue.
ASK_AGAIN = 1.0


class OrderSwitch:
    """Lets one consumer wait until the queue has the order of its settings. See `lua/lines_begin.lua`."""

    def __init__(self, config: QueueConfig, transport: Transport) -> None:
        self._config = config
        self._transport = transport
        #: When to ask again, by the monotonic clock; None: the queue has this order, as far as is known.
        self._ask_at: float | None = None
        #: Whether the log has a warning about consumers with the other setting.
        self._has_warned = False

    def rest(self) -> float:
        """Return for how many seconds this consumer may not take messages."""
        if self._ask_at is not None and time.monotonic() >= self._ask_at:
            self.begin()
        ask_at = self._ask_at
        return 0.0 if ask_at is None else max(0.001, ask_at - time.monotonic())

    def begin(self) -> None:
        """Give the queue the order of the settings, if nobody goes by the other setting."""
        keys, ordered = self._config.keys, self._config.ordered
        key_names = [keys.control, keys.consumers, keys.ready, keys.front, keys.permit_wakeups, keys.permits]
        hold = ordered and self._config.on_dead_letter == "hold"
        args = [keys.group, "1" if ordered else "0", "1" if hold else "0"]
        if self._transport.run("lines_begin", key_names, args) == b"BEGUN":
            self._ask_at, self._has_warned = None, False
            return
        self._ask_at = time.monotonic() + ASK_AGAIN
        if not self._has_warned:
            self._has_warned = True
            text = "Queue %s waits until all consumers that were started with another ORDERED have ended"
            logger.warning(text, self._config.name)


# The problems of queues that signals announce, as fields of `control`: all supervisors share them.

#: The prefixes of the two fields of a problem: what was seen of it, and that it was announced. Only one caller can
#: create or delete the latter, so each signal is sent by one process.
SEEN, ANNOUNCED = "problem:", "problem-announced:"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemNote:
    """A problem of a queue, as it was last seen."""

    kind: str
    #: When it was seen first and last, in ms since 1970.
    first_ms: int
    last_ms: int
    sentence: str
    figure: float | None
    threshold: float | None
    announced: bool = False


class ProblemNotes:
    """The noted problems of one queue."""

    def __init__(self, config: QueueConfig, transport: Transport) -> None:
        self._key = config.keys.control
        self._transport = transport

    def write(self, seen: Collection[ProblemNote], *, begun: Collection[str], ended: Collection[str]) -> set[str]:
        """Write what was seen; return the kinds that this call has announced as begun, or withdrawn as ended."""
        commands: list[Command] = [("HSET", self._key, SEEN + note.kind, _text(note)) for note in seen]
        commands += [("HDEL", self._key, SEEN + kind) for kind in ended]
        commands += [("HSETNX", self._key, ANNOUNCED + kind, 1) for kind in begun]
        commands += [("HDEL", self._key, ANNOUNCED + kind) for kind in ended]
        replies = [reply_or_raise(reply) for reply in self._transport.pipeline(commands)] if commands else []
        changed = replies[len(seen) + len(ended) :]
        return {kind for kind, is_ours in zip((*begun, *ended), changed, strict=True) if is_ours}


def claim_checks(
    configs: Sequence[QueueConfig], transports: Sequence[Transport], seconds: float
) -> list[bool | StoreError]:
    """Claim the next look at queues: return True for one caller within `seconds`, by queue."""
    args = [round(seconds * 1000)]
    pipelines = [[scripts.command("topic_claim_check", keys=[config.keys.control], args=args)] for config in configs]
    return list(map(_is_claimed, fan_out(transports, pipelines)))


def read_notes(
    configs: Sequence[QueueConfig], transports: Sequence[Transport], kinds: Sequence[str]
) -> list[list[ProblemNote] | StoreError]:
    """Return the noted problems of queues; an error for a queue that cannot be read."""
    fields = [*(SEEN + kind for kind in kinds), *(ANNOUNCED + kind for kind in kinds)]

    @readable
    def read(replies: Sequence[Any]) -> list[ProblemNote]:
        values = reply_or_raise(replies[0])
        each = zip(kinds, values[: len(kinds)], values[len(kinds) :], strict=True)
        return [note for kind, seen, announced in each if (note := _note(kind, seen, announced=announced is not None))]

    return list(map(read, fan_out(transports, [[("HMGET", config.keys.control, *fields)] for config in configs])))


@readable
def _is_claimed(replies: Sequence[Any]) -> bool:
    return bool(reply_or_raise(replies[0]))


def _text(note: ProblemNote) -> bytes:
    return dumps(
        {
            "first": note.first_ms,
            "last": note.last_ms,
            "sentence": note.sentence,
            "figure": note.figure,
            "threshold": note.threshold,
        }
    )


def _note(kind: str, seen: bytes | None, *, announced: bool) -> ProblemNote | None:
    """Return a noted problem; None if there is none. One that is not valid was seen long ago."""
    try:
        found = loads(seen or b"")
    except DecodeError:
        found = None
    if not isinstance(found, dict):
        found = {}
    if not announced and not found:
        return None
    return ProblemNote(
        kind=kind,
        first_ms=_ms(found, "first"),
        last_ms=_ms(found, "last"),
        sentence=found["sentence"] if isinstance(found.get("sentence"), str) else "",
        figure=_number(found, "figure"),
        threshold=_number(found, "threshold"),
        announced=announced,
    )


def _ms(found: Mapping[str, Any], name: str) -> int:
    return whole(found.get(name), LAST_MS) or 0


def _number(found: Mapping[str, Any], name: str) -> float | None:
    value = found.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


# Requests to cancel messages that do not wait any more: their consumers drop or interrupt them.


class CancelRequests:
    """The requests of one queue. Each is kept for a day, or until its message is cancelled or redriven."""

    def __init__(self, config: QueueConfig, transport: Transport) -> None:
        self._keys = config.keys
        self._transport = transport

    def ask(self, id_or_unique: str | bytes, *, force: bool) -> CancelResult:
        """Ask the consumers to cancel a message, by its id or by `u:` + a unique key that it claims."""
        keys = self._keys
        key_names = [keys.cancels, keys.claims, keys.consumers]
        reply = self._transport.run("cancels_ask", key_names, [id_or_unique, "1" if force else "", keys.wake])
        return CancelResult.ASKED if reply == b"ASKED" else CancelResult.NOT_WAITING

    def read(self) -> Mapping[str, CancelRequest]:
        """Return the requests by the ids of the messages."""
        flat = self._transport.ask(("ZRANGE", self._keys.cancels, 0, -1, "WITHSCORES"))
        return {
            known.decode(errors="replace"): _request_at(at) for known, at in zip(flat[::2], flat[1::2], strict=True)
        }

    def has(self, delivery: Delivery) -> bool:
        """Return whether there is a request for a message. One that was redriven since has none."""
        at = self._transport.ask(("ZSCORE", self._keys.cancels, delivery.message.id))
        return at is not None and _request_at(at).is_for(delivery)


def _request_at(value: bytes) -> CancelRequest:
    at = score(value) or 0.0
    return CancelRequest(at, force=at % 1 > 0)


# Requests for the stacks of what a consumer runs, and its answers. Both keys have a TTL, and exist only when used.

#: How long a request and an answer are kept, in ms.
KEPT_MS = 60_000
#: The most bytes of the first line of an answer: the time of the request that it is for.
_HEAD = 16


class StackRequests:
    """The requests to the consumers of one queue.

    A request is its time by the server's clock. An answer is for all requests up to the one that it names, so several
    operators who ask at once get the same one.
    """

    def __init__(self, config: QueueConfig, transport: Transport) -> None:
        self.queue = config.name
        self._keys = config.keys
        self._transport = transport

    def ask(self, consumer: str) -> int | None:
        """Ask a consumer of the queue, and return the time of the request in ms since 1970; None if it is gone.

        Raises:
            StoreError: Redis cannot be reached, or refuses.
        """
        keys = self._keys
        args: list[scripts.Argument] = [consumer, KEPT_MS, keys.wake]
        return whole(self._transport.run("stacks_ask", [keys.stacks, keys.consumers], args), LAST_MS)

    def asked(self, consumer: str) -> int | None:
        """Return the time of the latest request to a consumer; None without one.

        Raises:
            StoreError: Redis cannot be reached, or refuses.
        """
        return whole(self._transport.ask(("HGET", self._keys.stacks, consumer)), LAST_MS)

    def answer(self, consumer: str, asked: int, text: bytes) -> None:
        """Answer the requests to a consumer up to a time.

        Raises:
            StoreError: Redis cannot be reached, or refuses.
        """
        key = self._keys.stacks_of(consumer)
        self._transport.ask(("SET", key, b"%d\n%b" % (asked, text), "PX", KEPT_MS))

    def read(self, consumer: str, asked: int) -> bytes | None:
        """Return the text of the answer to a request, or to a later one; None while there is none.

        Raises:
            StoreError: Redis cannot be reached.
        """
        key = self._keys.stacks_of(consumer)
        # Only its beginning, because the answer to an earlier request may be large, and is looked at several times.
        if _answered(self._transport.pipeline([("GETRANGE", key, 0, _HEAD - 1)])[0]) < asked:
            return None
        (found,) = self._transport.pipeline([("GETRANGE", key, 0, _HEAD + MAX_BYTES)])
        return found.partition(b"\n")[2] if _answered(found) >= asked else None


def _answered(reply: object) -> int:
    """Return the time of the request that an answer is for; -1 if it is none, as a key of another type."""
    head, end, _ = reply.partition(b"\n") if isinstance(reply, bytes) else (b"", b"", b"")
    found = whole(head, LAST_MS) if end else None
    return -1 if found is None else found
