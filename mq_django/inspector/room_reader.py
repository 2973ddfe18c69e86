"""Pages of the rooms where messages wait: what the readers of all kinds of queues have in common."""

from collections.abc import Mapping, Sequence

from mq_django.conf import QueueConfig
from mq_django.core.filters import NOTHING
from mq_django.core.messages import Message
from mq_django.core.numbers import score_ms
from mq_django.core.wire import decode_body, message_of
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

#: Bytes of a body that a page of messages still carries.
MAX_LISTED = 32 * 1024

#: So many of the messages before one are counted.
MAX_BEFORE = 1000

#: A delivery as a heartbeat tells of it: the number of its stream, and its entry.
Receipt = tuple[int, str]

#: The length of a body that is too long for a page; None when there is none.
Body = bytes | int | None


class RoomReader:
    """Reads what waits in one queue, for people. Nothing here changes anything."""

    #: The topic whose log the queue reads, if it does.
    topic: str = ""

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        self._queue = config.name
        self._keys = config.keys
        self._wire = wire

    def waiting(
        self, room: Room, where: Matcher = NOTHING, *, start: int, limit: int, max_bytes: int = MAX_LISTED
    ) -> tuple[int, int, Rows[WaitingView]]:
        """Return now, how many messages wait in a room, and those from the `start`th on.

        Delayed ones come by when they are due, unhandled ones by name, parked ones by key and in line.
        """
        now_ms, total, found = self._page(self._room_command(room, start, limit, max_bytes))
        handles = self._handles([member for member, _, _ in found])
        rows = (
            (str(place), self._waiting_view(room, handles.get(member, member), member, score, body, where))
            for place, (member, score, body) in enumerate(found, start + 1)
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
        """Return for members that say more than an id what finds them and says nothing, empty where nothing does."""
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
        view = self._view(member, body, where, history=history, named=handle)
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
        """Return a message of a sorted set that is ready or pending, or None when it is not wanted."""
        view = self._view(member, body, where, history=history)
        return (
            None
            if view is None
            else EntryView(home="priority", entry=member, message=view, consumer=consumer, held_ms=held_ms)
        )

    def _ranked(self, key: str, where: Matcher, start: int, limit: int, max_bytes: int) -> Rows[EntryView]:
        """Go through what is ready in a sorted set."""
        now_ms, _, found = self._page(self._page_command(key, start, limit, max_bytes))
        for place, (member, score, body) in enumerate(found, start + 1):
            if self._is_ready(score, now_ms):
                yield f"priority.{place}", self._entry_view(member, body, where)

    def _is_ready(self, score: bytes, now_ms: int) -> bool:
        return True

    def _view(
        self, member: bytes, body: Body, where: Matcher = NOTHING, *, history: str = "", named: bytes = b""
    ) -> MessageView | None:
        """Return the message in a body that stands apart from its id, or None when it is not wanted."""
        size, why = body if isinstance(body, int) else len(body or b""), ""
        if body is None:
            why = "There is no body under this id: it will be dropped when it is due."
        if isinstance(body, bytes):
            try:
                message, own_history = self._decoded(member, body)
                return view_if(where, message, size=size, history=history or own_history)
            except (DecodeError, UnicodeDecodeError) as error:
                why = str(error)
        message_id = (named or member).decode(errors="backslashreplace")
        return without_data(where, message_id, size=size, why=why)

    def _decoded(self, member: bytes, body: bytes) -> tuple[Message, str]:
        """Return the message in a body, and its history."""
        found = decode_body(body)
        return message_of(found, queue=self._queue, entry=member), str(found.get("story", ""))


def place_in(cursor: str) -> int:
    """Return the rank that a cursor of a sorted set names; 0 for one that makes no sense."""
    cursor = cursor.removeprefix("priority.")
    return int(cursor) if cursor.isdecimal() and len(cursor) < 16 else 0
