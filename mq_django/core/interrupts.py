"""The end of a running handler that is cancelled: what it can ask, and how it guards what must not be interrupted."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class HandlerCancelled(BaseException):
    """Raised in a running handler that is a function, when its message is cancelled.

    It is no Exception, so that `except Exception` does not keep it. In coroutine functions it is
    `asyncio.CancelledError` instead.
    """


class Interruptible(Protocol):
    """A place in which a handler runs."""

    #: Somebody has cancelled what runs here.
    cancelled: bool

    def guard(self) -> None:
        """Begin a block in which the handler is not interrupted. Blocks may be nested."""

    def unguard(self) -> None:
        """End a block; raise in the handler if it was cancelled meanwhile and this is the outermost block."""

    def seal(self) -> None:
        """Let nothing interrupt the handler from now on, not even its timeout."""


#: The place in which the current code runs. Set once for each place, not for each message.
place: ContextVar[Interruptible | None] = ContextVar("mq_django_place", default=None)


def is_cancelled() -> bool:
    """Return whether the running handler was cancelled: `Queue.cancel()` with `running=True`, the admin or `mq cancel`.

    It reads memory, so that a loop may call it at each step. False outside of handlers.

        for row in rows:
            if mq_django.is_cancelled():
                return
    """
    here = place.get()
    return here is not None and here.cancelled


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay the interrupt of a cancelled handler until the end of the block.

    For steps of which all or none must happen, such as a call of a payment provider and the note that it was made. It
    delays neither a timeout nor the end of the process. Outside of handlers it has no effect.

        with mq_django.uninterrupted():
            reference = provider.charge(order)
            order.paid_by(reference)

    Raises:
        HandlerCancelled: at the end of the block, when the handler was cancelled meanwhile. In a coroutine function it
            is asyncio.CancelledError.
    """
    here = place.get()
    if here is None:
        yield
        return
    here.guard()
    try:
        yield
    finally:
        here.unguard()


def seal() -> None:
    """Let nothing interrupt the running handler from now on. Outside of handlers it has no effect.

    What has interrupted it before is raised here.
    """
    here = place.get()
    if here is not None:
        here.seal()
