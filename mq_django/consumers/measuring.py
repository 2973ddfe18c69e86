"""What the processes of `runconsumer` report to a measurer. Without a measurer nothing is measured."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from mq_django.core.logs import get_logger
from mq_django.stores.base import Settlement

logger = get_logger(__name__)


class ConsumerMeasurer(Protocol):
    """Measures a consumer process. Several threads call it."""

    def fetched(self, queue: str, messages: int, seconds: float | None) -> None:
        """Note a fetch that returned messages, and how long its round trip took; None: it waited for messages."""

    def woken(self, queue: str, seconds: float) -> None:
        """Note how long a ready message took until a read that was waiting for it had returned it."""

    def settled(self, queue: str, settlements: Sequence[Settlement], seconds: float) -> None:
        """Note a batch of outcomes, and how long its round trip took."""


class SupervisorMeasurer(Protocol):
    """Measures a supervisor. Several threads call it."""

    def promoted(self, queue: str, seconds: float) -> None:
        """Note how long after its due time a message was made ready."""

    def lost_redis(self) -> None:
        """Note that a server of Redis can no longer be reached."""


class Measurers:
    """The measurers of this process. They are set before its services are made."""

    consumer: ClassVar[ConsumerMeasurer | None] = None
    supervisor: ClassVar[SupervisorMeasurer | None] = None
    #: An error of a measurer was logged.
    _has_failed: ClassVar[bool] = False

    @classmethod
    def report(cls, note: Callable[..., None], *what: Any) -> None:
        """Call a method of a measurer. Its errors do not affect messages; the first is logged."""
        try:
            note(*what)
        except Exception:
            if not cls._has_failed:
                cls._has_failed = True
                logger.exception("Metrics are incomplete from now on")
