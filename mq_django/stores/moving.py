"""Move messages to another queue, which may be on another server and have another format.

No script can use both queues. So a message that somebody could receive meanwhile first becomes a dead letter: one
script takes it from where it is. A dead letter is written to the target, which remembers for a week where it comes
from, and then removed from the source. A process that is killed before that leaves a dead letter, and the repetition
writes nothing twice.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from mq_django.conf import QueueConfig, RsmqConfig
from mq_django.core import rsmq_format
from mq_django.core.jsontext import LAST_MS, whole
from mq_django.core.keys import STEP_PREFIX, UNIQUE_PREFIX, QueueKeys
from mq_django.core.message_format import MAX_ENTRY_BYTES, encode_body
from mq_django.core.messages import Delivery, Message
from mq_django.errors import ConnectionLost, ConnectionRejected, ReadOnly, StoreError
from mq_django.stores import dead_letters
from mq_django.stores.partition_transport import transport_of
from mq_django.stores.results import copy_results
from mq_django.stores.rsmq_store import RsmqStore
from mq_django.transport import scripts
from mq_django.transport.connections import open_transport
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Transport

#: Dead letters that are read and written at a time, and the bytes after which a step ends: they pass through this
#: process, and each may have a megabyte.
READ_AT_ONCE, STEP_BYTES = 20, 2 * 1024 * 1024

#: Errors of a whole server.
SERVER_ERRORS = (ConnectionLost, ConnectionRejected, ReadOnly)

#: The words for messages that are in the target now.
_THERE = frozenset(("ACCEPTED", "KNOWN"))

#: The words for messages that the target does not accept. A run knows in which queue its steps are: in another one they
#: would count as lost, and be started again.
REFUSED = frozenset(("UNDECODABLE", "TOOLONG", "EXISTS", "TAKEN", "STEP"))


class Whole(NamedTuple):
    """A message that waits or is ready, with all it has."""

    member: bytes
    #: Its body in a hash; empty for an entry of a stream.
    body: bytes
    #: None: it is not a valid message.
    delivery: Delivery | None
    #: When it is due, in ms since 1970; None if it is not delayed.
    due_ms: int | None = None

    @property
    def due(self) -> str:
        """Return when it is due, after `u:` if it waits under its unique key; "" if it is not delayed."""
        prefix = UNIQUE_PREFIX if self.member.startswith(UNIQUE_PREFIX.encode()) else ""
        return "" if self.due_ms is None else f"{prefix}{self.due_ms}"


class MessageSource(Protocol):
    """Where messages wait or are ready."""

    def named(self) -> Mapping[str, str]:
        """Return the keys that change when a message leaves it, by their names in scripts."""

    def whole(self, members: Sequence[bytes]) -> list[Whole]:
        """Return the messages among these that still exist."""


class Held(NamedTuple):
    """The messages that hold() has made dead letters."""

    #: Their entries.
    entries: Sequence[str]
    #: A word for each of the first messages: `HELD`, `MISSING`, `ELSEWHERE`, or one of REFUSED: those stay.
    words: Sequence[str]
    #: Whether all were looked at. The others stay, because the target is full, or these were enough bytes.
    is_whole: bool = True
    is_full: bool = False


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
    #: When it is due, as in Whole; "" if it is ready.
    due: str = ""

    @property
    def due_ms(self) -> str:
        return self.due.removeprefix(UNIQUE_PREFIX)

    @property
    def member(self) -> str:
        """Return the member under which a delayed one waits."""
        is_unique = self.due.startswith(UNIQUE_PREFIX) and self.message.unique is not None
        return f"{UNIQUE_PREFIX}{self.message.unique}" if is_unique else self.message.id


class Mover:
    """Moves messages from one queue to another."""

    def __init__(self, source: QueueConfig, transport: Transport, target: QueueConfig) -> None:
        self._source, self._target = source, target
        self._transport = transport
        self._letters = dead_letters.open_dead_letters(source, transport)
        self._target_transport = open_transport("inspect", target.connection)
        self._arrivals = _target_of(target, self._target_transport)
        #: The keys of the results of tasks that were copied to the target.
        self._copied: list[str] = []
        #: The names of the messages that were written to the target.
        self.names: set[str] = set()

    def hold(
        self,
        source: MessageSource,
        members: Sequence[bytes],
        *,
        step: dead_letters.JobStep = dead_letters.NO_STEP,
        before: str = "",
    ) -> Held:
        """Make dead letters of messages that the target accepts, up to 100, or until these are enough bytes.

        Args:
            source: where they are.
            members: which.
            step: of a job, counted if all of them were looked at.
            before: where the step began: a job that could not look at all of them looks at the others again.
        """
        keys, capacity, size = self._source.keys, self._arrivals.capacity(), 0
        words: list[str] = []
        chosen: list[Whole] = []
        for at in range(0, len(members), READ_AT_ONCE):
            if size >= STEP_BYTES or (capacity is not None and len(chosen) >= capacity):
                break
            batch = members[at : at + READ_AT_ONCE]
            fitting = self._fitting(batch, {found.member: found for found in source.whole(batch)})
            for word, found in fitting:
                if found is not None and capacity is not None and len(chosen) >= capacity:
                    break
                words.append(word)
                chosen += [found] if found is not None else []
                size += len(found.delivery.data_text) if found is not None and found.delivery is not None else 0
        is_whole = len(words) == len(members)
        names = {"jobs": keys.jobs, "permits": keys.permits, "checks": keys.next_checks, **source.named()}
        names |= {"dead": keys.dead, "dead-ids": keys.dead_ids, "dead-groups": keys.dead_groups}
        counted = step if is_whole else step._replace(after=before, looked=0)
        args: list[Argument] = [*counted, " ".join(names), keys.group]
        for found in chosen:
            letter = self._letter(found, with_body="hash" in names)
            args += (found.member, found.body, len(letter), *letter)
        reply = transport_of(self._source, self._transport).run("messages_hold", list(names.values()), args)
        if isinstance(reply, bytes):
            return Held((), ())
        became = iter([word.decode() for word in reply])
        words = [next(became) if word == "HELD" else word for word in words]
        entries = [word for word in words if word[:1].isdigit()]
        if is_whole:
            self._count_refused(words, step)
        words = ["HELD" if word[:1].isdigit() else word for word in words]
        return Held(entries, words, is_whole, is_full=not is_whole and size < STEP_BYTES)

    def _fitting(self, members: Sequence[bytes], found: Mapping[bytes, Whole]) -> Iterator[tuple[str, Whole | None]]:
        """Yield for each message why it stays, or `HELD` with the message."""
        known = {member: self._live(one) for member, one in found.items() if one.delivery is not None}
        reasons = dict(zip(known, self._server(lambda: self._arrivals.check([*known.values()])), strict=True))
        reasons |= {member: "STEP" for member, one in known.items() if one.message.id.startswith(STEP_PREFIX)}
        for member in members:
            if member in known and not reasons[member]:
                yield "HELD", found[member]
            else:
                yield (reasons.get(member) or "UNDECODABLE" if member in found else "MISSING"), None

    def _live(self, found: Whole) -> _Arrival:
        assert found.delivery is not None
        message = found.delivery.message._replace(queue=self._target.name)
        return _Arrival("", message, found.delivery.data_text, found.delivery.history, found.due)

    def _letter(self, found: Whole, *, with_body: bool) -> list[str | bytes]:
        """Return the fields of the dead letter of a message; in RSMQ's format with the body that a redrive writes."""
        assert found.delivery is not None
        fields = dead_letters.moved_fields(found.delivery, self._target.name, found.due)
        return [*fields, "deadbody", found.body] if with_body else fields

    def left(self, entries: Sequence[str]) -> list[str]:
        """Return the entries, of some that hold() has made, that are still dead letters on their way."""
        found = self._letters.each(entries, which="LISTED")
        return [
            entry for entry, fields in found if dead_letters.text_of(fields.get(b"deadreason")) == dead_letters.MOVED
        ]

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

    def remove(
        self, entries: Sequence[str], words: Sequence[str], *, step: dead_letters.JobStep = dead_letters.NO_STEP
    ) -> None:
        """Remove dead letters that write() has written, and count the step of a job.

        They are in the target, so they are removed also if this worker no longer runs the job. The step is then not
        counted.
        """
        if self._copied:
            # Before the dead letters: a result that stays would hide the one of the target.
            self._transport.ask(("DEL", *self._copied))
            self._copied.clear()
        gone = [entry for entry, word in zip(entries, words, strict=False) if word not in REFUSED]
        replies = self._letters.delete(gone, step=step)
        if replies == ["STOPPED"]:
            self._letters.delete([entry for entry, word in zip(entries, words, strict=False) if word in _THERE])
        else:
            self._count_refused(words, step)

    def _count_refused(self, words: Sequence[str], step: dead_letters.JobStep) -> None:
        refused = sum(word in REFUSED for word in words)
        if refused and step != dead_letters.NO_STEP:
            command: Command = ("HINCRBY", self._source.keys.jobs, f"{step.state}:refused", refused)
            self._transport.ask(command)

    def _server(self, ask: Callable[[], Sequence[str]]) -> Sequence[str]:
        """Return what the server of the target replies."""
        try:
            return ask()
        except SERVER_ERRORS as error:
            if self._target.connection == self._source.connection:
                raise
            # It does not concern the jobs of other queues on the server of the source.
            raise StoreError(f"Queue {self._target.name!r}: {error}") from error

    def _written(self, entries: Sequence[str], found: Mapping[str, Mapping[bytes, bytes]]) -> Sequence[str]:
        """Write dead letters that were read, and return a word for each."""
        return self._server(lambda: [*self._write(entries, found)])

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
        found = dead_letters.buried(self._source.name, entry, fields)
        if not isinstance(found, Delivery):
            return None
        history = dead_letters.buried_history(fields)
        message = found.message._replace(queue=self._target.name)
        if fields.get(b"deadreason") != dead_letters.MOVED.encode():
            # As after a redrive: no attempts are counted, and it does not expire.
            message = message._replace(attempt=1, expires_ms=None)
        self.names.add(message.name)
        due = dead_letters.text_of(fields.get(b"deaddue"))
        if whole(due.removeprefix(UNIQUE_PREFIX), LAST_MS) is None:
            due = ""
        return _Arrival(f"{self._source.keys.dead} {entry} {message.id}", message, found.data_text, history, due)

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
        """Write messages, and return a word for each. None after the first `FULL` is written."""
        bodies = [self._body(arrival) for arrival in arrivals]
        args: list[Argument] = [self._config.max_depth or 0, "", self._config.keys.wake]
        for arrival, body in zip(arrivals, bodies, strict=True):
            if body is not None:
                args += (arrival.origin, arrival.message.id, body, arrival.due_ms, arrival.member)
        command = _accept(self._config.keys, ("moved", "ready", "front", "waiting", "due", "unique"), args)
        words = iter(self._transport.ask(command))
        return ["TOOLONG" if body is None else next(words, b"FULL").decode() for body in bodies]

    def check(self, arrivals: Sequence[_Arrival]) -> list[str]:
        """Return for each message the word with which accept() would refuse it now, or ""."""
        asked = [arrival for arrival in arrivals if arrival.due and arrival.member != arrival.message.id]
        commands: list[Command] = [("HEXISTS", self._config.keys.waiting, arrival.member) for arrival in asked]
        there = self._transport.ask_all(commands)
        taken = {arrival.member for arrival, is_there in zip(asked, there, strict=True) if is_there}
        words = {True: "TAKEN", False: ""}
        return [
            "TOOLONG" if self._body(one) is None else words[one in asked and one.member in taken] for one in arrivals
        ]

    def capacity(self) -> int | None:
        """Return how many messages the queue may still take; None for any number."""
        keys, limit = self._config.keys, self._config.max_depth
        if not limit:
            return None
        held: list[int] = self._transport.ask_all([("XLEN", keys.ready), ("XLEN", keys.front), ("HLEN", keys.waiting)])
        return max(0, limit - sum(held))

    def _body(self, arrival: _Arrival) -> bytes | None:
        message, text = arrival.message, arrival.data_text
        if len(text) > self._config.max_size:
            return None
        # The history may be too long beside the data: other programs write longer ones.
        for history in dict.fromkeys((arrival.history, "")):
            body = encode_body(message, text, member=arrival.member, history=history)
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
        for arrival in arrivals:
            own_id, body = self._own(arrival)
            args += (arrival.origin, own_id, body, arrival.due_ms, rsmq_format.units(body.decode()), arrival.history)
        command = _accept(keys, ("moved", "zset", "hash", "notes"), args)
        reply = self._transport.ask(command)
        if reply == b"NOQUEUE":
            RsmqStore(config, self._transport).create_groups()
            reply = self._transport.ask(command)
        return [word.decode() for word in reply]

    def check(self, arrivals: Sequence[_Arrival]) -> list[str]:
        """See _StreamTarget.check()."""
        keys, own = self._config.keys, [self._own(arrival) for arrival in arrivals]
        commands: list[Command] = [("HEXISTS", keys.hash, own_id) for own_id, _ in own]
        stored, *there = self._transport.ask_all([("HGET", keys.hash, "maxsize"), *commands])
        # A queue that does not exist yet is made with these options.
        most = self._config.maxsize if stored is None else whole(stored)
        is_limited = most is not None and most >= 0
        too_long = [is_limited and rsmq_format.units(body.decode()) > (most or 0) for _, body in own]
        return ["EXISTS" if has else "TOOLONG" if long else "" for has, long in zip(there, too_long, strict=True)]

    def capacity(self) -> int | None:
        """See _StreamTarget.capacity()."""
        limit = self._config.max_depth
        if not limit:
            return None
        return max(0, limit - int(self._transport.ask(("ZCARD", self._config.keys.zset))))

    def _own(self, arrival: _Arrival) -> tuple[str, bytes]:
        """Return the id and the body that a message gets."""
        message = arrival.message
        own_id = message.id if rsmq_format.MESSAGE_ID.fullmatch(message.id) else self._config.new_id()
        own = message._replace(id=own_id, priority=0, unique=None, claims=False)
        return own_id, rsmq_format.encode(own, arrival.data_text)


def _accept(keys: QueueKeys, names: Sequence[str], args: Sequence[Argument]) -> Command:
    key_names: list[str] = [getattr(keys, name) for name in names]
    return scripts.command("dead_accept", keys=key_names, args=[" ".join(names), *args])


def _target_of(config: QueueConfig, transport: Transport) -> _StreamTarget | _RsmqTarget:
    return (
        _RsmqTarget(config, transport)
        if isinstance(config, RsmqConfig)
        else _StreamTarget(config, transport_of(config, transport))
    )
