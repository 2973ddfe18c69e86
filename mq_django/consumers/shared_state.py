"""The state of a consumer in memory that it shares with its supervisor.

A process that is suspended, or whose handler holds the GIL, cannot answer requests. Its shared state still shows what
it runs, since when, and what it has handled but not yet settled. Each part is written by one side only.
"""

import itertools
import math
import mmap
import os
import struct
import tempfile
import time
from collections.abc import Collection, Iterable
from hashlib import blake2b
from importlib import import_module
from importlib.util import find_spec
from itertools import islice, starmap
from typing import Any, NamedTuple, Self

# The receipts of deliveries, as the shared state of a consumer has them.

#: Bytes of the longest entry that is stored: the largest stream id, or an id of RSMQ with its count. If it is longer,
#: the digest is stored.
MAX_ENTRY = 44
_DIGEST = b"blake2b:"


def stored_entry(entry: bytes) -> bytes:
    """Return an entry as the shared state stores it: itself, or its digest if it is too long."""
    return entry if len(entry) <= MAX_ENTRY else _DIGEST + blake2b(entry, digest_size=16).hexdigest().encode()


class Receipt(NamedTuple):
    """The id of a delivery: the number of its queue, the number of its stream, and the entry as stored here."""

    queue: int
    stream: int
    entry: bytes

    @classmethod
    def of(cls, queue: int, stream: int, entry: bytes) -> Self:
        """Return the receipt of a delivery."""
        return cls(queue, stream, stored_entry(entry))

    @property
    def is_digest(self) -> bool:
        """Return whether the entry is a digest, which Redis does not know."""
        return self.entry.startswith(_DIGEST)


class Running(NamedTuple):
    """A delivery that a slot runs. Times are seconds on the monotonic clock, which all processes of a machine share."""

    receipt: Receipt
    since: float
    #: When its handler must have ended; infinity without a timeout.
    deadline: float
    #: The number of the slot: threads come before coroutines.
    slot: int = 0


# How the latest deliveries of a consumer have ended, in the memory that it shares with its supervisor.

#: A result, also of the rows of the table of batches: the state, the stream, the queue, the entry.
RESULT = struct.Struct(f"<BBH{MAX_ENTRY}s")
_pack = RESULT.pack_into
#: RETURNED: handled, and its value or its last chunks are only in the process: without it, it must not be acked.
HANDLED, FAILED, RETURNED = 1, 2, 3


class ResultRing:
    """The latest results, in slots that are used in turn.

    Args:
        memory: that of the shared state.
        at: where these slots begin.
        size: how many there are.
    """

    def __init__(self, memory: mmap.mmap, at: int, size: int) -> None:
        self._memory = memory
        self._offsets = range(at, at + size * RESULT.size, RESULT.size)
        #: Where the next results are. Threads share it: each slot is taken by one.
        self._next = itertools.cycle(self._offsets)

    def add(self, state: int, queue: int, stream: int, entry: bytes) -> None:
        """Note that a delivery was HANDLED, FAILED or RETURNED."""
        if len(entry) > MAX_ENTRY:
            entry = stored_entry(entry)
        _pack(self._memory, next(self._next), state, stream, queue, entry)

    def add_all(self, results: bytes) -> None:
        """Note several results, which are packed already."""
        size = RESULT.size
        offsets = list(itertools.islice(self._next, len(results) // size))
        start = 0
        while start < len(offsets):
            # Other threads may take slots in between, and the last slot is followed by the first.
            end, first = len(offsets), offsets[start]
            if offsets[-1] - first != (end - start - 1) * size:
                end = next((n for n in range(start + 1, end) if offsets[n] != first + (n - start) * size), end)
            self._memory[first : first + (end - start) * size] = results[start * size : end * size]
            start = end

    def read(self) -> dict[Receipt, int]:
        """Return how the latest deliveries ended. RETURNED holds, whatever else is noted of the same delivery."""
        found = dict[Receipt, int]()
        for offset in self._offsets:
            state, stream, queue, entry = RESULT.unpack_from(self._memory, offset)
            if state:
                receipt = Receipt(queue, stream, entry.rstrip(b"\0"))
                if found.get(receipt) != RETURNED:
                    found[receipt] = state
        return found


# The deliveries of running batches, in the memory that a consumer shares with its supervisor.

#: The most batches that coroutine functions handle at once in a process. Threads have one each.
ASYNC_BATCHES = 16

#: How many batches may run, how many messages each may have, and how many results are kept.
SHAPE = struct.Struct("<III")


class BatchSlots:
    """A table with a row for each batch that may run, and in a row the receipts of its deliveries.

    Args:
        memory: that of the shared state.
        at: where the table begins.
        rows: how many batches may run at once.
        size: how many messages each may have.
    """

    def __init__(self, memory: mmap.mmap, at: int, rows: int, size: int) -> None:
        self.rows = rows
        self.size = size
        self._memory = memory
        self._at = at

    def write(self, row: int, receipts: Iterable[tuple[int, int, bytes]]) -> int:
        """Write the receipts of a batch, and return how many these are."""
        pack, longest, at = RESULT.pack, MAX_ENTRY, self._at + row * self.size * RESULT.size
        # Each is packed as the result that it will mostly be: see packed().
        packed = b"".join(
            [
                pack(HANDLED, stream, queue, entry if len(entry) <= longest else stored_entry(entry))
                for queue, stream, entry in islice(receipts, self.size)
            ]
        )
        self._memory[at : at + len(packed)] = packed
        return len(packed) // RESULT.size

    def packed(self, row: int, count: int) -> bytes:
        """Return the receipts of a batch with so many deliveries as results that say HANDLED."""
        at = self._at + row * self.size * RESULT.size
        return self._memory[at : at + count * RESULT.size]

    def read(self, row: int, count: int) -> list[tuple[int, int, bytes]]:
        """Return the receipts of a batch with so many deliveries."""
        if row >= self.rows or count > self.size:
            # Another process writes it meanwhile.
            return []
        return list(starmap(_read, RESULT.iter_unpack(self.packed(row, count))))


def _read(_: int, stream: int, queue: int, entry: bytes) -> tuple[int, int, bytes]:
    return queue, stream, entry.rstrip(b"\0")


# Files in memory, for sharing with child processes.

#: Not on Windows, where this module is imported but not used.
_fcntl: Any = import_module("fcntl") if find_spec("fcntl") else None


def new_file() -> int:
    """Return the descriptor of an empty file without a name: in memory on Linux, elsewhere in the temporary folder.

    Raises:
        OSError: out of memory or file descriptors.
    """
    if hasattr(os, "memfd_create"):
        return os.memfd_create("mq_django", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    fd, path = tempfile.mkstemp(prefix="mq-")
    os.unlink(path)  # noqa: PTH108 - the file lives as long as a process has it open
    return fd


def allocate(size: int) -> int:
    """Return the descriptor of a new file of `size` zero bytes, all of them allocated.

    On Linux its size is sealed, because access to a truncated page kills a process with SIGBUS.

    Raises:
        OSError: out of memory or file descriptors.
    """
    fd = new_file()
    try:
        zeros = memoryview(bytes(size))
        while zeros:
            zeros = zeros[os.write(fd, zeros) :]
        if hasattr(os, "memfd_create"):
            _fcntl.fcntl(fd, _fcntl.F_ADD_SEALS, _fcntl.F_SEAL_SHRINK | _fcntl.F_SEAL_GROW | _fcntl.F_SEAL_SEAL)
    except BaseException:
        os.close(fd)
        raise
    return fd


#: How many latest results are kept, including settled ones: more than a consumer ever has unsettled. Each batch that
#: may run adds its size.
RING = 4096
#: The most queues and partitions of one supervisor, and of them those with a thread and a connection of their own in
#: every consumer, which takes about 130 KiB each.
MAX_QUEUES, MAX_FETCHERS = 1024, 256
#: Seconds past its timeout after which a handler counts as not interruptible.
OVERTIME = 1.0
#: The most bytes of a consumer's id.
MAX_NAME = 128

#: BATCH: the slot runs several deliveries, which are in a table.
IDLE, RUNNING, BATCH = 0, 1, 2
_ASKED, _OBEYED = 1, 2

_SLOT = struct.Struct(f"<BBHdd{MAX_ENTRY}s")
# Bound once: they are used for each delivery.
_SLOT_SIZE, _pack_slot, _monotonic = _SLOT.size, _SLOT.pack_into, time.monotonic
_TICKS = struct.Struct("<Q")
_COUNTS = struct.Struct("<QQQ")
_COUNT = struct.Struct("<I")
# Layout: ticks, flags, the shape of the rest, the arrays by queue, the quarantine's name, slots, results, batches.
_LEAVING, _WANTS_QUARANTINE, _FAST_STOP, _QUIET = 8, 9, 10, 11
_SHAPE = 16
_HELD_UNTIL = 64
_HELD_SINCE = _HELD_UNTIL + 8 * MAX_QUEUES
_PAUSED = _HELD_SINCE + 8 * MAX_QUEUES
_UNHANDLED = _PAUSED + MAX_QUEUES
_COUNTED = _UNHANDLED + MAX_QUEUES
_REQUESTS = _COUNTED + MAX_QUEUES * _COUNTS.size
_QUARANTINE = _REQUESTS + MAX_QUEUES
_PREFERRED = _QUARANTINE + MAX_NAME
_SLOTS = _PREFERRED + MAX_QUEUES


class SharedState:
    """The memory that a consumer shares with its supervisor."""

    def __init__(self, fd: int, slots: int) -> None:
        self.fd = fd
        self.slots = slots
        # The whole file, whose size depends on the code that the supervisor has loaded.
        self._memory = mmap.mmap(fd, 0)
        rows, size, ring = SHAPE.unpack_from(self._memory, _SHAPE)
        at = _SLOTS + slots * _SLOT.size
        self._results = ResultRing(self._memory, at, ring)
        #: Notes that a delivery was HANDLED, FAILED or RETURNED; it may still be unsettled. See ResultRing.add().
        self.ended = self._results.add
        self.batches = BatchSlots(self._memory, at + ring * RESULT.size, rows, size)
        # Aligned doubles, so that each is read and written atomically.
        self._until = memoryview(self._memory)[_HELD_UNTIL:_HELD_SINCE].cast("d")
        self._since = memoryview(self._memory)[_HELD_SINCE:_PAUSED].cast("d")
        self._ticks = 0

    @classmethod
    def create(cls, slots: int, *, held: bool = True, batches: int = 0, batch: int = 0) -> "SharedState":
        """Create an empty shared state whose `fd` a child process can inherit.

        With `held` the consumer is never taken for dead; else it may fetch only before the time set by hold_until().
        `batches` calls may run at once that have up to `batch` messages each.

        Raises:
            OSError: out of memory or file descriptors.
        """
        ring = RING + batches * batch
        fd = allocate(_SLOTS + slots * _SLOT.size + (ring + batches * batch) * RESULT.size)
        os.pwrite(fd, SHAPE.pack(batches, batch, ring), _SHAPE)
        shared_state = cls(fd, slots)
        for queue in range(MAX_QUEUES if held else 0):
            shared_state.hold_until(queue, math.inf)
        return shared_state

    def close(self) -> None:
        """Release the memory."""
        self._until.release()
        self._since.release()
        self._memory.close()
        os.close(self.fd)

    def run(self, slot: int, queue: int, stream: int, entry: bytes, since: float, deadline: float = math.inf) -> None:
        """Note that a slot has been running a delivery since a time on the monotonic clock."""
        self.begin(slot, queue, stream, entry, since, deadline, 0.0)

    def begin(
        self, slot: int, queue: int, stream: int, entry: bytes, since: float, deadline: float, read_at: float
    ) -> bool:
        """Note that a slot has been running a delivery since a time, and return whether it may run: see may_run()."""
        at, memory = _SLOTS + slot * _SLOT_SIZE, self._memory
        if len(entry) > MAX_ENTRY:
            entry = stored_entry(entry)
        # Fields are packed one by one, and the process may be suspended in between: RUNNING is written last.
        _pack_slot(memory, at, IDLE, stream, queue, since, deadline, entry)
        memory[at] = RUNNING
        # As may_run(): a call of it for each delivery would take a twentieth of its time. The clock is read again,
        # because this thread may have been suspended.
        if _monotonic() > self._until[queue] or memory[_PAUSED + queue]:
            return False
        return not read_at or read_at >= self._since[queue]

    def run_batch(
        self, slot: int, row: int, receipts: Iterable[tuple[int, int, bytes]], since: float, deadline: float
    ) -> None:
        """Note that a slot has been running several deliveries since a time; their receipts are in a row of a table."""
        at = _SLOTS + slot * _SLOT.size
        self._memory[at] = IDLE
        count = self.batches.write(row, receipts)
        _SLOT.pack_into(self._memory, at, IDLE, 0, row, since, deadline, _COUNT.pack(count))
        self._memory[at] = BATCH

    def largest_batch(self) -> int:
        """Return how many messages a batch may have: 1 if the supervisor has loaded code without batches."""
        return max(1, self.batches.size)

    def idle(self, slot: int) -> None:
        """Note that a slot is idle."""
        self._memory[_SLOTS + slot * _SLOT.size] = IDLE

    def since(self, slot: int) -> float:
        """Return since when a slot runs what it runs, or has run what it ran last, on the monotonic clock."""
        return float(_SLOT.unpack_from(self._memory, _SLOTS + slot * _SLOT.size)[3])

    def batch_handled(self, row: int, count: int) -> None:
        """Note that all the deliveries of a row were HANDLED; they may still be unsettled."""
        self._results.add_all(self.batches.packed(row, count))

    def tick(self) -> None:
        """Show that the consumer's main thread runs."""
        self._ticks += 1
        _TICKS.pack_into(self._memory, 0, self._ticks)

    def leave(self) -> None:
        """Report that the consumer stops when its running handlers have ended: its replacement may start."""
        self._memory[_LEAVING] = 1

    def want_quarantine(self) -> None:
        """Report that the consumer holds a message that must run alone."""
        self._memory[_WANTS_QUARANTINE] = 1

    def hold_until(self, queue: int, moment: float, *, since: float = 0.0) -> None:
        """Set the time until which no supervisor takes the consumer for dead, by the latest heartbeat.

        What it has read before `since` is not its own any more.
        """
        # In this order: who reads the new time reads this one, too.
        self._since[queue] = since
        self._until[queue] = moment

    def set_paused(self, queue: int, paused: bool) -> None:
        """Set whether a queue is paused."""
        self._memory[_PAUSED + queue] = paused

    def set_preferred(self, queue: int, preferred: bool) -> None:
        """Set whether this consumer prefers a partition: see `mq_django.core.partitions.preferred()`."""
        self._memory[_PREFERRED + queue] = preferred

    def set_unhandled(self, queue: int, there_are: bool) -> None:
        """Set whether a queue has unhandled messages."""
        self._memory[_UNHANDLED + queue] = there_are

    def note_requests(self, queue: int) -> None:
        """Report that there may be new requests in a queue: to cancel running messages, or for stacks."""
        self._memory[_REQUESTS + queue] = (self._memory[_REQUESTS + queue] + 1) % 256

    def requests(self, queue: int) -> int:
        """Return a number that changes when there may be new requests in a queue."""
        return self._memory[_REQUESTS + queue]

    def stop_fast(self) -> None:
        """Ask the consumer, which is stopping, to hand back its running messages at once."""
        self._memory[_FAST_STOP] = 1

    def quiet(self) -> None:
        """Ask the consumer to stop fetching and to finish its messages. This cannot be undone."""
        if not self._memory[_QUIET]:
            self._memory[_QUIET] = _ASKED

    def mark_quiet(self) -> None:
        """Report that the consumer fetches no more."""
        self._memory[_QUIET] = _OBEYED

    def count(self, queue: int, handled: int, failed: int, micros: int) -> None:
        """Report how many deliveries of a queue were handled so far, how many have failed, and their handling time."""
        _COUNTS.pack_into(self._memory, _COUNTED + queue * _COUNTS.size, handled, failed, micros)

    def set_quarantine(self, consumer: str) -> None:
        """Set the name of the quarantine, which runs messages alone; "" when there is none."""
        self._memory[_QUARANTINE : _QUARANTINE + MAX_NAME] = consumer.encode().ljust(MAX_NAME, b"\0")

    def running(self) -> list[Running]:
        """Return the deliveries that the slots run. One that has just ended may be included."""
        # A slot may be written meanwhile. Two equal reads are consistent.
        first, second = self._slots(), self._slots()
        return [item for one, other in zip(first, second, strict=True) if one == other for item in one]

    def _slots(self) -> list[list[Running]]:
        return [self._slot(slot) for slot in range(self.slots)]

    def _slot(self, slot: int) -> list[Running]:
        state, stream, queue, since, deadline, entry = _SLOT.unpack_from(self._memory, _SLOTS + slot * _SLOT.size)
        if state == RUNNING:
            return [Running(Receipt(queue, stream, entry.rstrip(b"\0")), since, deadline, slot)]
        if state != BATCH:
            return []
        receipts = self.batches.read(queue, _COUNT.unpack_from(entry)[0])
        return [Running(Receipt(*receipt), since, deadline, slot) for receipt in receipts]

    def results(self) -> dict[Receipt, int]:
        """Return how the latest deliveries ended, including settled ones: HANDLED, FAILED or RETURNED."""
        return self._results.read()

    def handled(self, queue: int) -> set[tuple[int, bytes]]:
        """Return the stream and entry of the latest handled deliveries of a queue, including settled ones."""
        results = self.results().items()
        return {
            (receipt.stream, receipt.entry) for receipt, state in results if state == HANDLED and receipt[0] == queue
        }

    def together(self) -> Collection[Receipt]:
        """Return the running deliveries that a handler got in one call with others."""
        slots = [self._slot(slot) for slot in range(self.slots)]
        return {item.receipt for slot in slots if len(slot) > 1 for item in slot}

    def late(self, now: float) -> Collection[Receipt]:
        """Return the running deliveries that are past their deadline."""
        return {item.receipt for item in self.running() if now > item.deadline}

    def ticks(self) -> int:
        """Return a number that increases while the consumer's main thread runs."""
        return int(_TICKS.unpack_from(self._memory, 0)[0])

    def is_stopping_fast(self) -> bool:
        """Return whether the consumer must hand back its running messages at once."""
        return bool(self._memory[_FAST_STOP])

    def must_become_quiet(self) -> bool:
        """Return whether the consumer must fetch no more, and still fetches."""
        return self._memory[_QUIET] == _ASKED

    def is_quiet(self) -> bool:
        """Return whether the consumer was asked to fetch no more, and has stopped fetching."""
        return self._memory[_QUIET] == _OBEYED

    def counted(self, queue: int) -> tuple[int, int, int]:
        """Return how many deliveries of a queue were handled, how many have failed, and their time in microseconds."""
        handled, failed, micros = _COUNTS.unpack_from(self._memory, _COUNTED + queue * _COUNTS.size)
        return handled, failed, micros

    def leaving(self) -> bool:
        """Return whether the consumer is about to stop."""
        return bool(self._memory[_LEAVING])

    def wants_quarantine(self) -> bool:
        """Return whether the consumer has asked for a quarantine since the last call."""
        is_asked = bool(self._memory[_WANTS_QUARANTINE])
        if is_asked:
            self._memory[_WANTS_QUARANTINE] = 0
        return is_asked

    def quarantine(self) -> str:
        """Return the name of the quarantine, or ""."""
        return bytes(self._memory[_QUARANTINE : _QUARANTINE + MAX_NAME]).rstrip(b"\0").decode()

    def held_until(self, queue: int) -> float:
        """Return the time on the monotonic clock until which no supervisor takes the consumer for dead."""
        return self._until[queue]

    def holds(self, queue: int, read_at: float) -> bool:
        """Return whether the consumer holds a delivery now that it has read at a time; 0: it was not read."""
        return time.monotonic() <= self._until[queue] and (not read_at or read_at >= self._since[queue])

    def may_run(self, queue: int, read_at: float) -> bool:
        """Return whether a delivery may start: the consumer holds it, and its queue is not paused."""
        # Not by holds(): it is asked for each message.
        if time.monotonic() > self._until[queue] or self._memory[_PAUSED + queue]:
            return False
        return not read_at or read_at >= self._since[queue]

    def paused(self, queue: int) -> bool:
        """Return whether a queue is paused."""
        return bool(self._memory[_PAUSED + queue])

    def prefers(self, queue: int) -> bool:
        """Return whether this consumer prefers a partition."""
        return bool(self._memory[_PREFERRED + queue])

    def unhandled(self, queue: int) -> bool:
        """Return whether a queue has unhandled messages."""
        return bool(self._memory[_UNHANDLED + queue])
