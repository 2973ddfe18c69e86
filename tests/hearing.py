"""What the receivers of signals are given while a block runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.dispatch import Signal


@contextmanager
def hears(*signals: Signal, raises: BaseException | None = None) -> Iterator[list[dict[str, Any]]]:
    """Yield the arguments of each sending of these signals, in their order; a receiver may raise, too."""
    told: list[dict[str, Any]] = []

    def receiver(**given: Any) -> None:
        told.append(given)
        if raises:
            raise raises

    for signal in signals:
        signal.connect(receiver)
    try:
        yield told
    finally:
        for signal in signals:
            signal.disconnect(receiver)
