"""What became of a message's earlier attempts, as people see it."""

from mq_django.core.attempt_history import Attempt, read_history
from mq_django.core.redaction import redact_text


def attempts_of(history: str, *, error: str = "", traceback: str | None = None) -> tuple[Attempt, ...]:
    """Return the attempts of a history, the last one first, each with its traceback and without secrets.

    `error` and `traceback` are the last one's, where they stand beside the history, as in a dead letter.
    """
    found = read_history(history)
    if found and traceback is not None:
        found[-1] = found[-1]._replace(error=error or found[-1].error, traceback=traceback)
    shown: list[Attempt] = []
    # Of one whose like is no longer kept there is none.
    last = ""
    for attempt in found:
        last = last if attempt.traceback is None else redact_text(attempt.traceback)
        shown.append(attempt._replace(error=redact_text(attempt.error), traceback=last))
    return tuple(reversed(shown))
