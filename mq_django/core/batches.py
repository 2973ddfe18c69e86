"""The outcomes of the messages of a batch, by what its handler has returned."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from mq_django.core.outcomes import ACK, Ack, Bury, Outcome, Retry, refuse_unfinished, with_texts
from mq_django.core.texts import repr_of
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


# Which messages of a batch are tried together next, when the handler has raised for some of them.
#
# A call that fails is repeated with each half of its messages, until the failing message is alone. As long as no call
# has succeeded, only one of two failed halves is split further. If that ends with single messages that fail, it is
# assumed that all fail for the same reason, and the others are not tried one by one.

Item = TypeVar("Item")
Failure = TypeVar("Failure")


class BatchBisection(Generic[Item, Failure]):
    """Decides what to call next, by how the calls before have ended.

    Args:
        items: of the first call.
        may_be_common: returns whether it may be assumed that all fail for the same reason. If not, each message that
            fails is tried alone.
    """

    def __init__(self, items: Sequence[Item], *, may_be_common: Callable[[], bool]) -> None:
        self._may_be_common = may_be_common
        #: How many groups were called so far.
        self.calls = 0
        #: The groups to call next.
        self._next: list[Sequence[Item]] = [items]
        #: Groups of several that have failed and are not split, each with its failure; the last one is the smallest.
        self._failed: list[tuple[Sequence[Item], Failure]] = []
        #: Messages that have failed alone, and not yet been taken.
        self._alone: list[tuple[Item, Failure]] = []
        #: Whether a message that fails alone is the cause; it is not if all fail for the same reason.
        self._blames = len(items) == 1
        self._is_common = False

    def next_group(self) -> Sequence[Item]:
        """Return what to call next; empty: nothing is left to call."""
        self.calls += 1
        if self._next:
            return self._next.pop(0)
        if len(self._alone) > 1 and not self._blames:
            self._is_common = self._may_be_common()
            self._blames = not self._is_common
        if self._is_common:
            return ()
        if not self._failed:
            self._blames = True
            return ()
        group, _ = self._failed.pop()
        middle = len(group) // 2
        self._next.append(group[middle:])
        return group[:middle]

    def succeeded(self) -> None:
        """Note that a call has not failed."""
        self._blames = True

    def failed(self, group: Sequence[Item], failure: Failure) -> None:
        """Note that a call has failed, which had these messages."""
        if len(group) > 1:
            self._failed.append((group, failure))
        else:
            self._alone += [(item, failure) for item in group]

    def take_alone(self) -> list[tuple[Item, Failure]]:
        """Return the messages that have failed alone since the last call, once it is known that they are the cause."""
        if not self._blames:
            return []
        alone, self._alone = self._alone, []
        return alone

    def take_common(self) -> list[tuple[Item, Failure]]:
        """Return the messages that fail for a common reason, when nothing is left to call."""
        if not self._is_common:
            return []
        found = [(item, failure) for group, failure in self._failed for item in group] + self._alone
        self._failed, self._alone = [], []
        return found

    def take_rest(self) -> list[Item]:
        """Return the messages that have neither ended nor failed alone, for a process that stops."""
        rest = [item for group in self._next for item in group]
        rest += [item for group, _ in self._failed for item in group]
        rest += [item for item, _ in self._alone]
        self._next, self._failed, self._alone = [], [], []
        return rest
