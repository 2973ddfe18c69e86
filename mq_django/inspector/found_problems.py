"""The problems of queues as values, for the command `mq` and for code of projects."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import get_args

from mq_django.conf import get_config
from mq_django.core.texts import repr_of
from mq_django.core.thresholds import Thresholds
from mq_django.errors import ConfigurationError
from mq_django.inspector.outbox_views import OutboxProblem, OutboxView, outboxes_of
from mq_django.inspector.problem_sentences import outbox_sentence, sentence
from mq_django.inspector.queue_view import Problem, QueueView
from mq_django.inspector.queues import overview

KINDS: tuple[Problem, ...] = get_args(Problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProblem:
    """A problem of a queue, or of a group of a topic."""

    queue: str
    #: Such as "paused" or "late".
    kind: Problem
    #: About the queue, in the current language.
    sentence: str
    #: Messages; seconds for "late" and "starved". None for a problem that has no figure.
    figure: float | None
    #: The figure is above it. None for a problem that has no figure.
    threshold: float | None


def problems(
    *queues: str, thresholds: Thresholds | None = None, ignore: Collection[Problem] = frozenset()
) -> list[QueueProblem]:
    """Return the problems of queues and groups of topics, the worst first.

    A queue that cannot be read is a problem of its own, as long as another server can be reached.

    Args:
        queues: their names, a group as "topic:group"; without names all.
        thresholds: the figures above which there is a problem; None: those of MQ_DJANGO["THRESHOLDS"].
        ignore: the kinds of problems to leave out.

    Raises:
        UnknownQueue: a queue is not configured.
        ConfigurationError: a setting is wrong, `thresholds` or `ignore`.
        StoreError: no server can be reached.
    """
    if not isinstance(thresholds, Thresholds | None):
        raise ConfigurationError(f"thresholds= takes Thresholds, not {repr_of(thresholds)}")
    if isinstance(ignore, str) or not isinstance(ignore, Collection):
        raise ConfigurationError(f"ignore= takes a set of kinds of problems, not {repr_of(ignore)}")
    views = overview(queues)
    found = [problem for view in views for problem in problems_of(view, thresholds) if problem.kind not in ignore]
    if "outbox" not in ignore:
        found += _of_outboxes(queues, thresholds or get_config().thresholds)
    return sorted(found, key=lambda problem: (KINDS.index(problem.kind), problem.queue))


def _of_outboxes(queues: Collection[str], thresholds: Thresholds) -> Iterator[QueueProblem]:
    """Yield the problems of the outboxes of these queues and of the topics of these groups, or of all."""
    for view in outboxes_of(queues):
        for what in view.problems(thresholds):
            yield outbox_problem(view, what, thresholds)


def outbox_problem(view: OutboxView, what: OutboxProblem, thresholds: Thresholds) -> QueueProblem:
    """Return a problem of an outbox as one of its queue or topic."""
    name = view.destination or view.database
    figures = {"late": ((view.waited_ms or 0) / 1000, thresholds.max_outbox_age), "set aside": (view.set_aside, 0)}
    figure, threshold = figures.get(what, (None, None))
    said = f"{name} {outbox_sentence(view, what)}"
    return QueueProblem(queue=name, kind="outbox", sentence=said, figure=figure, threshold=threshold)


def problems_of(view: QueueView, thresholds: Thresholds | None = None) -> list[QueueProblem]:
    """Return the problems of a queue that was read, the worst first."""
    thresholds = thresholds or get_config().thresholds
    return [_problem(view, kind, thresholds) for kind in view.problems(thresholds)]


def _problem(view: QueueView, kind: Problem, thresholds: Thresholds) -> QueueProblem:
    figure, threshold = view.figures(thresholds).get(kind, (None, None))
    said = f"{view.name} {sentence(view, kind)}"
    return QueueProblem(queue=view.name, kind=kind, sentence=said, figure=figure, threshold=threshold)
