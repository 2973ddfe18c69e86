"""Why a message is dead, or is not running, as sentences in the current language."""

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.core.redaction import redact_forms
from mq_django.core.visible import escape
from mq_django.inspector.explain import Cause
from mq_django.inspector.figures import duration, number, period
from mq_django.inspector.key_lines import LineHead
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
        "uncertain": _("may have been handled before"),
    }
    return known.get(word, word)


def why(cause: Cause, *, name: str, can_see_data: bool) -> str:
    """Return why a message is not running. Shows keys only to users who may see data."""
    if cause.blocker is not None:
        return _why_busy(cause, cause.blocker)
    if cause.head is not None:
        return _with_line(cause, _("It waits for %(message)s") % {"message": head_words(cause.head, cause.now_ms)})
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
        "ordered": _("Another message of its key has not ended."),
        "turn": _("It waits for the turn of its key."),
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
    return _with_line(cause, said) if cause.kind in ("parked", "throttled", "turn") else said


def head_words(head: LineHead, now_ms: int) -> str:
    """Return which message the others of the same key wait for, and its state, as the end of a sentence."""
    sentences = {
        "running": _("message %(id)s of the same key, which has been running on consumer %(consumer)s for %(time)s."),
        "held": _("message %(id)s of the same key, which consumer %(consumer)s holds."),
        "fetched": _(
            "message %(id)s of the same key, which consumer %(consumer)s holds. As of its last heartbeat, it has not "
            "started."
        ),
        "abandoned": _(
            "message %(id)s of the same key, which consumer %(consumer)s holds. That consumer is gone; another one "
            "takes the message after the visibility timeout."
        ),
        "ready": _("message %(id)s of the same key, which is ready."),
        "delayed": _("message %(id)s of the same key, which is tried again in %(time)s, as attempt %(attempt)s."),
        "unhandled": _("message %(id)s of the same key: no consumer has a handler for its name, “%(name)s”."),
        "dead": _("message %(id)s of the same key, which is a dead letter and holds the key."),
        "gone": _("message %(id)s of the same key, which no longer exists. The next check lets the key go on."),
    }
    ms = (head.due_ms or now_ms) - now_ms if head.place == "delayed" else now_ms - (head.since_ms or now_ms)
    return sentences[head.place] % {
        "id": "…" if head.id.startswith(UNIQUE_PREFIX) else escape(head.id),
        "consumer": escape(head.consumer),
        "name": escape(head.name),
        "attempt": number(head.attempt),
        "time": duration(max(0, ms)),
    }


def _with_line(cause: Cause, said: str) -> str:
    """Return a sentence, with how many messages of the same key are before it."""
    if not cause.count:
        return said
    before = ngettext(
        "%(count)s message of that key is before it.",
        "%(count)s messages of that key are before it.",
        cause.count,
    )
    return f"{said} {before % {'count': number(cause.count)}}"


def _before(cause: Cause) -> str:
    if cause.at_least:
        return _("At least %(count)s messages are before it.") % {"count": number(cause.count)}
    words = ngettext("%(count)s message is before it.", "%(count)s messages are before it.", cause.count)
    return words % {"count": number(cause.count)}


def _why_busy(cause: Cause, blocker: Blocker) -> str:
    held = _("Consumer %(consumer)s holds it and has not started it.") % {"consumer": escape(cause.consumer)}
    parts = [held if cause.consumer else _("Ready."), busy(blocker, queue="")]
    return " ".join([*parts, _before(cause)] if cause.count else parts)
