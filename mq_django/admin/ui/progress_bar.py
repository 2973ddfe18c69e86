"""The progress of a message or a run as a bar and text."""

from typing import Any

from django.utils.formats import number_format
from django.utils.translation import gettext as _

from mq_django.admin.ui import text
from mq_django.core.reports import Number, Progress
from mq_django.inspector.progress_views import progress_of


def bar_of(queue: str, message_id: str, *, can_see_data: bool) -> dict[str, Any] | None:
    """Return what the template `progress.html` shows of a message; None if it has reported nothing."""
    (found,) = progress_of([(queue, message_id)])
    return bar(found, can_see_data=can_see_data)


def bar(progress: Progress | None, *, can_see_data: bool) -> dict[str, Any] | None:
    """Return what the template `progress.html` shows. A note may contain data, so not every user may see it."""
    if progress is None:
        return None
    done, fraction = _number(progress.done), progress.fraction
    said = (
        done
        if progress.total is None
        else _("%(done)s of %(total)s")
        % {
            "done": done,
            "total": _number(progress.total),
        }
    )
    return {
        # Not in the user's language: it is an attribute.
        "permille": "" if fraction is None else str(int(fraction * 1000)),
        "percent": "" if fraction is None else text.percent(fraction),
        "said": said,
        "note": text.visible(progress.note, limit=500) if progress.note and can_see_data else "",
        "at": text.moment(progress.at_ms),
    }


def share_bar(share: float | None, said: str) -> dict[str, Any]:
    """Return what the template `progress.html` shows of a share from 0 to 1, or None, and a sentence."""
    return {
        "permille": "" if share is None else str(int(min(1.0, share) * 1000)),
        "percent": "" if share is None else text.percent(min(1.0, share)),
        "said": said,
        "note": "",
        "at": "",
    }


def _number(value: Number) -> str:
    return text.number(value) if value == int(value) else str(number_format(value, decimal_pos=1, force_grouping=True))
