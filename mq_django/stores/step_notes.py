"""The notes of a queue about steps of workflows that have ended: see `lua/parts/step_notes.lua`."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from mq_django.core.keys import QueueKeys
from mq_django.core.numbers import whole
from mq_django.core.step_ids import StepId, read_step_id
from mq_django.stores.workflow_home import Event
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument
from mq_django.transport.sessions import Wire, reply_or_raise

_NOTE = re.compile(rb"(\d{1,17}) ([a-z]{1,16}) (-|[0-9,-]{1,1000}) (.*)", re.DOTALL)
#: Notes that one call reads.
BATCH = 500


class Note(NamedTuple):
    """How a step has ended."""

    message_id: str
    number: int
    #: None if another program wrote the note.
    step: StepId | None
    event: Event


class StepNotes:
    """The notes of one queue."""

    def __init__(self, keys: QueueKeys, wire: Wire) -> None:
        self._key = keys.step_notes
        self._wire = wire

    def read(self, message_ids: Sequence[str]) -> list[Note]:
        """Return the notes about these messages."""
        (values,) = self._wire.trip([("HMGET", self._key, *message_ids)])
        pairs = zip(message_ids, reply_or_raise(values), strict=True)
        return [_note(message_id, value) for message_id, value in pairs if value is not None]

    def left(self, *, age_ms: int, cursor: str = "0") -> tuple[str, list[Note]]:
        """Return a cursor, "0" at the end, and some of the notes that are older than `age_ms`."""
        command = scripts.command("steps_left", keys=[self._key], args=[age_ms, cursor, BATCH])
        following, *flat = reply_or_raise(self._wire.trip([command])[0])
        pairs = zip(flat[::2], flat[1::2], strict=True)
        return following.decode(), [_note(field.decode(errors="replace"), value) for field, value in pairs]

    def forget(self, notes: Sequence[Note]) -> None:
        """Delete notes, unless later ones have replaced them."""
        args: list[Argument] = [each for note in notes for each in (note.message_id, note.number)]
        (reply,) = self._wire.trip([scripts.command("steps_forget", keys=[self._key], args=args)])
        reply_or_raise(reply)


def noted(wire: Wire, queues: Sequence[QueueKeys]) -> list[bool]:
    """Return for each queue of a server whether there may be notes."""
    trips = wire.trips([[("HLEN", keys.step_notes)] for keys in queues])
    # One field is the latest number. An error is shown by who reads the notes.
    return [not isinstance(count, int) or count > 1 for (count,) in trips]


def _note(message_id: str, value: bytes) -> Note:
    step, found = read_step_id(message_id), _NOTE.fullmatch(value)
    if step is None or found is None:
        return Note(message_id, 0, None, Event(""))
    number, name, added, detail = whole(found[1]) or 0, found[2].decode(), found[3].decode(), found[4]
    event = Event(name, step.step, number, detail, "" if added == "-" else added, step.round)
    return Note(message_id, number, step, event)
