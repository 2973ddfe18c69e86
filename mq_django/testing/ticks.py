"""The messages that schedules publish, and what their handlers publish, while the time of a test moves.

A schedule goes on for ever, and so may the messages that it leads to. Their retries and delays do not move the time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mq_django.core.messages import Message
from mq_django.producers.sinks import publication_sent
from mq_django.signals import handler_finished, handler_started


class _Ticks:
    """The ids of messages that come from ticks."""

    ids: set[str] = set()
    #: A tick fires, or the handler of a message that comes from one runs.
    is_active = False
    #: How many blocks of noted() run.
    depth = 0


def ids() -> set[str]:
    """Return the ids of the messages that come from ticks."""
    return _Ticks.ids


@contextmanager
def noted() -> Iterator[None]:
    """Note the messages that come from ticks while a block runs."""
    if not _Ticks.depth:
        _Ticks.ids = set()
        publication_sent.connect(_on_sent)
        handler_started.connect(_on_started)
        handler_finished.connect(_on_finished)
    _Ticks.depth += 1
    try:
        yield
    finally:
        _Ticks.depth -= 1
        if not _Ticks.depth:
            publication_sent.disconnect(_on_sent)
            handler_started.disconnect(_on_started)
            handler_finished.disconnect(_on_finished)


@contextmanager
def firing() -> Iterator[None]:
    """Let what is published while a block runs count as ticks."""
    _Ticks.is_active = True
    try:
        yield
    finally:
        _Ticks.is_active = False


def _on_sent(message_id: str, **_: Any) -> None:
    if _Ticks.is_active:
        _Ticks.ids.add(message_id)


def _on_started(message: Message, **_: Any) -> None:
    _Ticks.is_active = message.id in _Ticks.ids


def _on_finished(**_: Any) -> None:
    _Ticks.is_active = False
