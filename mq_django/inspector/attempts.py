"""A message's earlier attempts, for display."""

from mq_django.core.attempt_history import Attempt, read_history
from mq_django.core.redaction import redact_text


def attempts_of(history: str, *, error: str = "", traceback: str | None = None) -> tuple[Attempt, ...]:
    """Return the attempts of a history, the last one first, each with its traceback and without secrets.

    `error` and `traceback` are those of the last attempt, if stored separately, as in a dead letter.
    """
    found = read_history(history)
    if found and traceback is not None:
        found[-1] = found[-1]._replace(error=error or found[-1].error, traceback=traceback)
    shown: list[Attempt] = []
    # An attempt without a traceback has the same one as the attempt before.
    last = ""
    for attempt in found:
        last = last if attempt.traceback is None else redact_text(attempt.traceback)
        shown.append(attempt._replace(error=redact_text(attempt.error), traceback=last))
    return tuple(reversed(shown))
