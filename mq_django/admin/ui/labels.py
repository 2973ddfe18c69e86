"""Labels for values of the inspector."""

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.ui.text import duration, number
from mq_django.core.redaction import redact_forms
from mq_django.core.visible import escape
from mq_django.inspector.explain import Cause
from mq_django.inspector.queue_view import GROWING, Problem, QueueView


def problem(view: QueueView, what: Problem) -> str:
    """Return a text about a problem of a queue, which follows its name."""
    match what:
        case "unreadable":
            return _("cannot be read: %(error)s") % {"error": view.error}
        case "unconsumed":
            return ngettext(
                "has %(count)s message and no running consumer. Is runconsumer started?",
                "has %(count)s messages and no running consumer. Is runconsumer started?",
                view.depth,
            ) % {"count": number(view.depth)}
        case "unattended":
            return _(
                "is handled by other programs, and no runconsumer does its housekeeping: delayed messages stay, and "
                "those of dead consumers are not recovered."
            )
        case "paused":
            return _("is paused.")
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
        case "growing":
            return _("grows: %(count)s more messages were published than handled in the last %(minutes)s minutes.") % {
                "minutes": GROWING,
                "count": number(view.growth),
            }
        case "late":
            return _("lags: its oldest ready message has waited for %(time)s.") % {
                "time": duration(view.oldest_ms or 0)
            }


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
    sentences = {
        "broken": _("This entry is not a valid message. A consumer moves it to the dead letters, or drops it."),
        "delayed": _("Delayed: due in %(time)s."),
        "due": _("Due: becomes ready at any moment."),
        "unattended": _("Due. No runconsumer does the housekeeping of this queue, so it does not become ready."),
        "unannounced": _("Set aside. No running consumer announces that it handles “%(name)s”."),
        "elsewhere": _("Ready. Other programs handle this queue."),
        "unhandled": _("No consumer has a handler for “%(name)s”."),
        "held": _("Held by consumer %(consumer)s for %(time)s."),
        "abandoned": _(
            "Consumer %(consumer)s holds it and is gone: no heartbeat for %(time)s. Another consumer takes the "
            "message after the visibility timeout."
        ),
        "paused": _("The queue is paused."),
        "parked": _("The limit for key “%(key)s” is reached: %(most)s at once."),
        "throttled": _(
            "The limit for key “%(key)s” is reached: %(most)s in %(window)s; the next check is in %(time)s."
        ),
        "full": _("The limit of the queue is reached: %(most)s at once."),
        "rate": _("The limit of the queue is reached: %(most)s in %(window)s; the next may start in %(time)s."),
        "unconsumed": _("No consumer of this queue is running. Is runconsumer started?"),
        "next": _("Ready: the next free thread will take it."),
        "behind": _("At least %(count)s messages are before it.")
        if cause.at_least
        else ngettext("%(count)s message is before it.", "%(count)s messages are before it.", cause.count),
    }
    said = sentences[cause.kind] % {
        "time": duration(cause.ms),
        "key": escape(redact_forms(cause.key)) if can_see_data else "…",
        "most": number(cause.most),
        "window": duration(round(cause.window.total_seconds() * 1000)),
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
