"""The messages of a test that wait for a commit or in an outbox, and publishing them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import DatabaseError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from mq_django.conf import DeliveryOptions, get_config
from mq_django.consumers.supervisor.outbox_service import announce_published, destinations_of
from mq_django.core.logs import get_logger
from mq_django.core.publication import Publication
from mq_django.core.texts import repr_of
from mq_django.errors import DecodeError, MQError, TestKitError
from mq_django.models import OutboxMessage
from mq_django.outbox.claims import RETAINED
from mq_django.outbox.insertion import RowsCommitted
from mq_django.outbox.relay import DatabaseRelay
from mq_django.outbox.rows import publication_of, with_parts
from mq_django.producers.sinks import PendingSend
from mq_django.producers.workflow_run import PendingRun, Run
from mq_django.testing.published import Published, published_of
from mq_django.transport import test_mode

logger = get_logger(__name__)

OUTSIDE = (
    "commit() needs a transaction that the test is in, and there is none{where}. In a TransactionTestCase, or with "
    "pytest.mark.django_db(transaction=True), each atomic() runs its hooks itself when it commits."
)


class _Test:
    """The connections of the thread that has started the test. A coroutine looks from another thread."""

    connections: Sequence[Any] = ()


def note_connections() -> None:
    """Note the connections of this thread as the test's."""
    _Test.connections = connections.all()


def pending() -> list[Published]:
    """Return the messages that wait for a commit, in order, of all databases of the test and of this thread.

    Those that `captureOnCommitCallbacks(execute=True)` has sent are not among them.
    """
    return [
        published_of(publication)
        for hook in _all_hooks()
        if isinstance(hook, PendingSend | RowsCommitted) and not hook.called
        for publication in hook.publications
    ]


def uncommitted_rows(alias: str) -> list[str]:
    """Return the ids of the messages whose rows in the outbox of a database wait for a commit."""
    return _row_ids(alias, (*_class_hooks(), *_all_hooks()))


def _row_ids(alias: str, hooks: Iterable[object]) -> list[str]:
    rows = (hook for hook in hooks if isinstance(hook, RowsCommitted) and hook.alias == alias and not hook.called)
    return [message_id for hook in rows for message_id in hook.outbox_ids]


def pending_runs() -> list[Run]:
    """Return the runs of workflows that wait for a commit, like pending()."""
    return [hook.run for hook in _all_hooks() if isinstance(hook, PendingRun) and not hook.called]


def _all_hooks() -> Iterator[Callable[[], object]]:
    for connection in _connections():
        yield from (hook for _, hook, _ in connection.run_on_commit[_first(connection) :])


def _class_hooks() -> Iterator[Callable[[], object]]:
    """Yield the hooks of setUpTestData(), which no test runs."""
    for connection in _connections():
        yield from (hook for _, hook, _ in connection.run_on_commit[: _first(connection)])


def _connections() -> list[Any]:
    return list({id(found): found for found in (*_Test.connections, *_own_connections())}.values())


def _own_connections() -> list[Any]:
    return list(connections.all(initialized_only=True))


def commit(using: str | None = None) -> int:
    """Run the on-commit hooks of the test's transaction, as if it committed, and return their number.

    A hook that another one registers runs in it, as after a real commit. After a hook that fails, later ones of its
    database do not run, also as after a real commit; the failure of a robust one is logged. The transaction stays open.

    Django does not tell which hooks `captureOnCommitCallbacks(execute=True)` has run. Those that publish do not run
    again here; others that are still in the transaction do.

    Args:
        using: the alias of a database; None: all that have an open transaction in this thread.

    Raises:
        TestKitError: there is no open transaction, or no such database.
    """
    if using is not None and using not in list(connections):
        raise TestKitError(f"using must be the alias of a database, not {repr_of(using)}")
    found = _own_connections() if using is None else [connections[using]]
    in_transaction = [connection for connection in found if connection.in_atomic_block]
    if not in_transaction:
        raise TestKitError(OUTSIDE.format(where="" if using is None else f" on database {repr_of(using)}"))
    return sum(_run(connection, _first(connection)) for connection in in_transaction)


def _first(connection: Any) -> int:
    """Return the position of the first hook of this test. The hooks of setUpTestData() are before it, and stay.

    They wait in the transaction around all tests of the class. Otherwise the first test would run them for all.
    """
    is_of_class = [getattr(block, "_from_testcase", False) for block in connection.atomic_blocks[:2]] == [True, True]
    if not is_of_class:
        return 0
    return sum(connection.savepoint_ids[0] not in savepoints for savepoints, *_ in connection.run_on_commit)


def _run(connection: Any, first: int) -> int:
    """Run the hooks of a connection from a position on, and return their number."""
    ran = 0
    while first < len(connection.run_on_commit):
        savepoints, hook, robust = connection.run_on_commit[first]
        # Replaced, not removed: captureOnCommitCallbacks() counts positions in this list.
        connection.run_on_commit[first] = (savepoints, _done, robust)
        first += 1
        if hook is _done or (isinstance(hook, PendingSend | PendingRun | RowsCommitted) and hook.called):
            continue
        registered = len(connection.run_on_commit)
        try:
            _call(hook, robust=robust)
        except BaseException:
            _drop(connection, first)
            raise
        ran += 1 + _run(connection, registered)
    return ran


def _call(hook: Callable[[], object], *, robust: bool) -> None:
    try:
        hook()
    except Exception as error:
        if not robust:
            raise
        name = getattr(hook, "__qualname__", repr(hook))
        logger.exception("Error calling %s in on_commit() during transaction (%s).", name, error)  # noqa: TRY401 - as Django


def _drop(connection: Any, first: int) -> None:
    for position, (savepoints, _hook, robust) in enumerate(connection.run_on_commit[first:], first):
        connection.run_on_commit[position] = (savepoints, _done, robust)


def _done() -> None:
    """Stand in for a hook that has run."""


# Run handlers in the transaction of a test as if each statement were committed.


class CommitHooks:
    """The functions that are registered with `transaction.on_commit()` in the transaction of a test from now on."""

    def __init__(self) -> None:
        self._counts = [(connection, len(connection.run_on_commit)) for connection in _in_transaction()]

    def run(self) -> None:
        """Run them in their order. An error of one is raised, and the later ones are dropped, as at a commit."""
        for connection, count in self._counts:
            hooks = connection.run_on_commit
            while len(hooks) > count:
                _, hook, is_robust = hooks.pop(count)  # type: ignore[misc] # the stubs lack the third
                try:
                    self._run(hook)
                except Exception:
                    if not is_robust:
                        del connection.run_on_commit[count:]
                        raise
                    logger.exception("Error calling %s after the commit", hook)
                # A rollback inside the hook replaces the list.
                hooks = connection.run_on_commit

    def drop(self) -> None:
        """Forget them, as when a process dies before it runs them."""
        for connection, count in self._counts:
            del connection.run_on_commit[count:]

    @staticmethod
    def _run(hook: object) -> None:
        savepoints = Savepoints()
        try:
            hook()  # type: ignore[operator] # Django checks that it is callable
        finally:
            savepoints.leave()


class Savepoints:
    """A savepoint in each open transaction of this thread, and the on-commit hooks that are registered after it.

    In production each statement of a handler outside `atomic()` is committed, and so is each `atomic()`. In the
    transaction of a test nothing is committed, so a failed statement would make the connection useless for the test.
    """

    def __init__(self) -> None:
        self._hooks = CommitHooks()
        self._blocks = [(connection, _entered(connection)) for connection in _in_transaction()]

    def leave(self) -> None:
        """Keep the changes since the savepoints, and run the on-commit hooks.

        A connection that needs a rollback is rolled back to its savepoint. If `atomic()` was left open, nothing is
        done: the executor rolls it back, with all changes since the savepoints.
        """
        if any(connection.atomic_blocks[-1:] != [block] for connection, block in self._blocks):
            return
        for connection, block in reversed(self._blocks):
            _leave(connection, block)
        self._hooks.run()


def _in_transaction() -> Iterator[BaseDatabaseWrapper]:
    return (connection for connection in connections.all(initialized_only=True) if connection.in_atomic_block)


def _entered(connection: BaseDatabaseWrapper) -> transaction.Atomic:
    block = transaction.atomic(using=connection.alias)
    block.__enter__()
    # As in TestCase: the handler may use atomic(durable=True), because in production it runs in no transaction.
    block._from_testcase = True  # type: ignore[attr-defined] # noqa: SLF001
    return block


def _leave(connection: BaseDatabaseWrapper, block: transaction.Atomic) -> None:
    if connection.needs_rollback:
        logger.warning(
            "A handler caught an error of database %s outside atomic(), or called set_rollback(): all its changes are "
            "rolled back in the transaction of this test. In production only those in the failed transaction are",
            connection.alias,
        )
    try:
        block.__exit__(None, None, None)
    except DatabaseError:
        # PostgreSQL releases no savepoint after a failed statement. Django has rolled back to it.
        if connection.needs_rollback:
            raise


# The outboxes of a test: the messages in them, and publishing them as a relay does.


def note_outboxes() -> None:
    """Forget the outboxes that earlier tests have used, and note what setUpTestData() has used."""
    test_mode.outboxes.clear()
    test_mode.outboxes.update(hook.alias for hook in _class_hooks() if isinstance(hook, RowsCommitted))


def waiting() -> list[Published]:
    """Return the messages in the outboxes of this test that are not published, in order, also those set aside."""
    found = []
    for alias in sorted(test_mode.outboxes):
        rows = OutboxMessage.objects.using(alias).exclude(message_id__in=_row_ids(alias, _class_hooks()))
        for row in rows.exclude(batch__lt=0).order_by("id"):
            publication = _publication(row)
            if publication is not None:
                found.append(published_of(publication))
    return found


def _publication(row: OutboxMessage) -> Publication | None:
    config = get_config()
    whole: DeliveryOptions | None = config.queues.get(row.destination) or config.topics.get(row.destination)
    try:
        return None if whole is None else publication_of(row, with_parts(whole, row.parts))
    except DecodeError:
        return None


def relay() -> int:
    """Publish the messages in the outboxes of this test, as a relay does, and return their number.

    Messages that wait for the commit of the test's transaction stay: mq.commit() publishes them. Those for a full queue
    stay, too. Messages that cannot be published are set aside.

    Raises:
        ConnectionLost, StoreError: Redis cannot be reached, or refuses. The messages stay in the outbox.
    """
    published = 0

    def announce(destination: DeliveryOptions, publication: Publication, message_id: str) -> None:
        nonlocal published
        published += 1
        announce_published(destination, publication, message_id)

    destinations = {each.name: each for each in destinations_of(get_config())}
    for alias in sorted(test_mode.outboxes):
        found = DatabaseRelay(alias, destinations, announce, take_over=0)
        with _without_uncommitted(alias):
            # Claims of all places, until nobody makes progress.
            while any([step() for _, step in found.steps()]):  # noqa: C419 - each step is made
                pass
    return published


@contextmanager
def _without_uncommitted(alias: str) -> Iterator[None]:
    """Hide the rows that wait for the commit of the test's transaction, as they are hidden from a relay."""
    rows = OutboxMessage.objects.using(alias).filter(message_id__in=uncommitted_rows(alias))
    hidden = list(rows.filter(batch=None).values_list("pk", flat=True))
    rows = OutboxMessage.objects.using(alias).filter(pk__in=hidden)
    # As if they were published and kept: these a relay leaves as they are, and they hold up no others.
    rows.update(batch=RETAINED)
    try:
        yield
    finally:
        rows.update(batch=None)


def relay_after_commit(alias: str) -> None:
    """Publish what a transaction has written, at once: the relay of a test. Rows that fail stay in the outbox."""
    try:
        with transaction.atomic(using=alias):
            relay()
    except MQError as error:
        logger.info("The messages stay in the outbox: %s", error)
