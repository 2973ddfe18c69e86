"""Limit the time that the round trips of a page may take in total."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Budget:
    """The seconds that are left for round trips."""

    def __init__(self, seconds: float, silent: set[int]) -> None:
        self.left = seconds
        #: The ids of the clients whose servers did not answer. They are not asked again.
        self.silent = silent


_budget: ContextVar[Budget | None] = ContextVar("mq_django_budget", default=None)


def budget_now() -> Budget | None:
    """Return the budget of the round trips that this thread or coroutine makes; None without a limit."""
    return _budget.get()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Limit the total time of all round trips of pooled connections inside, such as those of one page.

    A reply that has not arrived by then is ConnectionLost. A server that did not answer is not asked again, so that it
    does not use up the time of the others. Connecting has its own timeouts. The time between round trips does not
    count: a process that computes for long is no reason to take Redis for unreachable.
    """
    outer = _budget.get()
    token = _budget.set(Budget(seconds, outer.silent if outer else set()))
    try:
        yield
    finally:
        _budget.reset(token)
