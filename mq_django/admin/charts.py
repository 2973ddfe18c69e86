"""Charts as inline SVG: attributes and classes only, so that no content security policy stands in the way."""

from collections.abc import Sequence

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from mq_django.admin.text import duration, number, seconds
from mq_django.inspector.activity import Activity

#: Minutes of a sparkline.
SHORT = 30

_HEIGHT = 100


def sparkline(values: Sequence[int], *, label: str) -> SafeString:
    """Return a small line of counts a minute, without the running minute: it would always fall at the end."""
    some = values[-SHORT - 1 : -1]
    top = max(*some, 1)
    points = " ".join(f"{place * 4},{22 - 20 * value / top:.1f}" for place, value in enumerate(some))
    return format_html(
        '<svg class="mq-spark" viewBox="0 0 {} 24" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<polygon points="0,24 {} {},24"/><polyline points="{}"/></svg>',
        (len(some) - 1) * 4,
        label,
        points,
        (len(some) - 1) * 4,
        points,
    )


def columns(activity: Activity, *, label: str) -> SafeString:
    """Return a chart: a column a step, failures on top, and a line of what was published."""
    width = len(activity.published) * 10
    failed = [sum(pair) for pair in zip(activity.retried, activity.buried, strict=True)]
    top = chart_top(activity)
    line = " ".join(
        f"{place * 10 + 5},{_HEIGHT - _HEIGHT * count / top:.1f}" for place, count in enumerate(activity.published)
    )
    bars = format_html_join(
        "",
        '<g><title>{}</title><rect class="mq-column" x="{}" y="0" width="10" height="100"/>'
        '<rect class="mq-handled" x="{}" y="{}" width="8" height="{}"/>'
        '<rect class="mq-failed" x="{}" y="{}" width="8" height="{}"/></g>',
        (
            (
                _column_title(activity, place),
                place * 10,
                place * 10 + 1,
                f"{_HEIGHT - _HEIGHT * handled / top:.1f}",
                f"{_HEIGHT * handled / top:.1f}",
                place * 10 + 1,
                f"{_HEIGHT - _HEIGHT * (handled + failed[place]) / top:.1f}",
                f"{_HEIGHT * failed[place] / top:.1f}",
            )
            for place, handled in enumerate(activity.handled)
        ),
    )
    return format_html(
        '<svg class="mq-hour" viewBox="0 0 {} 100" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<line x1="0" y1="50" x2="{}" y2="50"/>{}<polyline points="{}"/></svg>',
        width,
        label,
        width,
        bars,
        line,
    )


def chart_top(activity: Activity) -> int:
    """Return the count at the top of a chart: the next of 1, 2, 5, 10, 20, ..."""
    stacks = zip(activity.handled, activity.retried, activity.buried, strict=True)
    highest = max(*map(sum, stacks), *activity.published, 2)
    scale: int = 10 ** (len(str(highest)) - 1)
    return next(step * scale for step in (1, 2, 5, 10) if step * scale >= highest)


def summary(activity: Activity) -> str:
    """Return a chart in words."""
    said = _("%(published)s published, %(handled)s handled, %(retried)s failed and retried, %(buried)s buried.") % {
        "published": number(sum(activity.published)),
        "handled": number(sum(activity.handled)),
        "retried": number(sum(activity.retried)),
        "buried": number(sum(activity.buried)),
    }
    if activity.p50 is None:
        return said
    times = _("Half were handled within %(half)s, 95 of 100 within %(most)s.")
    return f"{said} {times % {'half': seconds(activity.p50), 'most': seconds(activity.p95)}}"


def _column_title(activity: Activity, place: int) -> str:
    return _("%(ago)s ago: %(published)s published, %(handled)s handled, %(retried)s retried, %(buried)s buried") % {
        "ago": duration((len(activity.published) - 1 - place) * activity.minutes * 60_000),
        "published": number(activity.published[place]),
        "handled": number(activity.handled[place]),
        "retried": number(activity.retried[place]),
        "buried": number(activity.buried[place]),
    }
