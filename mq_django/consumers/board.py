"""What a consumer is doing, in memory that its supervisor shares.

A handler that holds the GIL, or a process that is stopped, cannot answer questions; its board still tells what it runs,
since when, and what it has handled but not yet settled. Only one side writes each part.
"""

import itertools
import mmap
import os
import struct
import tempfile
from dataclasses import dataclass
from typing import NamedTuple

#: Bytes of the longest receipt: the largest stream id there can be.
MAX_ENTRY = 44
#: Settled or not, this many latest results stay: more than a consumer ever has unsettled.
RING = 4096
#: Queues of one supervisor.
MAX_QUEUES = 256

IDLE, RUNNING = 0, 1
HANDLED, FAILED = 1, 2

_LANE = struct.Struct(f"<BBHd{MAX_ENTRY}s")
_RESULT = struct.Struct(f"<BBH{MAX_ENTRY}s")
_PAUSED = 64
_UNHANDLED = _PAUSED + MAX_QUEUES
_LANES = _UNHANDLED + MAX_QUEUES


class Receipt(NamedTuple):
    """Which delivery: the number of its queue, the stream it came from, and the entry."""

    queue: int
    home: int
    entry: bytes


@dataclass(frozen=True, slots=True)
class Running:
    """A delivery that a lane runs."""

    receipt: Receipt
    #: Seconds on the monotonic clock, which all processes of a machine share.
    since: float


class Board:
    """The shared memory of one consumer and its supervisor."""

    def __init__(self, fd: int, lanes: int) -> None:
        self.fd = fd
        self.lanes = lanes
        self._ring_at = _LANES + lanes * _LANE.size
        self._memory = mmap.mmap(fd, self._ring_at + RING * _RESULT.size)
        self._turn = itertools.count()

    @classmethod
    def create(cls, lanes: int) -> "Board":
        """Make an empty board whose `fd` a child process can inherit."""
        fd, path = tempfile.mkstemp(prefix="mq-board-")
        os.unlink(path)  # noqa: PTH108 - the memory lives as long as somebody has it open
        os.truncate(fd, _LANES + lanes * _LANE.size + RING * _RESULT.size)
        return cls(fd, lanes)

    def close(self) -> None:
        """Let go of the memory."""
        self._memory.close()
        os.close(self.fd)

    def run(self, lane: int, queue: int, home: int, entry: bytes, since: float) -> None:
        """Note that a lane runs a delivery since a moment of the monotonic clock."""
        _LANE.pack_into(self._memory, _LANES + lane * _LANE.size, RUNNING, home, queue, since, entry)

    def idle(self, lane: int) -> None:
        """Note that a lane runs nothing."""
        self._memory[_LANES + lane * _LANE.size] = IDLE

    def ended(self, state: int, queue: int, home: int, entry: bytes) -> None:
        """Note that a delivery was HANDLED or FAILED; it may still be unsettled."""
        at = self._ring_at + next(self._turn) % RING * _RESULT.size
        _RESULT.pack_into(self._memory, at, state, home, queue, entry)

    def running(self) -> list[Running]:
        """Return what the lanes run; one that has just ended may still be among it."""
        found = []
        for lane in range(self.lanes):
            state, home, queue, since, entry = _LANE.unpack_from(self._memory, _LANES + lane * _LANE.size)
            if state == RUNNING:
                found.append(Running(Receipt(queue, home, entry.rstrip(b"\0")), since))
        return found

    def results(self) -> dict[Receipt, int]:
        """Return how the latest deliveries ended: HANDLED or FAILED, settled or not."""
        found = {}
        for place in range(RING):
            state, home, queue, entry = _RESULT.unpack_from(self._memory, self._ring_at + place * _RESULT.size)
            if state:
                found[Receipt(queue, home, entry.rstrip(b"\0"))] = state
        return found

    def set_paused(self, queue: int, paused: bool) -> None:
        """Tell the consumer whether a queue is paused."""
        self._memory[_PAUSED + queue] = paused

    def paused(self, queue: int) -> bool:
        """Tell whether a queue is paused."""
        return bool(self._memory[_PAUSED + queue])

    def set_unhandled(self, queue: int, there_are: bool) -> None:
        """Tell the consumer whether a queue has messages whose name nobody knew."""
        self._memory[_UNHANDLED + queue] = there_are

    def unhandled(self, queue: int) -> bool:
        """Tell whether a queue has messages whose name nobody knew."""
        return bool(self._memory[_UNHANDLED + queue])
