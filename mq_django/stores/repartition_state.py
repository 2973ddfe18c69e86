"""How far a change of the number of partitions of a queue is: fields of the control hash of the whole queue.

The states are `open`, `pausing`, `taking`, `putting` and `opening`. Each change of the state is one script, which
changes nothing if another process was faster.
"""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from mq_django.conf import QueueConfig
from mq_django.core import clock
from mq_django.core.jsontext import dumps, loads
from mq_django.core.numbers import whole as whole_number
from mq_django.core.options import MAX_PARTITIONS
from mq_django.errors import DecodeError, QueueClosed
from mq_django.stores.partition_count import CLOSED
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument
from mq_django.transport.sessions import Wire, reply_or_raise

Phase = Literal["open", "pausing", "taking", "putting", "opening"]

#: Recorded, or nothing is, of a queue without partitions.
PLAIN = 1

_NUMBER, _PHASE, _OLD, _NEW = "partitions", "repartition:state", "repartition:from", "repartition:to"
_BEFORE, _PAUSED = "repartition:before", "repartition:paused"
#: Of the latest change. It only increases.
_CHANGE = "repartition:change"
_FIELDS = (_NUMBER, _PHASE, _OLD, _NEW, _BEFORE, _PAUSED)


@dataclass(frozen=True, slots=True)
class EarlierPause:
    """A pause of the queue from before: who paused it, why, and since when, in milliseconds since 1970."""

    who: str
    reason: str
    since_ms: str


@dataclass(frozen=True, slots=True)
class RepartitionState:
    """How far a change is."""

    phase: Phase
    #: The numbers of partitions: the recorded one, 1 if none is; and those of the change.
    recorded: int
    old: int
    new: int
    #: What is recorded, as text; "" for nothing.
    before: str
    #: The number of the change, or of the one before.
    change: int
    #: The pause that the queue had before the change, and has after it.
    pause: EarlierPause | None = None


def read_state(whole: QueueConfig, wire: Wire) -> RepartitionState:
    """Read how far the change of a queue's number of partitions is.

    Raises:
        QueueClosed: the fields are not valid: another program has written them.
        StoreError: Redis could not be reached, or refused.
    """
    (reply,) = wire.trip([("HMGET", whole.keys.control, *_FIELDS, _CHANGE)])
    values = ["" if value is None else value.decode(errors="replace") for value in reply_or_raise(reply)]
    number, phase, old, new, before, paused, change_text = values
    change = whole_number(change_text) or 0
    if not phase and number != CLOSED:
        recorded = _whole(whole, number) if number else PLAIN
        return RepartitionState("open", recorded, recorded, recorded, number, change)
    if phase not in get_args(Phase):
        raise QueueClosed(f"Queue {whole.name!r} is in an unknown state of repartitioning: {phase[:80]!r}")
    counts = _whole(whole, old), _whole(whole, new)
    return RepartitionState(phase, counts[0], *counts, before, change, _pause(paused))  # type: ignore[arg-type]


def begin(whole: QueueConfig, wire: Wire, state: RepartitionState) -> bool:
    """Begin a change from a state that is open, and return whether no other process was faster."""
    pause = state.pause
    paused = "" if pause is None else dumps([pause.who, pause.reason, pause.since_ms])
    change = max(state.change + 1, clock.now_ms())
    expected: list[Argument] = [_NUMBER, state.before, _PHASE, ""]
    new: list[Argument] = [_PHASE, "pausing", _OLD, state.old, _NEW, state.new, _BEFORE, state.before, _PAUSED, paused]
    new += (_CHANGE, change)
    return _change(whole, wire, expected, new)


def go_on(whole: QueueConfig, wire: Wire, state: RepartitionState, phase: Phase) -> RepartitionState:
    """Write the next state, and return it.

    Raises:
        QueueClosed: another process has changed the state.
    """
    expected: list[Argument] = [_PHASE, state.phase, _OLD, state.old, _NEW, state.new]
    if phase == "open":
        # After an abort the number is what it was; nothing has changed it.
        number: list[Argument] = [] if state.phase == "pausing" else [_NUMBER, state.new]
        new: list[Argument] = [*number, *(part for field in _FIELDS[1:] for part in (field, ""))]
    else:
        new = [_PHASE, phase, *([_NUMBER, CLOSED] if phase == "taking" else [])]
    if not _change(whole, wire, expected, new):
        raise QueueClosed(f"Another process is changing the number of partitions of queue {whole.name!r}")
    return replace(state, phase=phase)


def _change(whole: QueueConfig, wire: Wire, expected: list[Argument], new: list[Argument]) -> bool:
    args = [len(expected) // 2, *expected, *new]
    command = scripts.command("repartition_state", keys=[whole.keys.control], args=args)
    found: list[bytes] = reply_or_raise(wire.trip([command])[0])
    return found[0] == b"CHANGED"


def _whole(whole: QueueConfig, text: str) -> int:
    number = whole_number(text, MAX_PARTITIONS)
    if not number:
        raise QueueClosed(f"The recorded number of partitions of queue {whole.name!r} is not valid: {text[:80]!r}")
    return number


def _pause(text: str) -> EarlierPause | None:
    try:
        who, reason, since_ms = loads(text.encode())
    except (DecodeError, TypeError, ValueError):
        return None
    return EarlierPause(str(who), str(reason), str(since_ms))
