"""The problems of queues: the one list that pages, `mq status --check`, metrics, signals and code of projects show.

A problem is found where its figures are: of the messages of a queue by `QueueView.problems()`, of an outbox by
`OutboxView.problems()`. Here they become values with sentences, and schedules and runs of workflows are looked at.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import get_args

from django.db import connections

from mq_django.conf import get_config
from mq_django.core import clock
from mq_django.core.partitions import public_name
from mq_django.core.project import Problem, Severity, Thresholds, exceeds, severity_of
from mq_django.core.texts import escape, repr_of, truncate
from mq_django.errors import ConfigurationError, InvalidArguments, NotSupported, StoreError
from mq_django.inspector.actions import MAX_REASON, MAX_WHO
from mq_django.inspector.outbox_views import OutboxProblem, OutboxView, outboxes_of
from mq_django.inspector.problem_sentences import outbox_sentence, schedule_sentence, sentence, stuck_sentence
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import overview, require_queue, transports_of
from mq_django.inspector.workflow_runs import StuckRuns, open_run_readers, stuck_in
from mq_django.stores import preferences
from mq_django.stores.activity import Effect, Given, recorded
from mq_django.stores.preferences import Mute, Mutes
from mq_django.stores.schedule_status import statuses_of
from mq_django.stores.schedules import scheduled
from mq_django.transport.connections import open_transport

KINDS: tuple[Problem, ...] = get_args(Problem)

#: The name of the problem that runs of workflows do not go on: these belong to no queue.
WORKFLOWS = "workflows"


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
    #: Since when, in ms since 1970; None if that is not known.
    since_ms: int | None = None
    #: None: it is not muted.
    mute: Mute | None = None

    @property
    def severity(self) -> Severity:
        """Return how bad it is: "critical", "warning" or "notice"."""
        return severity_of(self.kind)

    @property
    def words(self) -> str:
        """Return the sentence without the name of the queue at its beginning."""
        return self.sentence.removeprefix(f"{self.queue} ")


def problems(
    *queues: str,
    thresholds: Thresholds | None = None,
    ignore: Collection[Problem] = frozenset(),
    muted: bool = False,
) -> list[QueueProblem]:
    """Return the problems of queues and groups of topics, the worst first.

    A queue that cannot be read is a problem of its own, as long as another server can be reached.

    Args:
        queues: their names, a group as "topic:group"; without names all.
        thresholds: the figures above which there is a problem; None: the figures of MQ_DJANGO["THRESHOLDS"].
        ignore: the kinds of problems to leave out.
        muted: return muted problems, too.

    Raises:
        UnknownQueue: a queue is not configured.
        ConfigurationError: a setting is wrong, `thresholds` or `ignore`.
        StoreError: no server can be reached.
    """
    if not isinstance(thresholds, Thresholds | None):
        raise ConfigurationError(f"thresholds= takes Thresholds, not {repr_of(thresholds)}")
    if isinstance(ignore, str) or not isinstance(ignore, Collection):
        raise ConfigurationError(f"ignore= takes a set of kinds of problems, not {repr_of(ignore)}")
    found = problems_among(overview(queues), queues, thresholds=thresholds, ignore=ignore)
    return [problem for problem in found if muted or problem.mute is None]


def problems_among(
    views: Sequence[QueueView],
    queues: Collection[str],
    *,
    thresholds: Thresholds | None = None,
    ignore: Collection[Problem] = frozenset(),
) -> list[QueueProblem]:
    """Return the problems of queues that were read, also muted ones; see problems().

    Args:
        views: the queues.
        queues: their names; none if these are all, for what belongs to no queue.
    """
    thresholds = thresholds or get_config().thresholds
    found = [_problem(view, kind, thresholds) for view in views for kind in view.problems(thresholds)]
    if "outbox" not in ignore:
        found += _of_outboxes(queues, thresholds)
    if "schedule" not in ignore:
        found += _of_schedules(views, thresholds)
    stuck, muted = _of_project()
    if stuck is not None and not queues:
        found.append(_stuck(stuck))
    left = (replace(each, mute=muted.get((each.queue, each.kind))) for each in found if each.kind not in ignore)
    return sorted(left, key=lambda problem: (KINDS.index(problem.kind), problem.queue))


def _of_project() -> tuple[StuckRuns | None, Mutes]:
    """Return the runs of workflows that do not go on, and what is muted: nothing if their server cannot be reached."""
    stuck_commands = [reader.stuck_command() for reader in open_run_readers()]
    commands = [preferences.read_mutes(get_config().namespace), *stuck_commands]
    with suppress(StoreError):
        muted, *stuck = (reply for (reply,) in open_transport("inspect", "").pipelines([[each] for each in commands]))
        return next(filter(None, map(stuck_in, stuck)), None), preferences.mutes_in(muted, clock.now_ms())
    return None, {}


def _problem(view: QueueView, kind: Problem, thresholds: Thresholds) -> QueueProblem:
    figure, threshold = view.figures(thresholds).get(kind, (None, None))
    said, since_ms = f"{view.name} {sentence(view, kind)}", view.since_ms(kind)
    return QueueProblem(
        queue=view.name, kind=kind, sentence=said, figure=figure, threshold=threshold, since_ms=since_ms
    )


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
    since_ms = clock.now_ms() - view.waited_ms if what == "late" and view.waited_ms is not None else None
    return QueueProblem(queue=name, kind="outbox", sentence=said, figure=figure, threshold=threshold, since_ms=since_ms)


#: The most schedules of a queue that are looked at, by name.
MAX_SCHEDULES = 1000


def _of_schedules(views: Sequence[QueueView], thresholds: Thresholds) -> Iterator[QueueProblem]:
    """Yield the schedules that do not fire. Paused queues are left out: there they wait on purpose."""
    in_code = {entry.queue for entry in scheduled()}
    configs = [
        get_config().queue(view.name)
        for view in views
        if (view.name in in_code or view.has_runtime_schedules)
        and view.name == public_name(view.name)
        and not (view.error or view.paused)
    ]
    read = statuses_of(configs, transports_of(configs), limit=MAX_SCHEDULES) if configs else ()
    for config, found in zip(configs, read, strict=True):
        if isinstance(found, StoreError):
            # The queue was read: its page shows what has another type.
            continue
        for plan in found.found:
            overdue_ms = 0 if plan.next_ms is None else found.now_ms - plan.next_ms
            if plan.problem or exceeds(overdue_ms / 1000, thresholds.max_age):
                said = f"{config.name} {schedule_sentence(plan, overdue_ms)}"
                yield QueueProblem(
                    queue=config.name,
                    kind="schedule",
                    sentence=said,
                    figure=None,
                    threshold=None,
                    since_ms=None if plan.problem else plan.next_ms,
                )


def _stuck(stuck: StuckRuns) -> QueueProblem:
    said = f"{WORKFLOWS} {stuck_sentence(stuck)}"
    return QueueProblem(queue=WORKFLOWS, kind="stuck", sentence=said, figure=stuck.runs, threshold=0)


# Mute problems.


def _muted(given: Given, _: None) -> Effect:
    return Effect(1, undo={"who": escape(given["who"])[:MAX_WHO], "seconds": given["seconds"]})


@recorded("mute", queue="queue", about="kind", effect=_muted)
def mute(queue: str, kind: Problem, *, seconds: float, who: str = "", reason: str = "") -> None:
    """Mute a kind of problem of a queue for a time: pages, `mq status --check` and signals leave it out.

    All problems of this kind that the queue has then, or gets later, are muted.

    Args:
        queue: the queue, the group of a topic, or what else has such problems.
        kind: such as "paused".
        seconds: for how long.
        who: who mutes it, for others to see.
        reason: why.

    Raises:
        InvalidArguments: `seconds` is not above 0.
        UnknownQueue: the queue is not configured.
        NotSupported: 1,000 are muted.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    if seconds <= 0:
        raise InvalidArguments(f"seconds= takes a number above 0, not {seconds!r}")
    if queue not in {WORKFLOWS, *get_config().topics, *connections}:
        require_queue(queue)
    now_ms, namespace = clock.now_ms(), get_config().namespace
    made = Mute(now_ms + round(seconds * 1000), escape(who)[:MAX_WHO], truncate(escape(reason.strip()), MAX_REASON))
    if not preferences.write_mute(open_transport("inspect", ""), namespace, queue, kind, made, now_ms):
        raise NotSupported(f"{preferences.MAX_MUTES} problems are muted: unmute one before")


def get_mutes() -> Mutes:
    """Return the mutes that have not ended by queue and kind, also of problems that do not exist now.

    Raises:
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    (reply,) = open_transport("inspect", "").pipeline([preferences.read_mutes(get_config().namespace)])
    return preferences.mutes_in(reply, clock.now_ms())


@recorded("unmute", queue="queue", about="kind")
def unmute(queue: str, kind: str) -> bool:
    """Unmute a kind of problem of a queue, and return whether it was muted.

    Args:
        queue: as it was muted.
        kind: such as "paused".

    Raises:
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    return preferences.delete_mute(open_transport("inspect", ""), get_config().namespace, queue, kind)
