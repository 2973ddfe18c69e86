"""The places in the shared state of the batches that coroutine functions handle."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mq_django.consumers.batch_slots import ASYNC_BATCHES


class BatchRows:
    """Rows of the table of batches, which limit how many coroutine functions with batches run at once.

    Args:
        first: the number of the first of them. Those before belong to threads.
    """

    def __init__(self, first: int) -> None:
        self._free: asyncio.Queue[int] = asyncio.Queue()
        for row in range(first, first + ASYNC_BATCHES):
            self._free.put_nowait(row)

    @asynccontextmanager
    async def free(self) -> AsyncIterator[int]:
        """Wait for a free row, and occupy it for the time of a block."""
        row = await self._free.get()
        try:
            yield row
        finally:
            self._free.put_nowait(row)
