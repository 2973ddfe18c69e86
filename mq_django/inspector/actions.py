"""Actions on a queue and on selected messages. All are idempotent."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from mq_django.conf import get_config
from mq_django.errors import StoreError
from mq_django.stores import open_store
from mq_django.stores.control import Control
from mq_django.stores.dead_letter_queue import BATCH
from mq_django.transport.connections import open_wire

#: The places that purge() deletes from. Dead letters are deleted by jobs.
Purgeable = Literal["ready", "delayed", "unhandled", "parked"]

#: Seconds that one call may take, because a page waits for it.
SECONDS = 1.0


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The result of an action, as far as known."""

    done: int = 0
    #: No longer existed.
    missing: int = 0
    #: Could not be redriven, because they are not valid messages.
    refused: int = 0
    #: The time limit was reached, and messages are left.
    more: bool = False
    #: The error that ended the action. One more batch may have been processed than is counted.
    error: StoreError | None = None
    #: Some of the affected messages, for the log.
    examples: list[str] = field(default_factory=list)


def cancel(name: str, members: Sequence[bytes]) -> Outcome:
    """Cancel waiting messages, by their ids or by `u:` + their unique keys."""
    config, outcome = get_config().queue(name), Outcome()
    store = open_store(config, open_wire("inspect", config.connection))
    for member in members:
        try:
            cancelled = bool(store.cancel(member))
        except StoreError as error:
            outcome.error = error
            break
        outcome.done += bool(cancelled)
        outcome.missing += not cancelled
    return outcome


def pause(name: str) -> bool:
    """Pause a queue, and return whether it was running before.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
    """
    return _control(name).pause()


def resume(name: str) -> bool:
    """Resume a queue, and return whether it was paused before."""
    return _control(name).resume()


def _control(name: str) -> Control:
    config = get_config().queue(name)
    return Control(config, open_wire("inspect", config.connection))


def purge(name: str, place: Purgeable, *, at_most: int, seconds: float = SECONDS) -> Outcome:
    """Delete the messages of one place, the first ones first, for up to `seconds`.

    It ends after about `at_most` messages, because more may be published meanwhile.
    """
    config, outcome = get_config().queue(name), Outcome()
    store = open_store(config, open_wire("inspect", config.connection))
    deadline = time.monotonic() + seconds
    while outcome.done < at_most:
        try:
            deleted = store.purge(limit=min(BATCH, at_most - outcome.done), place=place)
        except StoreError as error:
            outcome.error = error
            break
        outcome.done += deleted
        if not deleted:
            break
        if time.monotonic() >= deadline:
            outcome.more = True
            break
    return outcome
