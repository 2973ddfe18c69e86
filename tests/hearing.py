"""What the receivers of signals are given while a block runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.dispatch import Signal


@contextmanager
def hears(
    *signals: Signal, raises: BaseException | None = None, to: Callable[..., object] | None = None
) -> Iterator[list[dict[str, Any]]]:
    """Yield the arguments of each sending of these signals, in their order. A receiver may pass them on, and raise."""
    told: list[dict[str, Any]] = []

    def receiver(**given: Any) -> None:
        told.append(given)
        if to:
            to(**given)
        if raises:
            raise raises

    for signal in signals:
        signal.connect(receiver)
    try:
        yield told
    finally:
        for signal in signals:
            signal.disconnect(receiver)
