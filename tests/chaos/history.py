"""What the actors of a run did: one file of JSON lines an actor, on the monotonic clock that all of them share.

| what     | noted by                     | tells |
|-|-|-|
| invoke   | the producer, before         | `ids`, `delay` in seconds, `uncounted` without the script; of a `key` that
                                            has an order `first`, the place of the first of them |
| ok       | the producer, after          | `ids` whose publish returned |
| failed   | the producer                 | `ids` that Redis refused with an answer |
| unknown  | the producer                 | `ids` whose answer was lost |
| taken    | a consumer                   | `ids` that Redis handed out to it |
| started  | handler_started              | `id`, `attempt`, `thread` |
| effect   | the handler                  | `id`, `attempt` |
| entered  | a handler in order, first    | `id`, `thread` |
| left     | a handler in order, last     | `id`, `thread`, `how` |
| ended    | handler_finished             | `id`, `outcome` |
| settled  | whoever settled, after       | `acked`, `buried`, `back`, `stale`: ids; `retried`: ids, ms; `began` |
| fault    | who made it                  | `fault`, a name; `kind`, `began`, `struck`, `pids`; `spares`: for free;
                                            `loses_from`: of what Redis answered since, a replica may not know |
| healed   | who made it                  | `fault` |
| removed  | who deletes behind our back  | `ids` |
| rolled-back, refused | a writer of orders | `ids`; `error`, if a transaction failed |
| partner  | who makes it come and go     | `away` |
| called   | the handler that calls it    | `id`, `away` |
| opened   | breaker_opened               | |
| reading  | the process of readers       | |
| reads    | a reader of a stream         | `reader`; `after`, a chunk |
| read     | the reader, after            | `reader`; `chunk`, its values in a list |
| read-all, read-failed | the reader      | `reader`; `error` |
| clock    | who stepped Redis's clock    | |

A line is one write, so that what was noted stays noted whatever happens to its writer next.
"""

import json
import os
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from mq_django.errors import ConnectionLost, MQError


class Event(NamedTuple):
    """One line."""

    #: Seconds on the monotonic clock.
    at: float
    what: str
    pid: int
    told: Mapping[str, Any]

    @property
    def id(self) -> str:
        """Return the message it is about."""
        return str(self.told["id"])

    @property
    def ids(self) -> list[str]:
        """Return the messages it is about."""
        return list(self.told["ids"])


class History:
    """The file of this process, for any of its threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._file: tuple[int, int] | None = None

    def note(self, what: str, **told: Any) -> None:
        """Add a line."""
        line = {"at": time.monotonic(), "what": what, "pid": os.getpid(), **told}
        os.write(self._fd(), json.dumps(line).encode() + b"\n")

    @contextmanager
    def publishing(self, ids: Sequence[str], **told: Any) -> Iterator[None]:
        """Note that these messages are about to be published, and what came of it, which is no error here."""
        self.note("invoke", ids=ids, **told)
        try:
            yield
        except ConnectionLost:
            self.note("unknown", ids=ids)
        except MQError as error:
            self.note("failed", ids=ids, error=str(error))
        else:
            self.note("ok", ids=ids)

    def _fd(self) -> int:
        pid = os.getpid()
        with self._lock:
            if self._file is None or self._file[0] != pid:
                path = self._folder / f"{pid}.jsonl"
                self._file = (pid, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
            return self._file[1]


def event(line: Mapping[str, Any]) -> Event:
    """Return the event in a decoded line."""
    told = {name: value for name, value in line.items() if name not in ("at", "what", "pid")}
    return Event(float(line["at"]), str(line["what"]), int(line["pid"]), told)


def read(folder: Path) -> list[Event]:
    """Return what all actors noted, in order."""
    return in_order(event(json.loads(line)) for path in folder.glob("*.jsonl") for line in path.open("rb"))


def stories(events: Iterable[Event], messages: Collection[str]) -> list[str]:
    """Return a line for each fault, and for each event of one of some messages, with its time, process and words."""
    wanted, found = set(messages), []
    for event_ in events:
        ids = {word for value in event_.told.values() for word in _words(value)} & wanted
        if ids or event_.what in ("fault", "healed", "clock"):
            words = sorted(ids) if ids else [json.dumps(event_.told)]
            found.append(f"{event_.at:.3f} {event_.pid} {event_.what} {' '.join(words)}")
    return found


def _words(value: Any) -> Iterator[str]:
    """Yield the texts in a value of an event: ids are alone, in lists, or with their delay."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _words(item)


def in_order(events: Iterable[Event]) -> list[Event]:
    """Return events by their time."""
    return sorted(events, key=lambda found: found.at)
