"""Publishing waits for the commit, and vanishes with a rollback."""

from collections.abc import Callable
from typing import TypeVar

from django.db import DEFAULT_DB_ALIAS, transaction

Result = TypeVar("Result")


def in_transaction(using: str | None) -> bool:
    """Tell whether a database has a transaction open in this thread."""
    return bool(transaction.get_connection(using or DEFAULT_DB_ALIAS).in_atomic_block)


def after_commit(
    action: Callable[[], Result], *, using: str | None, on_commit: bool, robust: bool = False
) -> Result | None:
    """Run `action` when the transaction of database `using` commits, or at once when there is none.

    Returns what `action` returned if it ran at once, else None. A `robust` action that fails after the commit is
    logged and does not keep later ones from running; any other raises out of the `atomic()` that has committed.
    """
    if on_commit and in_transaction(using):
        transaction.on_commit(action, using=using or DEFAULT_DB_ALIAS, robust=robust)
        return None
    return action()
