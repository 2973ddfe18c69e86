"""Handle each message as soon as it is published, as tests of other task backends expect it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mq_django.producers.sinks import publication_sent


@contextmanager
def handling(handle_ready: Callable[[], object]) -> Iterator[None]:
    """Call a function after each publish of a block, and at its end raise the first error of one.

    A publisher is not the place for errors of a handler: in production it never sees them.

    Args:
        handle_ready: handles what is ready, also what handlers publish meanwhile.
    """
    errors: list[Exception] = []
    is_active = False

    def handle(**_: Any) -> None:
        nonlocal is_active
        if is_active:
            return
        is_active = True
        try:
            handle_ready()
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)
        finally:
            is_active = False

    publication_sent.connect(handle)
    try:
        yield
    finally:
        publication_sent.disconnect(handle)
    if errors:
        raise errors[0]
