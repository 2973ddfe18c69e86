"""Background jobs as text: what they do, how far they are, and the fields of their forms."""

from django.utils.translation import gettext as _

from mq_django.admin.ui import text
from mq_django.admin.ui.references import HIDDEN
from mq_django.core.filters import FailureGroup, is_exception
from mq_django.core.visible import escape
from mq_django.errors import InvalidFilter
from mq_django.inspector.jobs import BackgroundJob, pace_of

#: The highest rate that can be entered.
MAX_RATE = 1_000_000


def in_background() -> str:
    """Return the sentence about jobs for a confirmation page."""
    return _("It runs in the background. You can follow its progress and cancel it.")


def rate_input() -> dict[str, str]:
    """Return the field for the rate of a job, for a confirmation page."""
    shown = {"name": "rate", "label": _("Rate (messages/s)"), "value": "", "help": _("Empty = unlimited.")}
    return {**shown, "max": str(MAX_RATE)}


def scanned(found: BackgroundJob) -> str:
    """Return how many messages a job has scanned, of how many."""
    return _("%(count)s of %(total)s") % {"count": text.number(found.looked), "total": text.number(found.total)}


def pace(found: BackgroundJob) -> str:
    """Return how far a running job is, how fast, and when it ends if it continues like this; else empty."""
    paced = pace_of(found)
    if paced is None:
        return ""
    per_second, left_ms = paced
    return _("Scanned %(scanned)s, %(count)s/s, about %(time)s left.") % {
        "scanned": scanned(found),
        "count": text.number(max(1, per_second)),
        "time": text.duration(left_ms),
    }


def progress(found: BackgroundJob) -> str:
    """Return what a job does, or did, and to how many messages."""
    done = text.number(found.done)
    if found.place:
        return _deleted(found.state, done)
    sentences: dict[tuple[str, str], str] = {
        ("redrive", "running"): _("Redriving: %(done)s so far."),
        ("redrive", "finished"): _("Redriven: %(done)s dead letters."),
        ("redrive", "cancelled"): _("Cancelled after %(done)s dead letters were redriven."),
        ("move", "running"): _("Moving to %(target)s: %(done)s so far."),
        ("move", "finished"): _("Moved to %(target)s: %(done)s dead letters."),
        ("move", "cancelled"): _("Cancelled after %(done)s dead letters were moved to %(target)s."),
        ("delete", "running"): _("Deleting: %(done)s so far."),
        ("delete", "finished"): _("Deleted: %(done)s dead letters."),
        ("delete", "cancelled"): _("Cancelled after %(done)s dead letters were deleted."),
    }
    return sentences[found.what, found.state] % {"done": done, "target": escape(found.target)[:160]}


def _deleted(state: str, done: str) -> str:
    sentences = {
        "running": _("Deleting messages: %(done)s so far."),
        "finished": _("Deleted: %(done)s messages."),
        "cancelled": _("Cancelled after %(done)s messages were deleted."),
    }
    return sentences[state] % {"done": done}


def filter_text(found: BackgroundJob, *, can_see_data: bool) -> str:
    """Return the filter of a job as text. Keys and errors may contain message data."""
    criteria = found.criteria
    if not criteria:
        return places(found.place) if found.place else _("All dead letters at the start of the job.")
    group = criteria.group
    words = [
        (_("name contains “%s”"), criteria.name),
        (_("key is “%s”"), criteria.key if can_see_data or not criteria.key else HIDDEN),
        (_("error contains “%s”"), criteria.error if can_see_data or not criteria.error else HIDDEN),
        (_("published from %s"), "" if criteria.since_ms is None else text.date(criteria.since_ms)),
        (_("published until %s"), "" if criteria.until_ms is None else text.date(criteria.until_ms)),
        (_("name is “%s”"), group.name if group else ""),
        (_("error is “%s”"), _group_error(group, can_see_data=can_see_data)),
    ]
    selected = ", ".join(word % value for word, value in words if value)
    return f"{places(found.place)} {selected}" if found.place else selected


def _group_error(group: FailureGroup | None, *, can_see_data: bool) -> str:
    if group is None or not group.error or can_see_data or is_exception(group.error):
        return group.error if group else ""
    return HIDDEN


def places(place: str) -> str:
    """Return which messages a job on a place is about."""
    return {
        "ready": _("Ready messages at the start of the job."),
        "delayed": _("Delayed messages at the start of the job."),
        "unhandled": _("Unhandled messages at the start of the job."),
        "parked": _("Parked messages at the start of the job."),
    }[place]


def read_rate(value: str) -> int:
    """Return the rate in messages per second, 0 for no limit. Invalid input must not mean no limit."""
    if not value:
        return 0
    if not (value.isdecimal() and len(value) < 10 and 0 < int(value) <= MAX_RATE):
        raise InvalidFilter(_("A rate is a number from 1 to %(most)s.") % {"most": text.number(MAX_RATE)})
    return int(value)
