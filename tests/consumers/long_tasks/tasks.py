"""Tasks that run until a file exists."""

import asyncio
import time
from pathlib import Path
from typing import Any

from mq_django import RetryPolicy, task


@task
def wait_for(path: str) -> str:
    """Wait, and return the path."""
    while not Path(path).exists():
        time.sleep(0.01)
    return path


@task
async def await_for(path: str) -> str:
    """Wait on the event loop, and return the path."""
    while not await asyncio.to_thread(Path(path).exists):
        await asyncio.sleep(0.05)
    return path


@task(takes_context=True, retry=RetryPolicy(max_attempts=2))
def fail_first(context: Any, path: str) -> str:
    """Fail at the first attempt, and wait at the second."""
    if context.attempt == 1:
        raise ValueError("no")
    return str(wait_for.func(path))
