"""The deliveries of running batches, in the memory that a consumer shares with its supervisor."""

import mmap
import struct
from collections.abc import Iterable
from itertools import islice, starmap

from mq_django.consumers.receipts import MAX_ENTRY, stored_entry
from mq_django.consumers.result_ring import HANDLED, RESULT

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
