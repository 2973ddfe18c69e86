"""How the latest deliveries of a consumer have ended, in the memory that it shares with its supervisor."""

import itertools
import mmap
import struct

from mq_django.consumers.receipts import MAX_ENTRY, Receipt, stored_entry

#: A result, also of the rows of the table of batches: the state, the stream, the queue, the entry.
RESULT = struct.Struct(f"<BBH{MAX_ENTRY}s")
_pack = RESULT.pack_into
#: RETURNED: handled, and its value is only in the process: without it, it must not be acked.
HANDLED, FAILED, RETURNED = 1, 2, 3


class ResultRing:
    """The latest results, in places that are used in turn.

    Args:
        memory: that of the shared state.
        at: where the places begin.
        size: how many there are.
    """

    def __init__(self, memory: mmap.mmap, at: int, size: int) -> None:
        self._memory = memory
        self._places = range(at, at + size * RESULT.size, RESULT.size)
        #: Where the next results are. Threads share it: each place is taken by one.
        self._next = itertools.cycle(self._places)

    def add(self, state: int, queue: int, stream: int, entry: bytes) -> None:
        """Note that a delivery was HANDLED, FAILED or RETURNED."""
        if len(entry) > MAX_ENTRY:
            entry = stored_entry(entry)
        _pack(self._memory, next(self._next), state, stream, queue, entry)

    def add_all(self, results: bytes) -> None:
        """Note several results, which are packed already."""
        size = RESULT.size
        places = list(itertools.islice(self._next, len(results) // size))
        start = 0
        while start < len(places):
            # Other threads may take places in between, and the last place is followed by the first.
            end, first = len(places), places[start]
            if places[-1] - first != (end - start - 1) * size:
                end = next((n for n in range(start + 1, end) if places[n] != first + (n - start) * size), end)
            self._memory[first : first + (end - start) * size] = results[start * size : end * size]
            start = end

    def read(self) -> dict[Receipt, int]:
        """Return how the latest deliveries ended."""
        found = {}
        for place in self._places:
            state, stream, queue, entry = RESULT.unpack_from(self._memory, place)
            if state:
                found[Receipt(queue, stream, entry.rstrip(b"\0"))] = state
        return found
