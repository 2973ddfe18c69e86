"""Change the number of partitions of a queue: close it, move everything to its new partition, and open it.

Partitions have slots of their own, so no script can use two. What is in a partition is first put on its way, within the
partition (`repartition_take`), then written to the one for it, which remembers up to where (`repartition_put`), and
then removed. So a process that is killed anywhere loses nothing and doubles nothing when it is run again. All steps are
bounded.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Literal, get_args

from mq_django.conf import QueueConfig
from mq_django.core import clock
from mq_django.core.jsontext import dumps, loads, whole
from mq_django.core.jsontext import whole as whole_number
from mq_django.core.keys import QueueKeys
from mq_django.core.options import MAX_PARTITIONS
from mq_django.errors import DecodeError, QueueClosed
from mq_django.stores.control import pause_command, resume_command
from mq_django.stores.partition_transport import CLOSED
from mq_django.stores.partitioned_store import Moving, moving_of
from mq_django.stores.schedules import home_of, named, parse, scheduled, states_of
from mq_django.transport import scripts
from mq_django.transport.connections import get_clients
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Pooled, Transport, is_gone, reply_or_raise

# The results of tasks, and what handlers report, follow the messages when the number of partitions changes.

#: Keys that a command asks for, and that a SCAN looks at.
ASKED, SCANNED = 200, 1000
#: Copies that are written at a time: each may have megabytes.
WRITTEN = 20

#: The time to live of a copy is that of the key, rounded up to this, ms.
ROUNDED_MS = 1000


def copy_of_messages(transport: Transport, source: QueueConfig, target: QueueConfig, ids: Sequence[str]) -> None:
    """Move the results of tasks that have not ended, and what handlers have reported, to another partition.

    A copy that is there stays. So this can be repeated.
    """
    if source.keys.queue == target.keys.queue:
        return
    for at in range(0, len(ids), ASKED):
        pairs = [pair for each in ids[at : at + ASKED] for pair in _pairs(source.keys, target.keys, each)]
        _move_results(transport, pairs)


def copy_ended(transport: Transport, old: QueueConfig, new: QueueConfig) -> int:
    """Move the results of tasks that have ended to where their ids lead, and return how many there were.

    They are found by a scan of all keys of the server, once for all partitions.
    """
    sources = {part.keys.queue: part.keys for part in old.each_part}
    form = re.compile(rf"{re.escape(old.namespace)}:\{{([^{{}}]*)\}}:result:(.*)", re.DOTALL)
    found = 0
    for keys in _scanned(old):
        pairs: list[tuple[str, str]] = []
        for key in keys:
            match = form.fullmatch(key)
            if match is not None and match[1] in sources:
                target = new.partitions_for_id(match[2])[0].keys
                if target.queue != match[1]:
                    pairs.append((key, target.result(match[2])))
        found += _move_results(transport, pairs)
    return found


def _pairs(source: QueueKeys, target: QueueKeys, message_id: str) -> Iterator[tuple[str, str]]:
    yield source.result(message_id), target.result(message_id)
    yield source.progress(message_id), target.progress(message_id)


def _move_results(transport: Transport, pairs: Sequence[tuple[str, str]]) -> int:
    """Move keys with text, or with fields, and return how many there were."""
    asked = transport.ask_each([("PTTL", key) for key, _ in pairs])
    there = [(pair, ms) for pair, ms in zip(pairs, asked, strict=True) if ms > 0]
    for at in range(0, len(there), WRITTEN):
        batch = there[at : at + WRITTEN]
        reads: list[Command] = [
            ("GETRANGE", key, 0, -1) if ":result:" in key else ("HGETALL", key) for (key, _), _ in batch
        ]
        commands = list[Command]()
        for ((_, copy), ms), found in zip(batch, transport.ask_each(reads), strict=True):
            args: list[Argument] = [-(-ms // ROUNDED_MS) * ROUNDED_MS, *(found if isinstance(found, list) else [found])]
            commands.append(scripts.command("repartition_copy", keys=[copy], args=args))
        transport.ask_each(commands)
        transport.ask_each([("DEL", key) for (key, _), _ in batch])
    return len(there)


def _scanned(old: QueueConfig) -> Iterator[list[str]]:
    """Yield the keys of results of a queue, and perhaps of others."""
    escaped = re.sub(r"([*?\[\]\\^])", r"\\\1", old.namespace)
    pattern = f"{escaped}:{{{old.name}{'.*' if old.parts else '}:result:*'}"
    for client in get_clients("chores", old.connection):
        node, cursor = Pooled(client), b"0"
        while True:
            command: Command = ("SCAN", cursor, "MATCH", pattern, "COUNT", SCANNED)
            cursor, keys = node.ask(command)
            yield [key.decode(errors="surrogateescape") for key in keys]
            if cursor == b"0":
                break


# The schedules of a queue follow their messages when the number of partitions changes.

#: The HASHes of schedules: of those in code and settings, and of those that were created at run time.
_HASHES = (attrgetter("schedules"), attrgetter("runtime_schedules"))


def move_schedules(transport: Transport, old: QueueConfig, new: QueueConfig) -> int:
    """Move what is known of the schedules of a queue to their new partitions, and return how many moved.

    What is there already stays, and nothing is removed before it was written. So this can be repeated.
    """
    moved = 0
    for part in old.each_part:
        for key_of in _HASHES:
            states = states_of(transport.ask(("HGETALL", key_of(part.keys))))
            for name, state in states.items():
                target = _home(new, name, state).keys
                if target.queue != part.keys.queue:
                    fields = [(named(f"{kind}:", name), value) for kind, value in state.items()]
                    _move_schedules(transport, key_of(part.keys), key_of(target), fields)
                    moved += 1
    return moved


def _home(new: QueueConfig, name: str, state: Mapping[str, bytes]) -> QueueConfig:
    """Return the partition of a schedule: by the key of its messages, if that is known, else by its name."""
    own = next((entry for entry in scheduled() if (entry.queue, entry.name) == (new.name, name)), None)
    entry = parse(new, name, state["definition"]).entry if "definition" in state else own
    return new.partition_for(key=None, unique=name) if entry is None else home_of(new, entry)


def _move_schedules(transport: Transport, source: str, target: str, fields: Sequence[tuple[bytes, bytes]]) -> None:
    transport.ask_all([("HSETNX", target, field, value) for field, value in fields])
    transport.ask(("HDEL", source, *(field for field, _ in fields)))


# How far a change of the number of partitions of a queue is: fields of the control hash of the whole queue.
#
# The states are `open`, `pausing`, `taking`, `putting` and `opening`. Each change of the state is one script, which
# changes nothing if another process was faster.

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
    #: Of the action that paused several queues.
    name: str = ""


@dataclass(frozen=True, slots=True)
class RepartitionState:
    """How far a change is."""

    phase: Phase
    #: The numbers of partitions: the recorded one, 1 if none is; and the two of the change.
    recorded: int
    old: int
    new: int
    #: What is recorded, as text; "" for nothing.
    before: str
    #: The number of the change, or of the one before.
    change: int
    #: The pause that the queue had before the change, and has after it.
    pause: EarlierPause | None = None


def read_state(whole: QueueConfig, transport: Transport) -> RepartitionState:
    """Read how far the change of a queue's number of partitions is.

    Raises:
        QueueClosed: the fields are not valid: another program has written them.
        StoreError: Redis could not be reached, or refused.
    """
    reply = transport.ask(("HMGET", whole.keys.control, *_FIELDS, _CHANGE))
    values = ["" if value is None else value.decode(errors="replace") for value in reply]
    number, phase, old, new, before, paused, change_text = values
    change = whole_number(change_text) or 0
    if not phase and number != CLOSED:
        recorded = _whole(whole, number) if number else PLAIN
        return RepartitionState("open", recorded, recorded, recorded, number, change)
    if phase not in get_args(Phase):
        raise QueueClosed(f"Queue {whole.name!r} is in an unknown state of repartitioning: {phase[:80]!r}")
    counts = _whole(whole, old), _whole(whole, new)
    return RepartitionState(phase, counts[0], *counts, before, change, _pause(paused))  # type: ignore[arg-type]


def begin(whole: QueueConfig, transport: Transport, state: RepartitionState) -> bool:
    """Begin a change from a state that is open, and return whether no other process was faster."""
    pause = state.pause
    paused = "" if pause is None else dumps([pause.who, pause.reason, pause.since_ms, *filter(None, [pause.name])])
    change = max(state.change + 1, clock.now_ms())
    expected: list[Argument] = [_NUMBER, state.before, _PHASE, ""]
    new: list[Argument] = [_PHASE, "pausing", _OLD, state.old, _NEW, state.new, _BEFORE, state.before, _PAUSED, paused]
    new += (_CHANGE, change)
    return _change(whole, transport, expected, new)


def go_on(whole: QueueConfig, transport: Transport, state: RepartitionState, phase: Phase) -> RepartitionState:
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
    if not _change(whole, transport, expected, new):
        raise QueueClosed(f"Another process is changing the number of partitions of queue {whole.name!r}")
    return replace(state, phase=phase)


def _change(whole: QueueConfig, transport: Transport, expected: list[Argument], new: list[Argument]) -> bool:
    args = [len(expected) // 2, *expected, *new]
    found: list[bytes] = transport.run("repartition_state", [whole.keys.control], args)
    return found[0] == b"CHANGED"


def _whole(whole: QueueConfig, text: str) -> int:
    number = whole_number(text, MAX_PARTITIONS)
    if not number:
        raise QueueClosed(f"The recorded number of partitions of queue {whole.name!r} is not valid: {text[:80]!r}")
    return number


def _pause(text: str) -> EarlierPause | None:
    try:
        who, reason, since_ms, *name = loads(text.encode())
    except (DecodeError, TypeError, ValueError):
        return None
    return EarlierPause(str(who), str(reason), str(since_ms), *map(str, name[:1]))


#: Messages of a step, and bytes after which it ends. Few are read at first, because each may have a megabyte.
BATCH, BYTES, FIRST = 500, 2 * 1024 * 1024, 20

#: Why the queue is paused meanwhile.
REASON = "repartition"


class Repartitioning:
    """A change of the number of partitions of one queue.

    Args:
        config: the queue, with the old or the new number of partitions, or any other.
        transport: for all partitions.
    """

    def __init__(self, config: QueueConfig, transport: Transport) -> None:
        self._whole = replace(config, partitions=1)
        self._transport = transport
        self._read_at_once = FIRST
        #: By old partition: where its hashes are read next.
        self._cursors: Mapping[str, bytes] = {}
        self.state = self.refresh()

    def refresh(self) -> RepartitionState:
        """Read the state anew, and return it. Raises what read_state() does."""
        self.state = read_state(self._whole, self._transport)
        return self.state

    @property
    def old(self) -> QueueConfig:
        """The queue with the number of partitions that it had."""
        return replace(self._whole, partitions=self.state.old)

    @property
    def new(self) -> QueueConfig:
        """The queue with the number of partitions that it gets."""
        return replace(self._whole, partitions=self.state.new)

    @property
    def parts(self) -> Mapping[str, QueueConfig]:
        """All partitions by their hash tags, old and new ones. Some may be both."""
        return {part.keys.queue: part for whole in (self.old, self.new) for part in whole.each_part}

    def begin(self, number: int, *, of_plain: bool = False) -> None:
        """Begin a change to a number of partitions.

        Args:
            number: of partitions.
            of_plain: move what is in the queue without partitions, although it has partitions.

        Raises:
            QueueClosed: another process has begun a change.
        """
        old = 1 if of_plain else self.state.recorded
        self.state = replace(self.state, old=old, new=number, pause=self._pause())
        if not begin(self._whole, self._transport, self.state):
            raise QueueClosed(f"Another process is changing the number of partitions of queue {self._whole.name!r}")
        self.refresh()

    def pause(self, who: str) -> None:
        """Let consumers take no more messages. Publishing is still possible."""
        self._transport.ask_each([pause_command(part.keys, who=who, reason=REASON) for part in self.parts.values()])

    def abort(self) -> None:
        """Let consumers go on as before. Only before the queue was closed.

        Raises:
            QueueClosed: another process has closed it.
        """
        if self.state.pause is None:
            self._transport.ask_each([resume_command(part.keys) for part in self.parts.values()])
        self.state = go_on(self._whole, self._transport, self.state, "open")

    def held(self) -> dict[str, dict[str, int]]:
        """Return how many deliveries each consumer still holds, by partition."""
        parts = list(self.parts.values())
        commands = [[("XPENDING", key, part.keys.group) for key in part.keys.streams()] for part in parts]
        found: dict[str, dict[str, int]] = {}
        for part, replies in zip(parts, self._transport.pipelines(commands), strict=True):
            for reply in replies:
                for consumer, count in () if is_gone(reply) else reply_or_raise(reply)[3] or ():
                    held = found.setdefault(part.name, {})
                    name = consumer.decode(errors="replace")
                    held[name] = held.get(name, 0) + (whole(count) or 0)
        return found

    def close(self, who: str) -> None:
        """Let publishing raise QueueClosed, in all old and new partitions. It can be repeated.

        Raises:
            QueueClosed: another process has ended this change.
        """
        if self.state.phase == "pausing":
            self.state = go_on(self._whole, self._transport, self.state, "taking")
        for keys in (part.keys for part in self.parts.values()):
            args: list[Argument] = [self.state.change, keys.wake, who, REASON]
            if self._transport.run("repartition_close", [keys.control], args) != b"CLOSED":
                raise QueueClosed(f"Another process has changed the number of partitions of queue {self._whole.name!r}")

    def take(self) -> tuple[int, int, int]:
        """Put some of what is in each old partition on its way.

        Returns:
            How much that was, how much is left, and how many deliveries consumers of these partitions still hold.
        """
        parts = self.old.each_part
        commands = [_take(part, self._cursors.get(part.keys.queue, b"0")) for part in parts]
        counts = [*map(self._of_closed, self._transport.ask_each(commands))]
        self._cursors = {part.keys.queue: cursor for part, (*_, cursor) in zip(parts, counts, strict=True)}
        taken, left, held = (sum(numbers) for numbers in list(zip(*counts, strict=True))[:3])
        return taken, left, held

    def all_taken(self) -> None:
        """Go on to putting, when take() has found nothing, and nothing is left or held."""
        self.state = go_on(self._whole, self._transport, self.state, "putting")

    def left(self) -> int:
        """Return how much is on its way."""
        return sum(self._transport.ask_each([("XLEN", part.keys.moving) for part in self.old.each_part]))

    def put(self, source: QueueConfig) -> tuple[int, int]:
        """Put some of what is on its way from an old partition into the new ones.

        Returns:
            How much has left `moving`, 0 at the end; and how many claims were forgotten.
        """
        found = self._read(source)
        by_target: dict[str, list[Moving]] = defaultdict(list)
        targets = {part.keys.queue: part for part in self.new.each_part}
        for one in found:
            if one.target is not None:
                by_target[one.target.keys.queue].append(one)
        for tag, ones in by_target.items():
            copy_of_messages(self._transport, source, targets[tag], [one.message_id for one in ones if one.message_id])
        for reply in self._transport.ask_each([_put(source, targets[tag], ones) for tag, ones in by_target.items()]):
            self._of_closed(reply)
        if found:
            self._transport.ask(("XDEL", source.keys.moving, *(one.entry for one in found)))
        return len(found), sum(one.target is None for one in found)

    def _read(self, source: QueueConfig) -> list[Moving]:
        """Read what is next on its way from an old partition."""
        count = self._read_at_once
        entries = self._transport.ask(("XRANGE", source.keys.moving, "-", "+", "COUNT", count))
        old, new = self.old, self.new
        found = [moving_of(entry, flat, source, old, new) for entry, flat in entries]
        size = sum(one.size for one in found)
        fits = BYTES * len(found) // max(size, 1)
        self._read_at_once = max(1, min(BATCH, 2 * count, fits)) if found else count
        return found

    def copy_results(self) -> int:
        """Copy the results of tasks that have ended, and return how many there were."""
        return copy_ended(self._transport, self.old, self.new)

    def move_schedules(self) -> int:
        """Move what is known of schedules, and return how many there were."""
        return move_schedules(self._transport, self.old, self.new)

    def open(self) -> None:
        """Open the new partitions, and close the others for good.

        Raises:
            QueueClosed: something is still on its way, or another process has changed the state.
        """
        if self.state.phase == "putting":
            self.state = go_on(self._whole, self._transport, self.state, "opening")
        pause, number = self.state.pause, self.state.new
        new = {part.keys.queue for part in self.new.each_part}
        limits = self._transport.ask(("HGET", self._whole.keys.control, "limits"))
        source = self.old.each_part[0].keys.holds
        holds = self._transport.ask(("HGETALL", source))
        for tag, part in self.parts.items():
            # The queue without partitions is open to producers in any case. Its consumers are to see what comes.
            paused = pause if tag in new or tag == self._whole.keys.queue else EarlierPause("", REASON, "0")
            # Before a fetch: limits that were changed at run time, and holds.
            control = part.keys.control
            before: list[Command] = [
                ("HDEL", control, "limits") if limits is None else ("HSET", control, "limits", limits)
            ]
            if part.keys.holds != source:
                before += [("DEL", part.keys.holds), *([("HSET", part.keys.holds, *holds)] if holds else ())]
            *_, reply = self._transport.ask_all([*before, _open(part.keys, number, paused)])
            if reply != b"OPENED":
                raise QueueClosed(f"Messages are still on their way from partition {part.name!r}")
        self.state = go_on(self._whole, self._transport, self.state, "open")

    def in_plain(self) -> int:
        """Return how many messages are in the queue without partitions."""
        keys = self._whole.keys
        commands: list[Command] = [
            ("XLEN", keys.ready),
            ("XLEN", keys.front),
            ("HLEN", keys.waiting),
            ("XLEN", keys.dead),
        ]
        return sum(self._transport.ask_all(commands))

    def _pause(self) -> EarlierPause | None:
        """Return the pause that the queue has now."""
        control = self.old.each_part[0].keys.control if self.state.old != 1 else self._whole.keys.control
        fields = ("paused", "paused-by", "paused-reason", "paused-at", "paused-name")
        paused, *words = self._transport.ask(("HMGET", control, *fields))
        if paused != b"1":
            return None
        return EarlierPause(*("" if word is None else word.decode(errors="replace") for word in words))

    def _of_closed(self, reply: Any) -> Any:
        """Return the reply of a script that needs a closed partition."""
        if reply == b"OPEN":
            raise QueueClosed(f"Another process has changed the number of partitions of queue {self._whole.name!r}")
        return reply


def _open(keys: QueueKeys, number: int, pause: EarlierPause | None) -> Command:
    known = EarlierPause("", "", "") if pause is None else pause
    paused: list[Argument] = ["0" if pause is None else "1", known.who, known.reason, known.since_ms, known.name]
    args: list[Argument] = [number, keys.wake, keys.arrivals, *paused]
    return scripts.command("repartition_open", keys=[keys.control, keys.moving, keys.arrived, keys.asleep], args=args)


def _take(part: QueueConfig, cursor: bytes) -> Command:
    keys = part.keys
    lists = [keys.ready, keys.front, keys.priority, keys.due, keys.unhandled, keys.parked]
    index = [keys.waiting, keys.unique, keys.claims, keys.cancels, keys.dead, keys.dead_ids, keys.dead_groups]
    key_names = [keys.control, keys.moving, *lists, *index, keys.permits, keys.step_notes]
    return scripts.command("repartition_take", keys=key_names, args=[keys.group, BATCH, BYTES, cursor])


def _put(source: QueueConfig, target: QueueConfig, ones: Sequence[Moving]) -> Command:
    keys = target.keys
    lists = [keys.ready, keys.front, keys.priority, keys.due, keys.unhandled]
    index = [keys.waiting, keys.unique, keys.claims, keys.cancels, keys.dead, keys.dead_ids, keys.dead_groups]
    key_names = [keys.control, keys.arrived, *lists, *index, keys.permits, keys.step_notes]
    args: list[Argument] = [keys.group, source.keys.queue]
    for one in ones:
        args += (one.entry, len(one.flat), *one.flat)
    return scripts.command("repartition_put", keys=key_names, args=args)
