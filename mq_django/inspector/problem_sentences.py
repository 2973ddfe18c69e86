"""The problems of queues and outboxes, as values and as sentences in the current language."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf
from typing import get_args

from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.conf import current_time_zone, get_config
from mq_django.core.texts import escape, repr_of, truncate
from mq_django.core.thresholds import Thresholds
from mq_django.errors import ConfigurationError
from mq_django.inspector.outbox_views import OutboxProblem, OutboxView, outboxes_of
from mq_django.inspector.queue_view import GROWING, OF_PARTS, Blocker, Pause, Problem, QueueView
from mq_django.inspector.queues import overview

# Numbers, durations and times as words, in the current language and time zone.

# Milliseconds of each unit, and the number from which the next unit is used.
_UNITS = (("s", 1000, 120), ("min", 60_000, 120), ("h", 3_600_000, 72), ("d", 86_400_000, inf))


def number(value: float) -> str:
    """Return a number with separators, rounded."""
    # Django truncates decimals: 9.9 would become 9.
    return str(number_format(round(value), use_l10n=True, force_grouping=True))


def duration(ms: int) -> str:
    """Return a measured duration, rounded down to one unit."""
    unit, count = next((unit, ms // part) for unit, part, enough in _UNITS if ms // part < enough)
    return _in_unit(unit, number(count))


def period(value: timedelta) -> str:
    """Return a configured duration exactly, in the largest unit of which it is a multiple."""
    ms = round(value.total_seconds() * 1000)
    unit, part = next(((unit, part) for unit, part, _ in reversed(_UNITS) if ms and not ms % part), ("s", 1000))
    return _in_unit(unit, number(ms // part) if not ms % part else str(number_format(ms / 1000, force_grouping=True)))


def _in_unit(unit: str, count: str) -> str:
    words = {"s": _("%(count)s s"), "min": _("%(count)s min"), "h": _("%(count)s h"), "d": _("%(count)s d")}
    return words[unit] % {"count": count}


def date(ms: int) -> str:
    """Return a time as date and time in the current time zone."""
    when = local(ms)
    return str(ms) if when is None else when.isoformat(sep=" ", timespec="minutes")


def local(ms: int) -> datetime | None:
    """Return a time in the current time zone, or None if it has no valid date there."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).astimezone(current_time_zone())
    except (ValueError, OverflowError, OSError):
        return None


# The problems of a queue as sentences, in the current language.


def sentence(view: QueueView, what: Problem) -> str:
    """Return a text about a problem of a queue, which follows its name."""
    if view.parts and what in OF_PARTS:
        troubled = [part for part in view.parts if what in part.problems()]
        if 0 < len(troubled) < len(view.parts):
            return _of_part(view, troubled, what)
    return _of_queue(view, what)


def _of_queue(view: QueueView, what: Problem) -> str:
    match what:
        case "unreadable":
            return _("cannot be read: %(error)s") % {"error": view.error}
        case "unattended":
            return _(
                "is handled by other programs, and no runconsumer does its housekeeping: delayed messages stay, and "
                "messages of dead consumers are not recovered."
            )
        case "paused":
            return f"{_('is paused.')} {pause_details(view.pause)}".rstrip()
        case "starved":
            return _("makes no progress. %(busy)s") % {"busy": busy(view.blocker, queue=view.name)}
        case "growing":
            return _("grows: %(count)s more messages were published than handled in the last %(minutes)s minutes.") % {
                "minutes": GROWING,
                "count": number(view.growth),
            }
        case "late":
            late = _("lags: its oldest ready message has waited for %(time)s.")
            if (view.fetched_ms or 0) > (view.oldest_ms or 0):
                late = _("lags: the oldest message that was fetched and has not started has waited for %(time)s.")
            late %= {"time": duration(view.waited_ms or 0)}
            return f"{late} {busy(view.blocker, queue=view.name)}".rstrip()
    return _counted(view, what)


def _of_part(view: QueueView, troubled: Sequence[QueueView], what: Problem) -> str:
    """Return which partitions have a problem, and a text about the first of them."""
    return ngettext(
        "has a problem in %(count)s of %(total)s partitions: %(part)s %(sentence)s",
        "has a problem in %(count)s of %(total)s partitions. %(part)s %(sentence)s",
        len(troubled),
    ) % {
        "count": number(len(troubled)),
        "total": number(len(view.parts)),
        "part": troubled[0].name,
        "sentence": _of_queue(troubled[0], what),
    }


def _counted(view: QueueView, what: Problem) -> str:
    match what:
        case "unconsumed":
            return ngettext(
                "has %(count)s message and no running consumer. Is runconsumer started?",
                "has %(count)s messages and no running consumer. Is runconsumer started?",
                view.depth,
            ) % {"count": number(view.depth)}
        case "unhandled":
            return ngettext(
                "has %(count)s message without a handler in any consumer.",
                "has %(count)s messages without a handler in any consumer.",
                view.unhandled,
            ) % {"count": number(view.unhandled)}
        case "buried":
            return ngettext(
                "has %(count)s new dead letter in the last half hour.",
                "has %(count)s new dead letters in the last half hour.",
                view.recently_buried,
            ) % {"count": number(view.recently_buried)}
        case "ready" if not view.fetched:
            return ngettext(
                "has %(count)s ready message.",
                "has %(count)s ready messages.",
                view.ready,
            ) % {"count": number(view.ready)}
        case "ready":
            return ngettext(
                "has %(count)s message that has not started.",
                "has %(count)s messages that have not started.",
                view.not_started,
            ) % {"count": number(view.not_started)}
        case "dead":
            return ngettext(
                "has %(count)s dead letter.",
                "has %(count)s dead letters.",
                view.dead,
            ) % {"count": number(view.dead)}
    raise ValueError(what)


def busy(blocker: Blocker | None, *, queue: str) -> str:
    """Return which handler holds the slots of a queue's consumers, as a sentence; empty without one."""
    if blocker is None:
        return ""
    handler = {"name": escape(blocker.name), "time": duration(blocker.ms), "queue": escape(blocker.queue)}
    runs = _("“%(name)s” for %(time)s") if blocker.queue == queue else _("“%(name)s” of %(queue)s for %(time)s")
    words = {"count": number(blocker.threads), "runs": runs % handler}
    if blocker.kind == "coroutines":
        return _("All places for coroutines of its consumers are busy: %(runs)s.") % words
    return (
        ngettext(
            "The only thread of its consumers is busy: %(runs)s.",
            "All %(count)s threads of its consumers are busy: %(runs)s.",
            blocker.threads,
        )
        % words
    )


def pause_details(found: Pause | None) -> str:
    """Return who paused a queue, when, and why, as far as known."""
    if found is None:
        return ""
    since, who = "" if found.since_ms is None else date(found.since_ms), escape(found.who)
    if since and who:
        said = _("Paused by %(who)s at %(time)s.")
    elif since:
        said = _("Paused at %(time)s.")
    else:
        said = _("Paused by %(who)s.") if who else ""
    why = _("Reason: %(reason)s") % {"reason": truncate(escape(found.reason), 500)} if found.reason else ""
    return f"{said % {'who': truncate(who, 200), 'time': since}} {why}".strip()


# The problems of outboxes as sentences, in the current language.

#: Characters of an error of a database or a relay that a sentence shows.
LONGEST = 300


def outbox_sentence(view: OutboxView, what: OutboxProblem) -> str:
    """Return a text about a problem of an outbox, which follows the name of its queue or topic."""
    match what:
        case "unreadable":
            return _("cannot be read: %(error)s") % {"error": truncate(escape(view.error), LONGEST)}
        case "stopped":
            return _("gets no messages from its outbox: %(why)s") % {"why": truncate(escape(view.stopped), LONGEST)}
        case "late":
            return ngettext(
                "has %(count)s message in its outbox, which has waited for %(time)s. Is a relay running?",
                "has %(count)s messages in its outbox. The oldest has waited for %(time)s. Is a relay running?",
                view.waiting,
            ) % {"count": counted(view.waiting, is_more=view.is_more), "time": duration(view.waited_ms or 0)}
        case "set aside":
            return ngettext(
                "has %(count)s message in its outbox that cannot be published and was set aside.",
                "has %(count)s messages in its outbox that cannot be published and were set aside.",
                view.set_aside,
            ) % {"count": counted(view.set_aside, is_more=view.is_more)}


def counted(count: int, *, is_more: bool) -> str:
    """Return a number of rows, with a plus if there may be more."""
    return f"{number(count)}+" if is_more else number(count)


# The problems of queues as values, for the command `mq` and for code of projects.

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
        thresholds: the figures above which there is a problem; None: the figures of MQ_DJANGO["THRESHOLDS"].
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
