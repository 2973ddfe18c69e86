"""The offset and lag of a group of a topic, for its page and for tables."""

from typing import Any

from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.ui import charts, text
from mq_django.admin.ui.page import Page
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.inspector import topics
from mq_django.inspector.topics import GroupStats, TopicView


def section(page: Page, name: str) -> dict[str, Any]:
    """Return the context of a group's page about its position in the log."""
    topic, _separator, group = name.partition(GROUP_SEPARATOR)
    view = topics.topic(topic)
    found = view.group(group)
    return {
        "place": facts(view, found),
        "subscribed": found.subscribed,
        "seek_url": page.url("seek", name),
        "unsubscribe_url": page.url("unsubscribe", name),
        "alarms": [{"queue": name, **alarm} for alarm in alarms(found)],
    }


def facts(topic: TopicView, group: GroupStats) -> list[tuple[str, SafeString | str]]:
    """Return the labels and values of a group's position."""
    if not group.subscribed:
        return [(_("State"), _("not subscribed: created when its first consumer starts"))]
    given = text.moment(group.offset_ms, now=topic.now_ms) if group.offset_ms else _("none yet")
    rows = [
        (_("Last delivered message"), given),
        # With partitions it has one in each.
        (_("Offset"), "" if topic.parts else text.visible(group.offset)),
        (_("Lag"), lag(group)),
        (_("Pending"), text.number(group.pending)),
        (_("Retention used"), retention(group)),
        (_("Lost to retention"), text.number(group.lost) if group.lost else ""),
        (_("Subscriber"), _("in this code") if group.name in topic.in_code else _("not in this code")),
    ]
    return [(label, value) for label, value in rows if value]


def lag(group: GroupStats) -> str:
    """Return the lag of a group in messages and time."""
    if not group.lag:
        return _("none")
    words = ngettext("%(count)s message, %(time)s", "%(count)s messages, %(time)s", group.lag)
    return words % {"count": lag_count(group), "time": text.duration(group.lag_ms)}


def lag_count(group: GroupStats) -> str:
    """Return the number of undelivered messages of a group."""
    count = text.number(group.lag)
    return _("over %(count)s") % {"count": count} if group.at_least else count


def retention(group: GroupStats) -> SafeString | str:
    """Return the used share of the retention as a bar and text."""
    if group.share is None:
        return ""
    percent = text.percent(group.share)
    return charts.meter(group.share, label=percent, bad=group.alarm is not None) + text.visible(percent)


def alarms(group: GroupStats) -> list[dict[str, str]]:
    """Return the problems of a group as texts, which follow its name."""
    found = []
    if group.alarm is not None:
        words = _("lags by %(percent)s of the retention. At 100 %% it loses messages.")
        found.append({"sentence": words % {"percent": text.percent(group.share or 0)}, "what": "alarm"})
    if group.lost:
        words = ngettext(
            "lost %(count)s message to retention before delivery.",
            "lost %(count)s messages to retention before delivery.",
            group.lost,
        )
        found.append({"sentence": words % {"count": text.number(group.lost)}, "what": "lost"})
    return found
