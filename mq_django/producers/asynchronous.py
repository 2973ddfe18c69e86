"""Make asynchronous versions of methods, and refuse to block an event loop."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def asynchronous(method: Callable[Parameters, Result]) -> Callable[Parameters, Coroutine[Any, Any, Result]]:
    """Return a coroutine function that runs the method with `sync_to_async`. Its name has a leading `a`."""

    @wraps(method)
    async def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return await sync_to_async(method, thread_sensitive=True)(*args, **kwargs)

    owner, _, name = method.__qualname__.rpartition(".")
    call.__name__, call.__qualname__ = f"a{name}", f"{owner}.a{name}"
    return call


def refuse_event_loop(instead: str) -> None:
    """Raise SynchronousOnlyOperation, with what to do instead, if this thread runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise SynchronousOnlyOperation(f"This thread runs an event loop{instead}")
