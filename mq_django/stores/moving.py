"""Move dead letters to another queue, which may be on another server and have another format.

No script can use both queues. So a message is first written to the target, which remembers for a week where it comes
from, and then removed from the source. If a move is interrupted between the two, its repetition writes nothing twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from mq_django.conf import QueueConfig, RsmqConfig
from mq_django.core import rsmq_format
from mq_django.core.keys import QueueKeys
from mq_django.core.message_format import MAX_ENTRY_BYTES, encode_body
from mq_django.core.messages import Delivery, Message
from mq_django.errors import ConnectionLost, ConnectionRejected, ReadOnly, StoreError
from mq_django.stores.dead_letters import NO_STEP, JobStep, buried, buried_history, open_dead_letters
from mq_django.stores.partition_transport import transport_of
from mq_django.stores.results import copy_results
from mq_django.stores.rsmq_store import RsmqStore
from mq_django.transport import scripts
from mq_django.transport.connections import open_transport
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Transport, reply_or_raise

#: Dead letters that are read and written at a time, and the bytes after which a step ends: they pass through this
#: process, and each may have a megabyte.
READ_AT_ONCE, STEP_BYTES = 20, 2 * 1024 * 1024

#: Errors of a whole server.
SERVER_ERRORS = (ConnectionLost, ConnectionRejected, ReadOnly)

#: The words for messages that are in the target now.
_THERE = frozenset(("ACCEPTED", "KNOWN"))

#: The words for dead letters that no target with these options accepts.
REFUSED = frozenset(("UNDECODABLE", "TOOLONG", "EXISTS"))


class Moved(NamedTuple):
    """The result of writing some dead letters to the target: a word for each of the first ones."""

    words: Sequence[str]
    #: The target is at its MAX_DEPTH, which is why the others were not written.
    is_full: bool = False


class _Arrival(NamedTuple):
    """A message as the target gets it."""

    #: Where it was a dead letter.
    origin: str
    message: Message
    data_text: bytes
    history: str


class Mover:
    """Moves dead letters from one queue to another."""

    def __init__(self, source: QueueConfig, transport: Transport, target: QueueConfig) -> None:
        self._source, self._target = source, target
        self._transport = transport
        self._letters = open_dead_letters(source, transport)
        self._target_transport = open_transport("inspect", target.connection)
        self._arrivals = _target_of(target, self._target_transport)
        #: The keys of the results of tasks that were copied to the target.
        self._copied: list[str] = []

    def write(self, entries: Sequence[str]) -> Moved:
        """Write dead letters to the target, up to the first one that does not fit, or until these are enough bytes.

        The words are `ACCEPTED`, `KNOWN` if an earlier call has written it, `MISSING`, or one of REFUSED.
        """
        words: list[str] = []
        size = 0
        for at in range(0, len(entries), READ_AT_ONCE):
            if size >= STEP_BYTES:
                break
            found = dict(self._letters.whole(entries[at : at + READ_AT_ONCE]))
            size += sum(len(value) for fields in found.values() for value in fields.values())
            for word in self._written(entries[at : at + READ_AT_ONCE], found):
                if word == "FULL":
                    return Moved(words, is_full=True)
                words.append(word)
        return Moved(words)

    def remove(self, entries: Sequence[str], words: Sequence[str], *, step: JobStep = NO_STEP) -> None:
        """Remove dead letters that write() has written, and count the step of a job.

        They are in the target, so they are removed also if this worker no longer runs the job. The step is then not
        counted.
        """
        if self._copied:
            # Before the dead letters: a result that stays would hide the one of the target.
            reply_or_raise(self._transport.pipeline([("DEL", *self._copied)])[0])
            self._copied.clear()
        gone = [entry for entry, word in zip(entries, words, strict=False) if word not in REFUSED]
        refused = sum(word in REFUSED for word in words)
        replies = self._letters.delete(gone, step=step)
        if replies == ["STOPPED"]:
            self._letters.delete([entry for entry, word in zip(entries, words, strict=False) if word in _THERE])
        elif refused and step != NO_STEP:
            reply_or_raise(self._transport.pipeline([("HINCRBY", self._source.keys.jobs, "dead:refused", refused)])[0])

    def _written(self, entries: Sequence[str], found: Mapping[str, Mapping[bytes, bytes]]) -> Sequence[str]:
        """Write dead letters that were read, and return a word for each."""
        try:
            return [*self._write(entries, found)]
        except SERVER_ERRORS as error:
            if self._target.connection == self._source.connection:
                raise
            # It does not concern the jobs of other queues on the server of the source.
            raise StoreError(f"Queue {self._target.name!r}: {error}") from error

    def _write(self, entries: Sequence[str], found: Mapping[str, Mapping[bytes, bytes]]) -> Iterator[str]:
        arrivals = {entry: self._arrival(entry, fields) for entry, fields in found.items()}
        known = [arrival for arrival in arrivals.values() if arrival is not None]
        self._copy_results(known)
        words = iter(self._arrivals.accept(known) if known else ())
        for entry in entries:
            if entry not in arrivals:
                yield "MISSING"
            elif arrivals[entry] is None:
                yield "UNDECODABLE"
            else:
                word = next(words)
                yield word
                if word == "FULL":
                    return

    def _arrival(self, entry: str, fields: Mapping[bytes, bytes]) -> _Arrival | None:
        found = buried(self._source.name, entry, fields)
        if not isinstance(found, Delivery):
            return None
        # As after a redrive: no attempts are counted, and it does not expire.
        message = found.message._replace(queue=self._target.name, attempt=1, expires_ms=None)
        origin = f"{self._source.keys.dead} {entry} {message.id}"
        return _Arrival(origin, message, found.data_text, buried_history(fields))

    def _copy_results(self, arrivals: Sequence[_Arrival]) -> None:
        """Copy the results of tasks, so that they are found where the tasks run now."""
        source, target = self._source, self._target
        if source.keeps_results and target.keeps_results and arrivals:
            ids = [arrival.message.id for arrival in arrivals]
            self._copied += copy_results((source, self._transport), (target, self._target_transport), ids)


class _StreamTarget:
    """A queue in Redis streams."""

    def __init__(self, config: QueueConfig, transport: Transport) -> None:
        self._config, self._transport = config, transport

    def accept(self, arrivals: Sequence[_Arrival]) -> list[str]:
        """Write messages, and return a word for each; nothing for those after `FULL`."""
        bodies = [self._body(arrival) for arrival in arrivals]
        args: list[Argument] = [self._config.max_depth or 0, "", ""]
        for arrival, body in zip(arrivals, bodies, strict=True):
            if body is not None:
                args += (arrival.origin, arrival.message.id, body)
        command = _accept(self._config.keys, ("moved", "ready", "front", "waiting"), args)
        words = iter(reply_or_raise(self._transport.pipeline([command])[0]))
        return [*_until_full("TOOLONG" if body is None else next(words).decode() for body in bodies)]

    def _body(self, arrival: _Arrival) -> bytes | None:
        message, text = arrival.message, arrival.data_text
        if len(text) > self._config.max_size:
            return None
        # The history may be too long beside the data: other programs write longer ones.
        for history in dict.fromkeys((arrival.history, "")):
            body = encode_body(message, text, member=message.id, history=history)
            if len(body) <= MAX_ENTRY_BYTES:
                return body
        return None


class _RsmqTarget:
    """A queue in RSMQ's format, which has neither priorities nor unique keys."""

    def __init__(self, config: RsmqConfig, transport: Transport) -> None:
        self._config, self._transport = config, transport

    def accept(self, arrivals: Sequence[_Arrival]) -> list[str]:
        """See _StreamTarget.accept(). An id that RSMQ cannot have is replaced by a new one."""
        config, keys = self._config, self._config.keys
        args: list[Argument] = [config.max_depth or 0, keys.realtime if config.realtime else "", keys.wake]
        for origin, message, text, history in arrivals:
            own_id = message.id if rsmq_format.MESSAGE_ID.fullmatch(message.id) else config.new_id()
            own = message._replace(id=own_id, priority=0, unique=None, claims=False)
            body = rsmq_format.encode(own, text)
            args += (origin, own_id, body, rsmq_format.units(body.decode()), history)
        command = _accept(keys, ("moved", "zset", "hash", "notes"), args)
        reply = reply_or_raise(self._transport.pipeline([command])[0])
        if reply == b"NOQUEUE":
            RsmqStore(config, self._transport).create_groups()
            reply = reply_or_raise(self._transport.pipeline([command])[0])
        return [word.decode() for word in reply]


def _accept(keys: QueueKeys, names: Sequence[str], args: Sequence[Argument]) -> Command:
    key_names: list[str] = [getattr(keys, name) for name in names]
    return scripts.command("dead_accept", keys=key_names, args=[" ".join(names), *args])


def _target_of(config: QueueConfig, transport: Transport) -> _StreamTarget | _RsmqTarget:
    return (
        _RsmqTarget(config, transport)
        if isinstance(config, RsmqConfig)
        else _StreamTarget(config, transport_of(config, transport))
    )


def _until_full(words: Iterator[str]) -> Iterator[str]:
    for word in words:
        yield word
        if word == "FULL":
            return
