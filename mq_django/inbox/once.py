"""Run a handler in one transaction with the row of the inbox that names its message."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from django.db import DatabaseError, InterfaceError, connections, transaction
from django.db.models import F

from mq_django.conf import GroupConfig, get_config
from mq_django.core import clock
from mq_django.core.handler_options import Postponed, running_in
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.logs import get_logger
from mq_django.core.messages import ACK, Ack, Bury, Outcome, Retry, StepDrop
from mq_django.core.offsets import Offset, before
from mq_django.core.partitions import public_name
from mq_django.core.running_handler import seal
from mq_django.core.texts import repr_of
from mq_django.errors import ConfigurationError, UnknownGroup
from mq_django.inbox.entries import Entries, Identity, Taken, digest_of, inbox_messages, inbox_passes, shown
from mq_django.registry import find, handlers, names
from mq_django.stores.log import Log, PartitionedLog

# The passes of groups: in each of them the effects of a message happen once.

NOT_REPEATABLE = (
    "repeat=True is for groups with a subscriber that is decorated with @exactly_once, and {queue!r} has none here. "
    "Any other subscriber handles a message each time that it is delivered"
)


class Pass(NamedTuple):
    """The pass in which a group is."""

    number: int = 0
    #: When it began, in milliseconds since 1970; 0: with the first message.
    raised_ms: int = 0
    #: The group was moved, or a part of its log was replayed, so that any message may come again.
    is_sought: bool = False


FIRST = Pass()


def pass_of(queue: str, using: str) -> Pass:
    """Return the pass of a queue or group in a database. Only groups, named `topic:group`, have more than one."""
    if GROUP_SEPARATOR not in queue:
        return FIRST
    rows = inbox_passes().objects.using(using).filter(pk=digest_of(public_name(queue)))
    found = rows.values_list("number", "raised_ms").first()
    return FIRST if found is None else Pass(found[0], found[1], is_sought=True)


def databases_of(queue: str) -> list[str]:
    """Return the aliases of the databases of a queue's or group's handlers with `@exactly_once`."""
    found = {handler.once for name in names(queue) if (handler := find(queue, name)) is not None}
    return sorted(alias for alias in found if alias is not None)


def once_databases() -> list[str]:
    """Return the aliases of the databases of all handlers with `@exactly_once`."""
    return sorted({entry.once for entry in handlers() if entry.once is not None})


def unknown_database(using: str) -> str:
    """Return why the database of a handler with `@exactly_once` cannot be used, "" if it is in the settings."""
    return "" if using in connections else f"@exactly_once(using={using!r}) names no database in DATABASES"


def note_return(queue: str, *, repeat: bool) -> None:
    """Note that messages of a group come again, before they do.

    Nothing is written for a group without `@exactly_once`.

    Args:
        queue: the group, as `topic:group`.
        repeat: raise the pass, so that their effects happen again, once.

    Raises:
        ConfigurationError: `repeat` is no bool, or no subscriber of the group has `@exactly_once`.
        DatabaseError: a database cannot be written.
    """
    given: object = repeat
    if not isinstance(given, bool):
        raise ConfigurationError(f"repeat must be True or False, not {repr_of(given)}")
    if repeat:
        check_repeat(queue)
    for alias in databases_of(queue):
        _note(public_name(queue), alias, repeat=repeat)


def check_repeat(queue: str) -> None:
    """Check that the effects of a group's subscribers can be let happen again.

    Raises:
        ConfigurationError: none of them has `@exactly_once`.
    """
    if not databases_of(queue):
        raise ConfigurationError(NOT_REPEATABLE.format(queue=queue))


def _note(queue: str, using: str, *, repeat: bool) -> None:
    digest, rows = digest_of(queue), inbox_passes().objects.using(using)
    with transaction.atomic(using=using):
        rows.get_or_create(digest=digest, defaults={"queue": shown(queue, 321)})
        if repeat:
            rows.filter(pk=digest).update(number=F("number") + 1, raised_ms=clock.now_ms())


# Move a group of a topic whose subscribers may have `@exactly_once`.


def seek(log: Log | PartitionedLog, group: GroupConfig, position: Offset, *, repeat: bool) -> None:
    """Move a group, and raise its pass before with `repeat`: see Group.seek().

    Raises:
        UnknownGroup: the group does not exist.
        InvalidOffset: `position` is none in a log.
        ConfigurationError: `repeat` is not possible.
        DatabaseError: a database of the subscribers cannot be written. The group was not moved.
    """
    before(position)
    if databases_of(group.name) and all(found.name != group.group for found in log.groups()):
        raise UnknownGroup(f"Topic {group.topic!r} has no group {group.group!r}")
    note_return(group.name, repeat=repeat)
    log.seek(group.group, position)


logger = get_logger(__name__)

#: Seconds until a message that is busy is handed back: the pause between two deliveries of it.
BUSY_PAUSE = 1.0

ROLLED_BACK = (
    "The handler has marked its transaction for rollback: by set_rollback(), or by catching an error of the database "
    "outside an atomic() of its own"
)
NOT_COMMITTED = "The transaction was not committed: the handler has left an atomic() open, or AUTOCOMMIT is off"


class _NotAcked(Exception):
    """Raised in the transaction to roll it back."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


class Once:
    """One delivery of a message to a handler with `@exactly_once`.

    Args:
        using: the alias of the handler's database.
        identity: of the message, in the first pass.
    """

    def __init__(self, using: str, identity: Identity) -> None:
        self._using = using
        self._identity = identity
        self._entries = Entries(using)
        #: The handler was called.
        self.has_started = False
        #: How the message is acked, since everything but the commit is done.
        self._acked: Ack | None = None
        self._is_committed = False

    def current_pass(self) -> Pass:
        """Return the pass of the queue or group now."""
        return pass_of(self._identity.queue, self._using)

    def run(self, call: Callable[[], Outcome]) -> Outcome:
        """Call the handler in a transaction, and return its outcome; or the earlier ack of the message.

        Only an ack commits. From the end of the handler on, nothing interrupts it.

        Args:
            call: calls the handler, and returns its outcome.

        Raises:
            Postponed: another delivery of the message runs now, or its database cannot say whether it was handled.
            BaseException: that of the handler or of the database. The transaction is rolled back.
        """
        if not self._entries.writes_first and (found := self._found()) is not None:
            return found
        is_outermost = not connections[self._using].in_atomic_block
        try:
            with transaction.atomic(using=self._using):
                if is_outermost:
                    # The first hook: it runs if the transaction is committed, whatever later ones do.
                    transaction.on_commit(self._note_commit, using=self._using)
                try:
                    acked = self._run_inside(call)
                finally:
                    # Neither the commit nor the rollback is interrupted.
                    seal()
                self._acked = acked
        except _NotAcked as refused:
            return refused.outcome
        except Taken as error:
            return self._after_taken(error)
        except Exception as error:
            if self._acked is None or not is_outermost:
                raise
            return self._after_commit(self._acked, error)
        return acked if self._is_committed or not is_outermost else self._not_committed()

    def earlier_outcome(self) -> Ack | None:
        """Return how the message was acked in this pass; None: its handler has no effects, and none runs now.

        Raises:
            Postponed: another delivery of it runs now.
            DatabaseError, InterfaceError: the database cannot say.
        """
        found = self._found()
        if found is not None or not self._entries.writes_first:
            return found
        try:
            with transaction.atomic(using=self._using):
                self._add(self._in_pass())
                transaction.set_rollback(True, using=self._using)
        except Taken as error:
            return self._after_taken(error)
        return None

    def _run_inside(self, call: Callable[[], Outcome]) -> Ack:
        identity, entries = self._in_pass(), self._entries
        if entries.writes_first:
            self._add(identity)
        self.has_started = True
        token = running_in.set(self._using)
        try:
            outcome = call()
        finally:
            running_in.reset(token)
        # A step that was dropped has not run, and its run may be resumed.
        if not isinstance(outcome, Ack) or isinstance(outcome, StepDrop):
            raise _NotAcked(outcome)
        if connections[self._using].needs_rollback or entries.is_lost():
            raise _NotAcked(Retry(error=ROLLED_BACK))
        if not entries.writes_first:
            if identity != self._in_pass():
                raise Taken
            self._add(identity)
        self._keep(identity, outcome)
        return outcome

    def _add(self, identity: Identity) -> None:
        """Write the row. `identity` is in the present pass."""
        self._entries.add(identity)

    def _keep(self, identity: Identity, outcome: Ack) -> None:
        """Write to the row how the message was acked."""
        self._entries.keep(identity, outcome)

    def _not_committed(self) -> Retry:
        """Roll back what the end of the handler has not committed. An atomic() that is open is the executor's."""
        connection = connections[self._using]
        if not connection.in_atomic_block:
            connection.rollback()
        return Retry(error=NOT_COMMITTED)

    def _after_taken(self, error: Taken) -> Ack:
        """Return how the other delivery was acked, if it has committed."""
        found = self._found()
        if found is not None:
            return found
        if self._entries.never_waits:
            time.sleep(BUSY_PAUSE)
        logger.info("Message %s is handed back: another delivery of it runs", self._identity.message_id)
        raise Postponed from error

    def _after_commit(self, acked: Ack, error: Exception) -> Ack:
        """Return the ack if the transaction was committed all the same."""
        if self._is_committed:
            text = "Message %s was handled and its transaction committed, and then an on-commit hook has failed"
            logger.error(text, self._identity.message_id, exc_info=error)
            return acked
        # A connection that broke during COMMIT does not say whether that was done.
        connection = connections[self._using]
        if not connection.is_usable():
            connection.close()
        try:
            found = self.earlier_outcome()
        except (DatabaseError, InterfaceError) as second:
            raise Postponed from second
        if found is None:
            raise error
        return found

    def _found(self) -> Ack | None:
        found = self._entries.find(self._in_pass())
        if found is not None:
            logger.info("Message %s was handled before, and is acked without its handler", self._identity.message_id)
        return found

    def _in_pass(self) -> Identity:
        number = self.current_pass().number
        return self._identity._replace(number=number) if number else self._identity

    def _note_commit(self) -> None:
        self._is_committed = True


class OnceTogether(Once):
    """One call of a handler with `@exactly_once` for several messages: all are handled in its transaction, or none.

    Args:
        using: the alias of the handler's database.
        identities: of the messages, in the first pass; at least one.
    """

    def __init__(self, using: str, identities: Sequence[Identity]) -> None:
        super().__init__(using, identities[0])
        self._all = identities

    def handled(self) -> set[Identity]:
        """Return the identities of those that were handled before in this pass, as they were given."""
        number = self.current_pass().number
        found = self._entries.handled([each._replace(number=number) for each in self._all])
        return {each for each in self._all if each._replace(number=number) in found}

    def _found(self) -> Ack | None:
        return ACK if len(self.handled()) == len(set(self._all)) else None

    def _add(self, identity: Identity) -> None:
        self._entries.add_all([each._replace(number=identity.number) for each in self._all])

    def _keep(self, identity: Identity, outcome: Ack) -> None:
        """Do nothing: the messages of a batch have no results."""


# For how long the inbox knows a message, and what happens to one that it may have forgotten.

UNCERTAIN = (
    "This message may have been handled longer ago than INBOX_RETENTION, and the inbox does not know it any more. "
    "Redrive it if its effects are not there"
)

#: Rows deleted by one statement, which is short, so that no other writer waits for it.
BATCH = 1000


def oldest_ms() -> int:
    """Return since when the inbox has rows, in milliseconds since 1970."""
    return clock.now_ms() - round(get_config().inbox_retention.total_seconds() * 1000)


def is_forgotten(published_ms: int | None, known: Pass) -> bool:
    """Return whether the row of a message that comes again may be deleted by now, in this pass."""
    oldest = oldest_ms()
    return published_ms is not None and published_ms < oldest and known.raised_ms < oldest


def outcome_of_forgotten(once: Once) -> Ack | Bury:
    """Return how a message was acked that may be forgotten, or a burial with the reason `uncertain`.

    Raises:
        Postponed: another delivery of it runs now.
        DatabaseError, InterfaceError: the database cannot say.
    """
    return once.earlier_outcome() or Bury(UNCERTAIN, reason="uncertain")


def delete_old(using: str) -> bool:
    """Delete one batch of rows of a database that are older than INBOX_RETENTION; return whether there may be more.

    Any number of processes may do so.

    Args:
        using: the alias of the database.
    """
    rows = inbox_messages().objects.using(using)
    old = rows.filter(created_ms__lt=oldest_ms()).order_by("created_ms").values_list("digest", flat=True)
    found = list(old[:BATCH])
    if found:
        rows.filter(pk__in=found).delete()
    return len(found) == BATCH
