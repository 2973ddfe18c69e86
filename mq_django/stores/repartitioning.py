"""Change the number of partitions of a queue: close it, move everything to its new partition, and open it.

Partitions have slots of their own, so no script can use two. What is in a partition is first put on its way, within the
partition (`repartition_take`), then written to the one for it, which remembers up to where (`repartition_put`), and
then removed. So a process that is killed anywhere loses nothing and doubles nothing when it is run again. All steps are
bounded.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mq_django.conf import QueueConfig
from mq_django.core.keys import QueueKeys
from mq_django.core.numbers import whole
from mq_django.errors import QueueClosed
from mq_django.stores.control import pause_command, resume_command
from mq_django.stores.partition_move import Moving, moving_of
from mq_django.stores.repartition_state import EarlierPause, RepartitionState, begin, go_on, read_state
from mq_django.stores.result_copies import copy_ended, copy_of_messages
from mq_django.stores.schedule_moves import move_schedules
from mq_django.transport import scripts
from mq_django.transport.fan_out import fan_out
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Wire, is_gone, reply_or_raise

#: Messages of a step, and bytes after which it ends. Few are read at first, because each may have a megabyte.
BATCH, BYTES, FIRST = 500, 2 * 1024 * 1024, 20

#: Why the queue is paused meanwhile.
REASON = "repartition"


class Repartitioning:
    """A change of the number of partitions of one queue.

    Args:
        config: the queue, with the old or the new number of partitions, or any other.
        wire: for all partitions.
    """

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        self._whole = replace(config, partitions=1)
        self._wire = wire
        self._read_at_once = FIRST
        #: By old partition: where its hashes are read next.
        self._cursors: Mapping[str, bytes] = {}
        self.state = self.look()

    def look(self) -> RepartitionState:
        """Read the state anew, and return it. Raises what read_state() does."""
        self.state = read_state(self._whole, self._wire)
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
        if not begin(self._whole, self._wire, self.state):
            raise QueueClosed(f"Another process is changing the number of partitions of queue {self._whole.name!r}")
        self.look()

    def pause(self, who: str) -> None:
        """Let consumers take no more messages. Publishing is still possible."""
        self._each(pause_command(part.keys, who=who, reason=REASON) for part in self.parts.values())

    def abort(self) -> None:
        """Let consumers go on as before. Only before the queue was closed.

        Raises:
            QueueClosed: another process has closed it.
        """
        if self.state.pause is None:
            self._each(resume_command(part.keys) for part in self.parts.values())
        self.state = go_on(self._whole, self._wire, self.state, "open")

    def held(self) -> dict[str, dict[str, int]]:
        """Return how many deliveries each consumer still holds, by partition."""
        parts = list(self.parts.values())
        commands = [[("XPENDING", key, part.keys.group) for key in part.keys.streams()] for part in parts]
        found: dict[str, dict[str, int]] = {}
        for part, replies in zip(parts, self._trips(commands), strict=True):
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
            self.state = go_on(self._whole, self._wire, self.state, "taking")
        for keys in (part.keys for part in self.parts.values()):
            args: list[Argument] = [self.state.change, keys.wake, who, REASON]
            command = scripts.command("repartition_close", keys=[keys.control], args=args)
            if reply_or_raise(self._wire.trip([command])[0]) != b"CLOSED":
                raise QueueClosed(f"Another process has changed the number of partitions of queue {self._whole.name!r}")

    def take(self) -> tuple[int, int, int]:
        """Put some of what is in each old partition on its way.

        Returns:
            How much that was, how much is left, and how many deliveries consumers of these partitions still hold.
        """
        parts = self.old.each_part
        trips = [[_take(part, self._cursors.get(part.keys.queue, b"0"))] for part in parts]
        counts = [self._of_closed(reply) for (reply,) in self._trips(trips)]
        self._cursors = {part.keys.queue: cursor for part, (*_, cursor) in zip(parts, counts, strict=True)}
        taken, left, held = (sum(numbers) for numbers in list(zip(*counts, strict=True))[:3])
        return taken, left, held

    def all_taken(self) -> None:
        """Go on to putting, when take() has found nothing, and nothing is left or held."""
        self.state = go_on(self._whole, self._wire, self.state, "putting")

    def left(self) -> int:
        """Return how much is on its way."""
        trips = self._trips([[("XLEN", part.keys.moving)] for part in self.old.each_part])
        return sum(reply_or_raise(reply) for (reply,) in trips)

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
            copy_of_messages(self._wire, source, targets[tag], [one.message_id for one in ones if one.message_id])
        commands = [[_put(source, targets[tag], ones)] for tag, ones in by_target.items()]
        for (reply,) in self._trips(commands):
            self._of_closed(reply)
        if found:
            reply_or_raise(self._wire.trip([("XDEL", source.keys.moving, *(one.entry for one in found))])[0])
        return len(found), sum(one.target is None for one in found)

    def _read(self, source: QueueConfig) -> list[Moving]:
        """Read what is next on its way from an old partition."""
        count = self._read_at_once
        (reply,) = self._wire.trip([("XRANGE", source.keys.moving, "-", "+", "COUNT", count)])
        old, new = self.old, self.new
        found = [moving_of(entry, flat, source, old, new) for entry, flat in reply_or_raise(reply)]
        size = sum(one.size for one in found)
        fits = BYTES * len(found) // max(size, 1)
        self._read_at_once = max(1, min(BATCH, 2 * count, fits)) if found else count
        return found

    def copy_results(self) -> int:
        """Copy the results of tasks that have ended, and return how many there were."""
        return copy_ended(self._wire, self.old, self.new)

    def move_schedules(self) -> int:
        """Move what is known of schedules, and return how many there were."""
        return move_schedules(self._wire, self.old, self.new)

    def open(self) -> None:
        """Open the new partitions, and close the others for good.

        Raises:
            QueueClosed: something is still on its way, or another process has changed the state.
        """
        if self.state.phase == "putting":
            self.state = go_on(self._whole, self._wire, self.state, "opening")
        pause, number = self.state.pause, self.state.new
        new = {part.keys.queue for part in self.new.each_part}
        for tag, part in self.parts.items():
            # The queue without partitions is open to producers in any case. Its consumers are to see what comes.
            paused = pause if tag in new or tag == self._whole.keys.queue else EarlierPause("", REASON, "0")
            (reply,) = self._wire.trip([_open(part.keys, number, paused)])
            if reply_or_raise(reply) != b"OPENED":
                raise QueueClosed(f"Messages are still on their way from partition {part.name!r}")
        self.state = go_on(self._whole, self._wire, self.state, "open")

    def in_plain(self) -> int:
        """Return how many messages are in the queue without partitions."""
        keys = self._whole.keys
        commands: list[Command] = [
            ("XLEN", keys.ready),
            ("XLEN", keys.urgent),
            ("HLEN", keys.waiting),
            ("XLEN", keys.dead),
        ]
        return sum(map(reply_or_raise, self._wire.trip(commands)))

    def _pause(self) -> EarlierPause | None:
        """Return the pause that the queue has now."""
        control = self.old.each_part[0].keys.control if self.state.old != 1 else self._whole.keys.control
        (reply,) = self._wire.trip([("HMGET", control, "paused", "paused-by", "paused-reason", "paused-at")])
        paused, *words = reply_or_raise(reply)
        if paused != b"1":
            return None
        return EarlierPause(*("" if word is None else word.decode(errors="replace") for word in words))

    def _of_closed(self, reply: object) -> Any:
        """Return the reply of a script that needs a closed partition."""
        found = reply_or_raise(reply)
        if found == b"OPEN":
            raise QueueClosed(f"Another process has changed the number of partitions of queue {self._whole.name!r}")
        return found

    def _each(self, commands: Iterator[Command]) -> None:
        for (reply,) in self._trips([[command] for command in commands]):
            reply_or_raise(reply)

    def _trips(self, trips: Sequence[Sequence[Command]]) -> list[list[object]]:
        return list(fan_out([self._wire] * len(trips), trips))


def _ends(keys: QueueKeys) -> list[str]:
    return [keys.control, keys.moving, keys.arrived]


def _open(keys: QueueKeys, number: int, pause: EarlierPause | None) -> Command:
    paused: list[Argument] = ["0", "", "", ""] if pause is None else ["1", pause.who, pause.reason, pause.since_ms]
    args: list[Argument] = [number, keys.wake, keys.arrivals, *paused]
    return scripts.command("repartition_open", keys=[*_ends(keys), keys.asleep], args=args)


def _take(part: QueueConfig, cursor: bytes) -> Command:
    keys = part.keys
    places = [keys.ready, keys.urgent, keys.priority, keys.due, keys.unhandled, keys.parked]
    index = [keys.waiting, keys.unique, keys.claims, keys.cancels, keys.dead, keys.dead_ids, keys.dead_groups]
    key_names = [keys.control, keys.moving, *places, *index, keys.permits, keys.step_notes]
    return scripts.command("repartition_take", keys=key_names, args=[keys.group, BATCH, BYTES, cursor])


def _put(source: QueueConfig, target: QueueConfig, ones: Sequence[Moving]) -> Command:
    keys = target.keys
    places = [keys.ready, keys.urgent, keys.priority, keys.due, keys.unhandled]
    index = [keys.waiting, keys.unique, keys.claims, keys.cancels, keys.dead, keys.dead_ids, keys.dead_groups]
    key_names = [keys.control, keys.arrived, *places, *index, keys.permits, keys.step_notes]
    args: list[Argument] = [keys.group, source.keys.queue]
    for one in ones:
        args += (one.entry, len(one.flat), *one.flat)
    return scripts.command("repartition_put", keys=key_names, args=args)
