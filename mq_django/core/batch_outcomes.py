"""The outcomes of the messages of a batch, by what its handler has returned."""

from collections.abc import Sequence

from mq_django.core.exceptions import repr_of
from mq_django.core.outcomes import ACK, Ack, Bury, Outcome, Retry, refuse_unfinished, with_texts
from mq_django.errors import InvalidOutcomes


def outcomes_of(returned: object, count: int) -> Sequence[Outcome]:
    """Return the outcome of each of `count` messages, in their order.

    Args:
        returned: None: all are handled. An outcome is that of all. A list or tuple has an outcome, or None, for each.
        count: how many messages the handler has got.

    Raises:
        InvalidOutcomes: it is something else.
    """
    if returned is None:
        return [ACK] * count
    if isinstance(returned, Ack | Retry | Bury):
        return [_plain(returned)] * count
    refuse_unfinished(returned)
    if not isinstance(returned, list | tuple):
        raise InvalidOutcomes(
            "A handler of batches must return None, an outcome, or a list with an outcome or None for each message, "
            f"not {repr_of(returned, 200)}"
        )
    if len(returned) != count:
        raise InvalidOutcomes(f"A handler has returned {len(returned)} outcomes for {count} messages")
    for at, outcome in enumerate(returned):
        if outcome is not None and not isinstance(outcome, Ack | Retry | Bury):
            raise InvalidOutcomes(f"Outcome {at} must be None, Ack, Retry or Bury, not {repr_of(outcome, 200)}")
    return [ACK if outcome is None else _plain(outcome) for outcome in returned]


def worst_of(outcomes: Sequence[Outcome]) -> Outcome:
    """Return one outcome for middleware: the first burial, else the first retry, else an ack."""
    for kind in (Bury, Retry):
        for outcome in outcomes:
            if isinstance(outcome, kind):
                return outcome
    return ACK


def _plain(outcome: Ack | Retry | Bury) -> Outcome:
    """Return an outcome with texts: a handler may return Bury(error). A value of an Ack is not stored."""
    return ACK if isinstance(outcome, Ack) else with_texts(outcome)
