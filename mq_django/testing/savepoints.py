"""Run handlers in the transaction of a test as if each statement were committed."""

from collections.abc import Iterator

from django.db import DatabaseError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from mq_django.core.logs import get_logger

logger = get_logger(__name__)


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
