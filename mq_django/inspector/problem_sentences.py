"""The problems of queues, outboxes, schedules and runs as sentences in the current language."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta, tzinfo
from math import inf

from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.conf import current_time_zone
from mq_django.core.breakers import Hold
from mq_django.core.filters import error_class, is_exception
from mq_django.core.limits import NO_LIMIT, LimitChange, LimitName, Limits
from mq_django.core.project import OF_PARTS, Problem
from mq_django.core.redaction import redact_forms
from mq_django.core.texts import escape, truncate
from mq_django.inspector.outbox_views import OutboxProblem, OutboxView
from mq_django.inspector.queue_view import GROWING, Blocker, HeldKeys, Pause, QueueView
from mq_django.inspector.workflow_runs import StuckRuns
from mq_django.stores.schedule_status import PlannedSchedule

# Numbers, durations and times as words, in the current language and time zone.

# Milliseconds of each unit, and the number from which the next unit is used.
_UNITS = (("s", 1000, 120), ("min", 60_000, 120), ("h", 3_600_000, 72), ("d", 86_400_000, inf))


def number(value: float) -> str:
    """Return a number with separators, rounded."""
    # Django truncates decimals: 9.9 would become 9.
    return str(number_format(round(value), use_l10n=True, force_grouping=True))


def duration(ms: int) -> str:
    """Return a measured duration, rounded down to one unit; "< 1 s" for a shorter one."""
    if 0 < ms < 1000:
        return _("< 1 s")
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


#: The time zone of sentences; None: the one that is active in Django.
_time_zone: ContextVar[tzinfo | None] = ContextVar("_time_zone", default=None)


@contextmanager
def times_in(zone: tzinfo) -> Iterator[None]:
    """Write times in a time zone inside this block, whatever Django's is."""
    token = _time_zone.set(zone)
    try:
        yield
    finally:
        _time_zone.reset(token)


def date(ms: int) -> str:
    """Return a time as date and time in the current time zone."""
    when = local(ms)
    return str(ms) if when is None else when.isoformat(sep=" ", timespec="seconds")


def local(ms: int) -> datetime | None:
    """Return a time in the current time zone, in UTC if it has no date there, or None if it has none at all."""
    found = None
    with suppress(ValueError, OverflowError, OSError):
        found = datetime.fromtimestamp(ms / 1000, UTC)
        return found.astimezone(_time_zone.get() or current_time_zone())
    return found


# The problems of a queue as sentences, in the current language.


def title(kind: Problem) -> str:
    """Return what a kind of problem is called."""
    titles: dict[Problem, str] = {
        "unreadable": _("Cannot be read"),
        "unconsumed": _("No consumer"),
        "unattended": _("No housekeeping"),
        "outbox": _("Outbox"),
        "stalled": _("Standing still"),
        "lost": _("Lost messages"),
        "retention": _("Near the end of the retention"),
        "held": _("Keys held by dead letters"),
        "breaker": _("Open breakers"),
        "starved": _("All slots busy"),
        "unhandled": _("No handler"),
        "schedule": _("Schedules"),
        "stuck": _("Workflows that do not go on"),
        "growing": _("Growing"),
        "buried": _("New dead letters"),
        "late": _("Late"),
        "paused": _("Paused"),
        "hold": _("Held messages"),
        "ready": _("Too many ready messages"),
        "dead": _("Too many dead letters"),
    }
    return titles[kind]


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
            return " ".join([_("is paused."), pause_details(view.pause)]).rstrip()
        case "starved":
            return _("makes no progress. %(busy)s") % {"busy": busy(view.blocker, queue=view.name)}
        case "growing":
            grows = ngettext(
                "grows: %(count)s more message was published than handled in the last %(minutes)s minutes.",
                "grows: %(count)s more messages were published than handled in the last %(minutes)s minutes.",
                view.growth,
            )
            return grows % {"minutes": GROWING, "count": number(view.growth)}
        case "stalled":
            return _(
                "stands still: its oldest message has waited for %(time)s, and no handler has run, although threads "
                "are free. Look at the log of its consumers."
            ) % {"time": duration(view.waited_ms or 0)}
        case "late":
            return f"{_late(view)} {busy(view.blocker, queue=view.name)}".rstrip()
        case "held" | "breaker" | "hold":
            return _of_held(view, what)
        case "retention":
            share = number(100 * (view.retention or 0))
            return _("lags by %(percent)s %% of the retention. At 100 %% it loses messages.") % {"percent": share}
    return _counted(view, what)


def _late(view: QueueView) -> str:
    waited = [
        (view.oldest_ms, _("lags: its oldest ready message has waited for %(time)s.")),
        (view.fetched_ms, _("lags: the oldest message that was fetched and has not started has waited for %(time)s.")),
        (view.parked_ms, _("lags: the oldest message that is parked for its key has waited for %(time)s.")),
    ]
    ms, words = max(waited, key=lambda each: each[0] or 0)
    return words % {"time": duration(ms or 0)}


def _of_held(view: QueueView, what: Problem) -> str:
    """Return which keys wait for dead letters, for what a breaker waits, or what people hold."""
    if what == "held":
        return _held(view.held, view.now_ms)
    if what == "breaker":
        first, *others = view.open_breakers or [Hold(kind="queue", state="open")]
        return f"{breaker(first, view.now_ms)} {_more(len(others))}".rstrip()
    first, *others = view.held_by_people or [Hold(kind="key")]
    said = _("holds its messages named “%(name)s”.") if first.kind == "name" else _("holds the messages of a key.")
    words = [said % {"name": truncate(escape(redact_forms(first.value)), 200)}, _more(len(others)), hold_details(first)]
    return " ".join(filter(None, words))


def _held(held: HeldKeys, now_ms: int) -> str:
    said = ngettext(
        "has %(count)s key that waits for a dead letter since %(time)s, with %(messages)s parked messages.",
        "has %(count)s keys that wait for dead letters, the first since %(time)s, with %(messages)s parked messages.",
        held.keys,
    )
    words = {"count": number(held.keys), "messages": number(held.messages), "time": date(held.since_ms or now_ms)}
    return said % words


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
        case "lost":
            return ngettext(
                "lost %(count)s message to retention before delivery.",
                "lost %(count)s messages to retention before delivery.",
                view.lost,
            ) % {"count": number(view.lost)}
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
    """Return who paused a queue, when, why, and by which action on several queues, as far as known."""
    if found is None:
        return ""
    since, who = "" if found.since_ms is None else date(found.since_ms), escape(found.who)
    alone = _("Paused at %(time)s.") if since else _("Paused by %(who)s.") if who else ""
    said = _("Paused by %(who)s at %(time)s.") if since and who else alone
    why = _("Reason: %(reason)s") % {"reason": truncate(escape(found.reason), 500)} if found.reason else ""
    action = _("Action: %(name)s.") % {"name": truncate(escape(found.name), 200)} if found.name else ""
    return " ".join(filter(None, [said % {"who": truncate(who, 200), "time": since}, action, why]))


# What is held, as sentences in the current language.


def breaker(found: Hold, now_ms: int) -> str:
    """Return since when and why messages wait for a breaker, as a text that follows the name of their queue."""
    said = {
        "queue": _("waits for its partner since %(time)s: %(why)s"),
        "name": _("waits for the partner of “%(name)s” since %(time)s: %(why)s"),
        "key": _("waits for the partner of a key since %(time)s: %(why)s"),
    }[found.kind]
    since, name = date(found.since_ms or now_ms), truncate(escape(redact_forms(found.value)), 200)
    return said % {"time": since, "name": name, "why": breaker_details(found, now_ms)}


def breaker_cause(found: Hold) -> str:
    """Return why a breaker is open, or who has opened it. The text of its last error may contain data."""
    if found.of:
        name = error_class(found.error)
        words = {"error": truncate(escape(name), 200), "failed": number(found.failed), "of": number(found.of)}
        why = (_("%(error)s, %(failed)s of %(of)s") if is_exception(name) else _("%(failed)s of %(of)s failed")) % words
    else:
        who = {"who": truncate(escape(found.who), 200)}
        why = _("opened by %(who)s") % who if found.who else _("opened by hand")
    return f"{why} ({truncate(escape(found.reason), 500)})" if found.reason else why


def breaker_details(found: Hold, now_ms: int) -> str:
    """Return why a breaker is open, and what it does next."""
    left = (found.next_ms or now_ms) - now_ms
    if found.state == "ramp":
        then = ngettext(
            "it is back, %(count)s message at once", "it is back, %(count)s messages at once", found.level
        ) % {"count": number(found.level)}
    elif left > 0:
        then = _("next probe in %(time)s") % {"time": duration(left)}
    else:
        then = _("its next message is a probe")
    return f"{breaker_cause(found)}; {then}."


def hold_details(found: Hold) -> str:
    """Return who holds messages, since when, until when, and why, as far as known."""
    since, who = "" if found.since_ms is None else date(found.since_ms), truncate(escape(found.who), 200)
    alone = _("Held since %(time)s.") if since else _("Held by %(who)s.") if who else ""
    said = _("Held by %(who)s since %(time)s.") if since and who else alone
    ends = "" if found.until_ms is None else _("Until %(time)s.") % {"time": date(found.until_ms)}
    why = _("Reason: %(reason)s") % {"reason": truncate(escape(found.reason), 500)} if found.reason else ""
    return " ".join(filter(None, [said % {"who": who, "time": since}, ends, why]))


def limit_label(name: LimitName) -> str:
    """Return what a limit is called."""
    return {
        "rate": _("Rate of the queue"),
        "concurrency": _("Concurrency of the queue"),
        "key_rate": _("Rate of each key"),
        "key_concurrency": _("Concurrency of each key"),
    }[name]


def changed_limit(change: LimitChange, limits: Limits) -> str:
    """Return how a limit was changed, since when, by whom and why, as far as known.

    Args:
        change: the change.
        limits: the limits of the settings.
    """
    words = {
        "what": limit_label(change.limit),
        "now": _("no limit") if change.value == NO_LIMIT else change.value,
        "before": str(getattr(limits, change.limit) or _("no limit")),
    }
    said = [_("%(what)s: %(now)s instead of %(before)s.") % words]
    if change.since_ms is not None:
        said.append(_("Since %(time)s.") % {"time": date(change.since_ms)})
    if change.who:
        said.append(_("Changed by %(who)s.") % {"who": truncate(escape(change.who), 200)})
    if change.reason:
        said.append(_("Reason: %(reason)s") % {"reason": truncate(escape(change.reason), 500)})
    return " ".join(said)


def _more(count: int) -> str:
    return ngettext("And %(count)s more.", "And %(count)s more.", count) % {"count": number(count)} if count else ""


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


# The problems of schedules and of runs of workflows as sentences, in the current language.


def schedule_sentence(plan: PlannedSchedule, overdue_ms: int) -> str:
    """Return a text about a schedule that does not fire, which follows the name of its queue."""
    name = escape(truncate(plan.name, 80))
    if plan.problem:
        return _("has a schedule that does not fire: %(name)s.") % {"name": name}
    return _("has a schedule that no consumer fires: %(name)s, overdue for %(time)s.") % {
        "name": name,
        "time": duration(overdue_ms),
    }


def stuck_sentence(stuck: StuckRuns) -> str:
    """Return a text about runs of workflows that do not go on, which follows a name."""
    why = _("The queue of its next step is not in the settings.")
    if stuck.kind == "start":
        why = _("Its next step cannot be published. Is the queue full?")
    said = ngettext(
        "have %(count)s run that does not go on: %(run)s. %(why)s",
        "have %(count)s runs that do not go on, such as %(run)s. %(why)s",
        stuck.runs,
    )
    return said % {"count": number(stuck.runs), "run": escape(stuck.run), "why": why}
