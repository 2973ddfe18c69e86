"""What people do to messages: redrive, delete, cancel. Each can be done again without harm."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from mq_django.conf import RsmqConfig, get_config
from mq_django.core import rsmq
from mq_django.core.ids import new_id
from mq_django.core.jsontext import dumps, loads
from mq_django.core.redaction import REDACTED, is_redacted, redact, restore
from mq_django.errors import InvalidMessage, MessageTooLarge, StoreError
from mq_django.inspector import dead_letters
from mq_django.inspector.scan import NOTHING, Filter
from mq_django.stores import open_store
from mq_django.stores.control import Control
from mq_django.stores.dead import BATCH, DeadLetters, is_entry
from mq_django.stores.rsmq import RsmqStore
from mq_django.stores.waiting import WaitingRoom
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled

#: A place whose messages can all be deleted; dead letters have `delete_all`.
Purgeable = Literal["ready", "delayed", "unhandled"]

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
    #: There is more to do from after this entry on; None when all is done.
    resume_after: str | None = None
    #: What ended it early; one more batch may have been done than is counted.
    error: StoreError | None = None
    #: Some of what it was done to, for the log.
    examples: list[str] = field(default_factory=list)


def redrive(name: str, entries: Sequence[str]) -> Outcome:
    """Put dead letters back into their queue, each at its first attempt.

    Raises:
        UnknownQueue: it is not configured.
    """
    return _each(_dead(name).redrive, entries)


def delete(name: str, entries: Sequence[str]) -> Outcome:
    """Delete dead letters for good."""
    return _each(_dead(name).delete, entries)


def redrive_all(
    name: str, *, until: str, after: str = "", seconds: float = SECONDS, wanted: Filter = NOTHING
) -> Outcome:
    """Put the dead letters up to the entry `until` that are wanted back into their queue, as some seconds allow.

    What is buried meanwhile is newer than `until`, so that a message which fails again is redriven only once.
    """
    return _all(name, _dead(name).redrive, wanted, until=until, after=after, seconds=seconds)


def delete_all(
    name: str, *, until: str, after: str = "", seconds: float = SECONDS, wanted: Filter = NOTHING
) -> Outcome:
    """Delete the dead letters up to the entry `until` that are wanted for good, as some seconds allow."""
    return _all(name, _dead(name).delete, wanted, until=until, after=after, seconds=seconds)


def resubmit(name: str, entry: str, written: str) -> str | None:
    """Put a dead letter back into its queue with other data, as a new message; return its id, or None: it is gone.

    `written` is JSON text. Where it still says what stands for a secret, the secret stays as it was.

    Raises:
        DecodeError: it is not JSON.
        InvalidMessage: it is too long for the queue, or has what stands for a secret in a place where none was.
        StoreError: Redis is away.
    """
    config, letters = get_config().queue(name), _dead(name)
    letter = letters.get(entry)
    if letter is None or letter.message is None:
        return None
    original = letter.message.data
    data = restore(loads(written.encode(errors="surrogatepass")), redact(original), original)
    if is_redacted(data) and not is_redacted(original):
        raise InvalidMessage(f"{REDACTED} stands for a secret, and it is not known for which one here")
    text = dumps(data)
    if len(text) > config.max_size:
        raise MessageTooLarge(f"{len(text)} bytes are more than the {config.max_size} that the queue takes")
    message_id = rsmq.new_id() if isinstance(config, RsmqConfig) else new_id()
    done = letters.resubmit(entry, message_id=message_id, data_text=text)
    return message_id if done == "RESUBMITTED" else None


def cancel(name: str, members: Sequence[bytes]) -> Outcome:
    """Remove messages that wait, by id or by `u:` and their unique key."""
    config, wire = get_config().queue(name), Pooled(get_client("inspect"))
    room: WaitingRoom | RsmqStore
    room = RsmqStore(config, wire) if isinstance(config, RsmqConfig) else WaitingRoom(config, wire)
    outcome = Outcome()
    for member in members:
        try:
            cancelled = bool(room.cancel(member))
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
    return Control(get_config().queue(name), Pooled(get_client("inspect"))).pause()


def resume(name: str) -> bool:
    """Let handlers of a queue start again; tell whether it was paused before."""
    return Control(get_config().queue(name), Pooled(get_client("inspect"))).resume()


def purge(name: str, place: Purgeable, *, at_most: int, seconds: float = SECONDS) -> Outcome:
    """Delete what is ready or waits in one place, those first in line first, as some seconds allow.

    With what is published meanwhile it would have no end, so it ends after about `at_most`.
    """
    store, outcome = open_store(get_config().queue(name), Pooled(get_client("inspect"))), Outcome()
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
            outcome.resume_after = ""
            break
    return outcome


def _dead(name: str) -> DeadLetters:
    return DeadLetters(get_config().queue(name), Pooled(get_client("inspect")))


def _each(act: Callable[[Sequence[str]], list[str]], entries: Sequence[str]) -> Outcome:
    wanted = list(dict.fromkeys(entries))
    outcome = Outcome(missing=sum(not is_entry(entry) for entry in wanted))
    known = [entry for entry in wanted if is_entry(entry)]
    for at in range(0, len(known), BATCH):
        if not _step(act, known[at : at + BATCH], outcome):
            break
    return outcome


def _all(
    name: str, act: Callable[[Sequence[str]], list[str]], wanted: Filter, *, until: str, after: str, seconds: float
) -> Outcome:
    outcome, deadline = Outcome(), time.monotonic() + seconds
    if not is_entry(until):
        return outcome
    after = after if is_entry(after) else ""
    try:
        for last, entries in dead_letters.matching(name, wanted, after=after, until=until):
            outcome.resume_after = after
            # The clock is looked at after a step, so that every call gets on, however little time it has.
            if entries and not _step(act, entries, outcome):
                return outcome
            outcome.resume_after = after = last
            if time.monotonic() >= deadline:
                return outcome
    except StoreError as error:
        outcome.error, outcome.resume_after = error, after
        return outcome
    outcome.resume_after = None
    return outcome


def _step(act: Callable[[Sequence[str]], list[str]], entries: Sequence[str], outcome: Outcome) -> bool:
    try:
        words = Counter(act(entries))
    except StoreError as error:
        outcome.error = error
        return False
    outcome.missing += words.pop("MISSING", 0)
    outcome.refused += words.pop("UNDECODABLE", 0)
    outcome.done += words.total()
    return True
