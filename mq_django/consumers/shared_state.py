"""What a consumer is doing, in memory that its supervisor shares.

A handler that holds the GIL, or a process that is stopped, cannot answer questions. Its shared state still tells what
it runs, since when, and what it has handled but not yet settled. Only one side writes each part.
"""

import itertools
import math
import mmap
import os
import struct
from collections.abc import Collection
from hashlib import blake2b
from typing import NamedTuple, Self

from mq_django.consumers.memory import allocate

#: Bytes of the longest receipt: the largest stream id, or an id of RSMQ's own with its count. For a longer one
#: its digest is stored.
MAX_ENTRY = 44
_DIGEST = b"blake2b:"
#: Settled or not, this many latest results stay: more than a consumer ever has unsettled.
RING = 4096
#: Queues of one supervisor. Each takes a thread, a connection and some 130 KiB in every consumer.
MAX_QUEUES = 256
#: Seconds a handler may be past its timeout before it counts as one that cannot be interrupted.
OVERTIME = 1.0
#: Bytes of a consumer's id.
MAX_NAME = 128

IDLE, RUNNING = 0, 1
HANDLED, FAILED = 1, 2
_ASKED, _OBEYED = 1, 2

_LANE = struct.Struct(f"<BBHdd{MAX_ENTRY}s")
_RESULT = struct.Struct(f"<BBH{MAX_ENTRY}s")
_TICKS = struct.Struct("<Q")
_COUNTS = struct.Struct("<QQ")
# Ticks, leaving, wants a quarantine, fast stop, quiet; what each queue needs; the quarantine's name; lanes; results.
_LEAVING, _WANTS_QUARANTINE, _FAST_STOP, _QUIET = 8, 9, 10, 11
_HELD_UNTIL = 64
_PAUSED = _HELD_UNTIL + 8 * MAX_QUEUES
_UNHANDLED = _PAUSED + MAX_QUEUES
_COUNTED = _UNHANDLED + MAX_QUEUES
_QUARANTINE = _COUNTED + MAX_QUEUES * _COUNTS.size
_LANES = _QUARANTINE + MAX_NAME


def stored_entry(entry: bytes) -> bytes:
    """Return what stands for an entry in the shared state: itself, or the digest of one that is too long."""
    return entry if len(entry) <= MAX_ENTRY else _DIGEST + blake2b(entry, digest_size=16).hexdigest().encode()


class Receipt(NamedTuple):
    """Which delivery: the number of its queue, the stream it came from, and the entry as it is in the shared state."""

    queue: int
    home: int
    entry: bytes

    @classmethod
    def of(cls, queue: int, home: int, entry: bytes) -> Self:
        """Return the receipt by which the shared state knows a delivery."""
        return cls(queue, home, stored_entry(entry))

    @property
    def is_digest(self) -> bool:
        """Tell whether Redis knows no such entry, because it is the digest of one."""
        return self.entry.startswith(_DIGEST)


class Running(NamedTuple):
    """A delivery that a lane runs. Moments are seconds on the monotonic clock, which all processes here share."""

    receipt: Receipt
    since: float
    #: When its handler should have ended; infinite when it may run without end.
    deadline: float


class SharedState:
    """The shared memory of one consumer and its supervisor."""

    def __init__(self, fd: int, lanes: int) -> None:
        self.fd = fd
        self.lanes = lanes
        self._ring_at = _LANES + lanes * _LANE.size
        self._memory = mmap.mmap(fd, self._ring_at + RING * _RESULT.size)
        # Whole doubles at their own places: read and written in one move.
        self._until = memoryview(self._memory)[_HELD_UNTIL:_PAUSED].cast("d")
        self._turn = itertools.count()
        self._ticks = 0

    @classmethod
    def create(cls, lanes: int, *, held: bool = True) -> "SharedState":
        """Make an empty shared state whose `fd` a child process can inherit.

        With `held` its consumer holds what it has for ever; else until the moment that hold_until() tells.

        Raises:
            OSError: there is no room for it.
        """
        shared_state = cls(allocate(_LANES + lanes * _LANE.size + RING * _RESULT.size), lanes)
        for queue in range(MAX_QUEUES if held else 0):
            shared_state.hold_until(queue, math.inf)
        return shared_state

    def close(self) -> None:
        """Let go of the memory."""
        self._until.release()
        self._memory.close()
        os.close(self.fd)

    def run(self, lane: int, queue: int, home: int, entry: bytes, since: float, deadline: float = math.inf) -> None:
        """Note that a lane runs a delivery since a moment of the monotonic clock."""
        at = _LANES + lane * _LANE.size
        if len(entry) > MAX_ENTRY:
            entry = stored_entry(entry)
        # Packing goes field by field, and a process may be stopped in between: that it runs comes last.
        _LANE.pack_into(self._memory, at, IDLE, home, queue, since, deadline, entry)
        self._memory[at] = RUNNING

    def idle(self, lane: int) -> None:
        """Note that a lane runs nothing."""
        self._memory[_LANES + lane * _LANE.size] = IDLE

    def ended(self, state: int, queue: int, home: int, entry: bytes) -> None:
        """Note that a delivery was HANDLED or FAILED; it may still be unsettled."""
        at = self._ring_at + next(self._turn) % RING * _RESULT.size
        if len(entry) > MAX_ENTRY:
            entry = stored_entry(entry)
        _RESULT.pack_into(self._memory, at, state, home, queue, entry)

    def tick(self) -> None:
        """Show that the consumer's main thread runs."""
        self._ticks += 1
        _TICKS.pack_into(self._memory, 0, self._ticks)

    def leave(self) -> None:
        """Tell that the consumer fetches no more and ends when its handlers have: another may take its place."""
        self._memory[_LEAVING] = 1

    def want_quarantine(self) -> None:
        """Tell that the consumer holds something that must run alone."""
        self._memory[_WANTS_QUARANTINE] = 1

    def hold_until(self, queue: int, moment: float) -> None:
        """Tell until when nobody takes the consumer for dead, by the latest heartbeat."""
        self._until[queue] = moment

    def set_paused(self, queue: int, paused: bool) -> None:
        """Tell the consumer whether a queue is paused."""
        self._memory[_PAUSED + queue] = paused

    def set_unhandled(self, queue: int, there_are: bool) -> None:
        """Tell the consumer whether a queue has messages whose name nobody knew."""
        self._memory[_UNHANDLED + queue] = there_are

    def stop_fast(self) -> None:
        """Tell the consumer, which was asked to stop, to hand back at once what it runs."""
        self._memory[_FAST_STOP] = 1

    def quiet(self) -> None:
        """Tell the consumer to fetch no more and to finish what it has; there is no way back."""
        if not self._memory[_QUIET]:
            self._memory[_QUIET] = _ASKED

    def mark_quiet(self) -> None:
        """Tell that the consumer fetches no more."""
        self._memory[_QUIET] = _OBEYED

    def count(self, queue: int, handled: int, failed: int) -> None:
        """Tell how many deliveries of a queue the consumer has handled so far, and how many failed."""
        _COUNTS.pack_into(self._memory, _COUNTED + queue * _COUNTS.size, handled, failed)

    def set_quarantine(self, consumer: str) -> None:
        """Tell the consumer who takes what must run alone; "" when nobody does."""
        self._memory[_QUARANTINE : _QUARANTINE + MAX_NAME] = consumer.encode().ljust(MAX_NAME, b"\0")

    def running(self) -> list[Running]:
        """Return what the lanes run; one that has just ended may still be among it."""
        # A lane may write while it is read. What reads the same twice was whole.
        first, second = self._lanes(), self._lanes()
        return [one for one, other in zip(first, second, strict=True) if one is not None and one == other]

    def _lanes(self) -> list[Running | None]:
        found: list[Running | None] = []
        for lane in range(self.lanes):
            state, home, queue, since, deadline, entry = _LANE.unpack_from(self._memory, _LANES + lane * _LANE.size)
            runs = state == RUNNING
            found.append(Running(Receipt(queue, home, entry.rstrip(b"\0")), since, deadline) if runs else None)
        return found

    def results(self) -> dict[Receipt, int]:
        """Return how the latest deliveries ended: HANDLED or FAILED, settled or not."""
        found = {}
        for place in range(RING):
            state, home, queue, entry = _RESULT.unpack_from(self._memory, self._ring_at + place * _RESULT.size)
            if state:
                found[Receipt(queue, home, entry.rstrip(b"\0"))] = state
        return found

    def handled(self, queue: int) -> set[tuple[int, bytes]]:
        """Return the deliveries of a queue that were handled lately, settled or not, as the shared state knows them."""
        results = self.results().items()
        return {(receipt.home, receipt.entry) for receipt, state in results if state == HANDLED and receipt[0] == queue}

    def late(self, now: float) -> Collection[Receipt]:
        """Return what the lanes run past its deadline."""
        return {item.receipt for item in self.running() if now > item.deadline}

    def ticks(self) -> int:
        """Return a number that changes while the consumer's main thread runs."""
        return int(_TICKS.unpack_from(self._memory, 0)[0])

    def hurried(self) -> bool:
        """Tell whether the consumer is to hand back at once what it runs."""
        return bool(self._memory[_FAST_STOP])

    def shall_be_quiet(self) -> bool:
        """Tell whether the consumer is to fetch no more, and still does."""
        return self._memory[_QUIET] == _ASKED

    def is_quiet(self) -> bool:
        """Tell whether the consumer was told to fetch no more, and does not."""
        return self._memory[_QUIET] == _OBEYED

    def counted(self, queue: int) -> tuple[int, int]:
        """Return how many deliveries of a queue were handled, and how many failed."""
        handled, failed = _COUNTS.unpack_from(self._memory, _COUNTED + queue * _COUNTS.size)
        return handled, failed

    def leaving(self) -> bool:
        """Tell whether the consumer is about to end."""
        return bool(self._memory[_LEAVING])

    def wants_quarantine(self) -> bool:
        """Tell, once, whether the consumer holds something that must run alone."""
        is_asked = bool(self._memory[_WANTS_QUARANTINE])
        if is_asked:
            self._memory[_WANTS_QUARANTINE] = 0
        return is_asked

    def quarantine(self) -> str:
        """Return who takes what must run alone, or ""."""
        return bytes(self._memory[_QUARANTINE : _QUARANTINE + MAX_NAME]).rstrip(b"\0").decode()

    def held_until(self, queue: int) -> float:
        """Return until when, on the monotonic clock, nobody takes the consumer for dead."""
        return self._until[queue]

    def paused(self, queue: int) -> bool:
        """Tell whether a queue is paused."""
        return bool(self._memory[_PAUSED + queue])

    def unhandled(self, queue: int) -> bool:
        """Tell whether a queue has messages whose name nobody knew."""
        return bool(self._memory[_UNHANDLED + queue])
