"""Why a message is dead, or is not running, as sentences in the current language."""

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.core.redaction import redact_forms
from mq_django.core.visible import escape
from mq_django.inspector.explain import Cause
from mq_django.inspector.figures import duration, number, period
from mq_django.inspector.problem_sentences import busy, pause_details
from mq_django.inspector.queue_view import Blocker


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
