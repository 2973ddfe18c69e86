"""The deliveries of running batches, in the memory that a consumer shares with its supervisor."""

import mmap
import struct
from collections.abc import Sequence
from itertools import starmap

from mq_django.consumers.receipts import stored_entry

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
        receipt: how the receipt of a delivery is stored: an unused byte, the stream, the queue, the entry.
    """

    def __init__(self, memory: mmap.mmap, at: int, rows: int, size: int, receipt: struct.Struct) -> None:
        self.rows = rows
        self.size = size
        self._memory = memory
        self._at = at
        self._receipt = receipt

    def write(self, row: int, receipts: Sequence[tuple[int, int, bytes]]) -> None:
        """Write the receipts of a batch."""
        pack, at = self._receipt.pack, self._at + row * self.size * self._receipt.size
        packed = b"".join(
            [pack(0, stream, queue, stored_entry(entry)) for queue, stream, entry in receipts[: self.size]]
        )
        self._memory[at : at + len(packed)] = packed

    def read(self, row: int, count: int) -> list[tuple[int, int, bytes]]:
        """Return the receipts of a batch with so many deliveries."""
        if row >= self.rows or count > self.size:
            # Another process writes it meanwhile.
            return []
        at = self._at + row * self.size * self._receipt.size
        stored = self._memory[at : at + count * self._receipt.size]
        return list(starmap(_read, self._receipt.iter_unpack(stored)))


def _read(_: int, stream: int, queue: int, entry: bytes) -> tuple[int, int, bytes]:
    return queue, stream, entry.rstrip(b"\0")
