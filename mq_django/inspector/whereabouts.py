"""Find a message in all places of all queues, in a bounded time.

Places with an index are asked in all queues, in one round trip per server. Ready and pending messages have none: they
are scanned, if the message is in no other place.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from mq_django.conf import QueueConfig
from mq_django.core.filters import Filter
from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.core.partitions import public_name
from mq_django.errors import MQError, StoreError
from mq_django.inspector import message_lists
from mq_django.inspector.message_views import MessageState, MessageView
from mq_django.inspector.queues import all_configs, transports_of
from mq_django.inspector.readers import Ended, Reader, ended, reader_of
from mq_django.inspector.stream_reader import Scanned
from mq_django.stores.results import find_result
from mq_django.transport.connections import open_transport
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import fan_out

#: Where a message is, or what became of it. `log` is that of a topic.
FoundIn = MessageState | Literal["expired", "replaced", "result"]

#: The most places that are returned.
MAX_FOUND = 50


class TaskEnding(NamedTuple):
    """The end of a task whose result is kept."""

    #: The task's path.
    name: str
    #: That of Django's TaskResultStatus: SUCCESSFUL or FAILED.
    status: str
    #: When its last attempt finished, in ms since 1970; None if unknown.
    ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMessageIn:
    """A place that has a message, or knows what became of it."""

    #: A queue, a group as `topic:group`, or for its log a topic.
    queue: str
    place: FoundIn
    view: MessageView | Ended | TaskEnding

    @property
    def is_current(self) -> bool:
        """Return whether this is the latest that is known: it is not if the message may have been redriven since."""
        return not isinstance(self.view, MessageView) or self.view.ending != "buried"


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """The result of a search over all queues."""

    found: Sequence[FoundMessageIn]
    #: Queues and topics whose ready and pending messages were not all searched in the time.
    not_searched: Sequence[str]
    #: Queue -> why it could not be read.
    errors: Mapping[str, str]


def find_everywhere(message_id: str, *, seconds: float) -> Whereabouts:
    """Find a message by its id, or by `u:` and the unique key of a waiting message, in all places of all queues.

    Ready and pending messages are scanned only if no other place has it, for up to `seconds` in total.

    Args:
        message_id: its id, or `u:` and its unique key.
        seconds: for how long ready and pending messages are searched.

    Raises:
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    deadline = time.monotonic() + seconds
    # An argument of a command line may have what UTF-8 cannot encode.
    message_id = message_id.encode(errors="replace").decode()
    configs = all_configs() if message_id else []
    transports = transports_of(configs)
    readers = [reader_of(config, transport) for config, transport in zip(configs, transports, strict=True)]
    lengths = [reader.length_commands() for reader in readers]
    looks = [[*_look(reader, config, message_id)] for reader, config in zip(readers, configs, strict=True)]
    replies = fan_out(transports, [[*look, *length] for look, length in zip(looks, lengths, strict=True)])
    errors = {
        config.name: str(error)
        for config, reply in zip(configs, replies, strict=True)
        if (error := next((one for one in reply if isinstance(one, Exception)), None)) is not None
    }
    # Of each queue: whether an index has it, and whether there is something to scan.
    asked = [
        (any(map(_is_hit, reply[: len(look)])), any(map(_is_hit, reply[len(look) :])))
        for look, reply in zip(looks, replies, strict=True)
    ]
    hits = [config for config, (is_hit, _) in zip(configs, asked, strict=True) if is_hit]
    found: list[FoundMessageIn] = []
    for config in hits[:MAX_FOUND]:
        try:
            found += _in_indexes(config, message_id)
        except StoreError as error:
            errors[config.name] = str(error)
    if message_id.startswith(UNIQUE_PREFIX) or any(one.is_current for one in found):
        return Whereabouts(found=found, not_searched=[], errors=errors)
    filled = [reader for reader, (_, is_filled) in zip(readers, asked, strict=True) if is_filled]
    # Its task has a result there, so the message is most likely there, too.
    known = {config.name for config in hits}
    filled.sort(key=lambda reader: reader.queue not in known)
    scanned = _Scan(message_id, filled, deadline)
    return Whereabouts(
        found=[*scanned.found, *found], not_searched=scanned.not_searched, errors={**errors, **scanned.errors}
    )


def _look(reader: Reader, config: QueueConfig, message_id: str) -> Iterator[Command]:
    """Yield the commands that ask the indexes of a queue."""
    keys = config.keys
    yield reader.find_command(message_id)
    yield ("HGET", keys.dead_ids, message_id)
    yield ("HGET", keys.handled_ids, f"i:{message_id}")
    yield ("ZSCORE", keys.expired, message_id)
    yield ("ZSCORE", keys.replaced, message_id)
    yield ("EXISTS", keys.result(message_id))


def _is_hit(reply: Any) -> bool:
    return bool(reply) and not isinstance(reply, Exception) and reply != b"MISSING"


def _in_indexes(config: QueueConfig, message_id: str) -> Iterator[FoundMessageIn]:
    """Yield the places of a queue that have a message and an index."""
    name, is_handled = config.name, False
    is_unique = message_id.startswith(UNIQUE_PREFIX)
    for view in message_lists.in_indexes(name, message_id, by_unique=is_unique):
        is_handled = view.state == "handled"
        yield FoundMessageIn(queue=name, place=view.state, view=view)
    gone = ended(name, message_id)
    if gone is not None:
        yield FoundMessageIn(queue=name, place=_ENDED[gone.state.value], view=gone)
    if not is_handled and (task := _task(config, message_id)) is not None:
        yield FoundMessageIn(queue=name, place="result", view=task)


_ENDED: Mapping[str, FoundIn] = {"expired": "expired", "replaced": "replaced"}


def _task(config: QueueConfig, message_id: str) -> TaskEnding | None:
    """Return how a task has ended; None if it has not, or keeps no result."""
    with suppress(StoreError):
        found = find_result([open_transport("inspect", config.connection)], [config], message_id)
        if found is not None and found.has_ended:
            return TaskEnding(found.name, found.status, found.attempts[-1].finished_ms)
    return None


#: Reads a part of what is searched.
_Read = Callable[..., Scanned[MessageView]]


class _Scan:
    """A search of ready and pending messages, of which each queue gets a part in turn."""

    def __init__(self, message_id: str, readers: Sequence[Reader], deadline: float) -> None:
        self.found: list[FoundMessageIn] = []
        self.errors: dict[str, str] = {}
        self._where, self._deadline = Filter(id=message_id), deadline
        self._topics = {public_name(reader.topic) for reader in readers if reader.topic}
        names = [reader.queue for reader in readers]
        # Nothing is pending for long, so these are short. Those of a group have what is pending in the log.
        parts: list[tuple[str, _Read]] = [(name, partial(message_lists.messages, name, "pending")) for name in names]
        parts += [(name, partial(message_lists.messages, name, "ready", with_log=False)) for name in names]
        parts += [(topic, partial(message_lists.in_log, topic)) for topic in sorted(self._topics)]
        self.not_searched = self._search([(name, read, "") for name, read in parts])

    def _search(self, parts: list[tuple[str, _Read, str]]) -> list[str]:
        """Search until the message is found; return the names of what was not searched to its end."""
        while parts:
            left: list[tuple[str, _Read, str]] = []
            for place, (name, read, after) in enumerate(parts):
                if time.monotonic() > self._deadline:
                    return sorted({each for each, *_ in (*left, *parts[place:])})
                onward = self._step(name, read, after)
                if self.found:
                    return []
                if onward:
                    left.append((name, read, onward))
            parts = left
        return []

    def _step(self, name: str, read: _Read, after: str) -> str:
        """Read a part, and return the cursor behind it; "" at the end."""
        try:
            found = read(where=self._where, after=after, limit=1)
        except MQError as error:
            self.errors[name] = str(error)
            return ""
        for view in found.rows:
            self.found.append(FoundMessageIn(queue=name, place=view.state, view=view))
        return found.after
