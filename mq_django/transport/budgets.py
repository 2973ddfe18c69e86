"""Limit the time that the round trips of a page may take in total."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Budget:
    """The seconds that are left for round trips."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds


_budget: ContextVar[Budget | None] = ContextVar("mq_django_budget", default=None)


def budget_now() -> Budget | None:
    """Return the budget of the round trips that this thread or coroutine makes; None without a limit."""
    return _budget.get()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Limit the total time of all round trips of pooled connections inside, such as those of one page.

    A reply that has not arrived by then is ConnectionLost. Connecting has its own timeouts. The time between round
    trips does not count: a process that computes for long is no reason to take Redis for unreachable.
    """
    token = _budget.set(Budget(seconds))
    try:
        yield
    finally:
        _budget.reset(token)
