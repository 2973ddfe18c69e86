"""Read pages of waiting messages: the common part of all readers."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from mq_django.conf import QueueConfig
from mq_django.core.filters import NOTHING
from mq_django.core.messages import Message
from mq_django.core.numbers import score_ms
from mq_django.core.wire import decode_body, history_of, message_of
from mq_django.errors import DecodeError
from mq_django.inspector.message_views import (
    EntryView,
    Matcher,
    MessageView,
    Room,
    Rows,
    WaitingView,
    view_if,
    without_data,
)
from mq_django.transport import scripts
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Wire, reply_or_raise

#: A body of more bytes than this is left out of a page of messages.
MAX_LISTED = 32 * 1024

#: The most messages that are counted before a message.
MAX_BEFORE = 1000

#: A delivery as in a heartbeat: the number of its stream, and its entry.
Receipt = tuple[int, str]

#: A body; its length if it is too long for a page; None if it is missing.
Body = bytes | int | None


class RoomReader(ABC):
    """Reads the waiting messages of one queue. Read-only."""

    #: The topic of a group.
    topic: str = ""

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        self._queue = config.name
        self._keys = config.keys
        self._wire = wire

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return self._queue

    @abstractmethod
    def find_command(self, named: str) -> Command:
        """Return the command whose reply is false or MISSING, unless a place with an index has a message."""

    @abstractmethod
    def length_commands(self) -> list[Command]:
        """Return the commands that count the entries that only a scan can find a message in."""

    @abstractmethod
    def held_command(self, receipts: Sequence[Receipt], *, max_bytes: int = MAX_LISTED) -> Command | None:
        """Return the command that reads the messages of deliveries; None if there is nothing to read."""

    @abstractmethod
    def held_views(self, receipts: Sequence[Receipt], reply: Any) -> Mapping[Receipt, EntryView]:
        """Return the messages of the deliveries that still exist, from the reply to held_command()."""

    def held(self, receipts: Sequence[Receipt], *, max_bytes: int = MAX_LISTED) -> Mapping[Receipt, EntryView]:
        """Return the messages of the deliveries that still exist, by their receipts."""
        command = self.held_command(receipts, max_bytes=max_bytes)
        return self.held_views(receipts, self._wire.trip([command])[0]) if command else {}

    def waiting(
        self, room: Room, where: Matcher = NOTHING, *, start: int, limit: int, max_bytes: int = MAX_LISTED
    ) -> tuple[int, int, Rows[WaitingView]]:
        """Return now, the number of waiting messages of one kind, and those from `start` on.

        Delayed ones are ordered by due time, unhandled ones by name, parked ones by key and position.
        """
        now_ms, total, found = self._page(self._room_command(room, start, limit, max_bytes))
        handles = self._handles([member for member, _, _ in found])
        rows = (
            (str(rank), self._waiting_view(room, handles.get(member, member), member, score, body, where))
            for rank, (member, score, body) in enumerate(found, start + 1)
        )
        return now_ms, total, rows

    def _room_command(self, room: Room, start: int, limit: int, max_bytes: int) -> Command:
        keys = {"delayed": self._keys.due, "unhandled": self._keys.unhandled, "parked": self._keys.parked}
        return self._page_command(keys[room], start, limit, max_bytes)

    def _page_command(self, key: str, start: int, limit: int, max_bytes: int) -> Command:
        args = [start, start + limit - 1, max_bytes]
        return scripts.command("waiting_page", keys=[key, self._keys.waiting], args=args)

    def _page(self, command: Command) -> tuple[int, int, list[tuple[bytes, bytes, Body]]]:
        now_ms, total, *flat = reply_or_raise(self._wire.trip([command])[0])
        bodies = [None if body == -1 else body for body in flat[2::3]]
        return now_ms, total, list(zip(flat[::3], flat[1::3], bodies, strict=True))

    def _handles(self, members: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the handles of members that contain a unique key: see WaitingView.handle."""
        return {}

    def _waiting_view(
        self,
        room: Room,
        handle: bytes,
        member: bytes,
        score: bytes,
        body: Body,
        where: Matcher = NOTHING,
        *,
        history: str = "",
    ) -> WaitingView | None:
        view = self._view(member, body, where, history=history, handle=handle)
        due_ms = score_ms(score) if room == "delayed" else None
        return (
            None if view is None else WaitingView(member=member, handle=handle, room=room, message=view, due_ms=due_ms)
        )

    def _entry_view(
        self,
        member: bytes,
        body: Body,
        where: Matcher = NOTHING,
        *,
        history: str = "",
        consumer: str = "",
        held_ms: int = 0,
    ) -> EntryView | None:
        """Return a message of a sorted set that is ready or pending, or None if it does not match."""
        view = self._view(member, body, where, history=history)
        return (
            None
            if view is None
            else EntryView(source="priority", entry=member, message=view, consumer=consumer, held_ms=held_ms)
        )

    def _ranked(self, key: str, where: Matcher, start: int, limit: int, max_bytes: int) -> Rows[EntryView]:
        """Yield the ready messages of a sorted set."""
        now_ms, _, found = self._page(self._page_command(key, start, limit, max_bytes))
        for rank, (member, score, body) in enumerate(found, start + 1):
            if self._is_ready(score, now_ms):
                yield f"priority.{rank}", self._entry_view(member, body, where)

    def _is_ready(self, score: bytes, now_ms: int) -> bool:
        return True

    def _view(
        self, member: bytes, body: Body, where: Matcher = NOTHING, *, history: str = "", handle: bytes = b""
    ) -> MessageView | None:
        """Return the view of a message in a sorted set, or None if it does not match."""
        size, why = body if isinstance(body, int) else len(body or b""), ""
        if body is None:
            why = "The message has no body. It will be dropped when it is due."
        if isinstance(body, bytes):
            try:
                message, own_history = self._decoded(member, body)
                return view_if(where, message, size=size, history=history or own_history)
            except (DecodeError, UnicodeDecodeError) as error:
                why = str(error)
        message_id = (handle or member).decode(errors="backslashreplace")
        return without_data(where, message_id, size=size, why=why)

    def _decoded(self, member: bytes, body: bytes) -> tuple[Message, str]:
        """Return the message in a body, and its history."""
        found = decode_body(body)
        return message_of(found, queue=self._queue, entry=member), history_of(found)


def place_in(cursor: str) -> int:
    """Return the rank in a cursor of a sorted set; 0 if it is invalid."""
    cursor = cursor.removeprefix("priority.")
    return int(cursor) if cursor.isdecimal() and len(cursor) < 16 else 0
