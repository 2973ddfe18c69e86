"""Whether the present code runs inside a handler, in a thread or on an event loop."""

from contextvars import ContextVar

_runs_handlers: ContextVar[bool] = ContextVar("mq_django_runs_handlers", default=False)


def enter() -> None:
    """Note that all that runs in this context, and in copies of it, is part of a handler.

    A lane does this once, because each handler runs in a copy of its context: so it costs nothing a message.
    """
    _runs_handlers.set(True)


def is_in_handler() -> bool:
    """Return whether a handler runs here. One that starts a thread of its own is not known in it."""
    return _runs_handlers.get()
