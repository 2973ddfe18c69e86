"""Labels for values of the inspector."""

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.ui.text import date, duration, number, period
from mq_django.core.redaction import redact_forms
from mq_django.core.visible import escape, truncate
from mq_django.inspector.explain import Cause
from mq_django.inspector.queue_view import GROWING, Blocker, Pause, Problem, QueueView


def problem(view: QueueView, what: Problem) -> str:
    """Return a text about a problem of a queue, which follows its name."""
    match what:
        case "unreadable":
            return _("cannot be read: %(error)s") % {"error": view.error}
        case "damaged":
            return _damage(view)
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
            late = _("lags: its oldest ready message has waited for %(time)s.") % {
                "time": duration(view.oldest_ms or 0)
            }
            return f"{late} {busy(view.blocker, queue=view.name)}".rstrip()
    return _counted(view, what)


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
    raise ValueError(what)


def busy(blocker: Blocker | None, *, queue: str) -> str:
    """Return which handler holds the lanes of a queue's consumers, as a sentence; empty without one."""
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


def _damage(view: QueueView) -> str:
    kind, messages, age_ms = view.damage or ("", 0, 0)
    known = {
        "DELETED": _("its stream was deleted with %(count)s undelivered messages."),
        "TRIMMED": _("%(count)s undelivered messages were trimmed from its stream and are lost."),
        "REMOVED": _("%(count)s messages were removed from its stream while consumers held them."),
        "SKIPPED": _("%(count)s messages or more are not delivered, because its consumer group was moved."),
        "DESTROYED": _("its consumer group was removed. Messages that were being handled repeat."),
        "MOVED": _("its consumer group was moved. %(count)s messages or more are skipped."),
        "MOVED_BACK": _("its consumer group was moved back. %(count)s messages or more are delivered again."),
        "LOST": _("%(count)s messages were removed from its topic before it read them."),
        "AHEAD": _("its stream has an entry with an id far in the future. Publishing may fail."),
    }
    about = known.get(kind, _("its streams were changed.")) % {"count": number(messages)}
    return _("was damaged by another program %(time)s ago: %(about)s") % {"time": duration(age_ms), "about": about}


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


def reason(word: str) -> str:
    """Return why a message is dead."""
    known = {
        "attempts": _("out of attempts"),
        "error": _("given up by its handler"),
        "undecodable": _("could not be decoded"),
        "crashed": _("its process died"),
        "expired": _("expired"),
    }
    return known.get(word, word)


def why(cause: Cause, *, name: str, can_see_data: bool) -> str:
    """Return why a message is not running. Shows keys only to users who may see data."""
    if cause.blocker is not None:
        return _why_busy(cause, cause.blocker)
    sentences = {
        "broken": _("This entry is not a valid message. A consumer moves it to the dead letters, or drops it."),
        "delayed": _("Delayed: due in %(time)s."),
        "due": _("Due: becomes ready at any moment."),
        "unattended": _("Due. No runconsumer does the housekeeping of this queue, so it does not become ready."),
        "unannounced": _("Set aside. No running consumer announces that it handles “%(name)s”."),
        "elsewhere": _("Ready. Other programs handle this queue."),
        "unhandled": _("No consumer has a handler for “%(name)s”."),
        "running": _("Running on consumer %(consumer)s for %(time)s."),
        "held": _("Held by consumer %(consumer)s."),
        "fetched": _("Held by consumer %(consumer)s. As of its last heartbeat, it has not started."),
        "abandoned": _(
            "Consumer %(consumer)s holds it and is gone: no heartbeat for %(time)s. Another consumer takes the "
            "message after the visibility timeout."
        ),
        "paused": f"{_('The queue is paused.')} {pause_details(cause.pause)}".rstrip(),
        "parked": _("The limit for key “%(key)s” is reached: %(most)s at once."),
        "throttled": _(
            "The limit for key “%(key)s” is reached: %(most)s in %(window)s; the next check is in %(time)s."
        ),
        "full": _("The limit of the queue is reached: %(most)s at once."),
        "rate": _("The limit of the queue is reached: %(most)s in %(window)s; the next may start in %(time)s."),
        "unconsumed": _("No consumer of this queue is running. Is runconsumer started?"),
        "next": _("Ready: the next free thread will take it."),
        "behind": _before(cause),
    }
    said = sentences[cause.kind] % {
        "time": duration(cause.ms),
        "key": escape(redact_forms(cause.key)) if can_see_data else "…",
        "most": number(cause.most),
        "window": period(cause.window),
        "count": number(cause.count),
        "name": escape(name),
        "consumer": escape(cause.consumer),
    }
    if cause.kind in ("parked", "throttled") and cause.count:
        before = ngettext(
            "%(count)s message of that key is before it.",
            "%(count)s messages of that key are before it.",
            cause.count,
        )
        return f"{said} {before % {'count': number(cause.count)}}"
    return said


def _before(cause: Cause) -> str:
    if cause.at_least:
        return _("At least %(count)s messages are before it.") % {"count": number(cause.count)}
    words = ngettext("%(count)s message is before it.", "%(count)s messages are before it.", cause.count)
    return words % {"count": number(cause.count)}


def _why_busy(cause: Cause, blocker: Blocker) -> str:
    held = _("Consumer %(consumer)s holds it and has not started it.") % {"consumer": escape(cause.consumer)}
    parts = [held if cause.consumer else _("Ready."), busy(blocker, queue="")]
    return " ".join([*parts, _before(cause)] if cause.count else parts)
