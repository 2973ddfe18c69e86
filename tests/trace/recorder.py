"""What a process does, in order: the functions of mq_django it calls, and what it exchanges with Redis."""

import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from redis.connection import AbstractConnection

import mq_django

#: Kinds of events. The handler's begin and end are marked by itself.
CALL, RETURN, SENT, REPLY, BEGIN, END = "call", "return", "sent", "reply", "begin", "end"

_PREFIX = f"{Path(mq_django.__file__).parent}/"


class Event(NamedTuple):
    """One thing that a thread did."""

    thread: int
    kind: str
    #: A function, as module:name; what was exchanged with Redis; or the message's id.
    detail: str
    #: Of a reply and of a handler's end: the functions that then run in the thread, the innermost first.
    stack: Sequence[str] = ()


class Recorder:
    """Notes the events of threads in one list, in the order in which they happened."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def watch_threads(self) -> None:
        """Record every connection, and every thread that starts from now on."""
        self._watch_connections()
        threading.setprofile(self._profile)

    def __enter__(self) -> "Recorder":
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def mark(self, kind: str, detail: str) -> None:
        """Note an event that is no call."""
        stack = _stack(sys._getframe()) if kind in (REPLY, END) else ()
        self.events.append(Event(threading.get_ident(), kind, detail, stack))

    def save(self, path: Path) -> None:
        """Write down the events so far; the file is there once it is whole."""
        part = path.with_suffix(".part")
        part.write_text(json.dumps(self.events))
        part.rename(path)

    def _profile(self, frame: FrameType, kind: str, _: Any) -> None:
        if kind in (CALL, RETURN) and (function := _function(frame)):
            self.events.append(Event(threading.get_ident(), kind, function))

    def _watch_connections(self) -> None:
        send, read = AbstractConnection.send_packed_command, AbstractConnection.read_response

        def recorded_send(connection: Any, command: Any, *args: Any, **options: Any) -> Any:
            self.mark(SENT, repr(command))
            return send(connection, command, *args, **options)

        def recorded_read(connection: Any, *args: Any, **options: Any) -> Any:
            reply = read(connection, *args, **options)
            self.mark(REPLY, repr(reply))
            return reply

        AbstractConnection.send_packed_command = recorded_send  # type: ignore[method-assign]
        AbstractConnection.read_response = recorded_read  # type: ignore[method-assign]


def _function(frame: FrameType) -> str:
    """Return the module and name of a function of mq_django, or nothing for code of others."""
    code = frame.f_code
    if not code.co_filename.startswith(_PREFIX):
        return ""
    return f"{code.co_filename[len(_PREFIX) :].removesuffix('.py')}:{code.co_qualname}"


def _stack(frame: FrameType | None) -> list[str]:
    found = []
    while frame is not None:
        found += [function] if (function := _function(frame)) else []
        frame = frame.f_back
    return found


def load(path: Path) -> list[Event]:
    """Return the events that a process wrote down."""
    return [Event(*event) for event in json.loads(path.read_text())]
