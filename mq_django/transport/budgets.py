"""Limit the time that the round trips of a page may take in total, and ask no server again that did not answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from mq_django.errors import ConnectionLost


class Budget:
    """The seconds that are left for round trips to one server, and why it cannot be reached, if that is known."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds
        self.error: ConnectionLost | None = None


class Budgets:
    """The budget of each server, because several are asked at once."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._budgets: dict[int, Budget] = {}

    def of(self, server: object) -> Budget:
        """Return the budget of a server, by its client."""
        return self._budgets.setdefault(id(server), Budget(self._seconds))


_budgets: ContextVar[Budgets | None] = ContextVar("mq_django_budgets", default=None)


def budgets_now() -> Budgets | None:
    """Return the budgets of the round trips that this thread or coroutine makes; None without a limit."""
    return _budgets.get()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Limit the total time of all round trips of pooled connections to a server inside, such as those of one page.

    A reply that has not arrived by then is ConnectionLost. Connecting has its own timeouts, so a server that was lost
    is not asked again. The time between round trips does not count: a process that computes for long is no reason to
    take Redis for unreachable.
    """
    token = _budgets.set(Budgets(seconds))
    try:
        yield
    finally:
        _budgets.reset(token)
