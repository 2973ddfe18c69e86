"""What people do to a queue and to chosen messages. Each can be done again without harm."""

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

#: A place whose messages can all be deleted; for dead letters there are jobs.
Purgeable = Literal["ready", "delayed", "unhandled", "parked"]

#: Seconds that one call may take for many messages: who asks for a page waits no longer.
SECONDS = 1.0


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What an action did, as far as it is known."""

    done: int = 0
    #: Were gone before: somebody else was quicker, or they are no longer there.
    missing: int = 0
    #: Cannot be redriven, because they are no messages.
    refused: int = 0
    #: There is more to do than there was time for.
    more: bool = False
    #: What ended it early; one more batch may have been done than is counted.
    error: StoreError | None = None
    #: Some of what it was done to, for the log.
    examples: list[str] = field(default_factory=list)


def cancel(name: str, members: Sequence[bytes]) -> Outcome:
    """Remove messages that wait, by id or by `u:` and their unique key."""
    store, outcome = open_store(get_config().queue(name), open_wire("inspect")), Outcome()
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
    """Let no handler of a queue start any more; tell whether it was running before.

    Raises:
        UnknownQueue: it is not configured.
        StoreError: Redis is away.
    """
    return Control(get_config().queue(name), open_wire("inspect")).pause()


def resume(name: str) -> bool:
    """Let handlers of a queue start again; tell whether it was paused before."""
    return Control(get_config().queue(name), open_wire("inspect")).resume()


def purge(name: str, place: Purgeable, *, at_most: int, seconds: float = SECONDS) -> Outcome:
    """Delete what is ready or waits in one place, those first in line first, as some seconds allow.

    With what is published meanwhile it would have no end, so it ends after about `at_most`.
    """
    store, outcome = open_store(get_config().queue(name), open_wire("inspect")), Outcome()
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
