"""Where a group of a topic is in the log, as a section of its page and a row of tables."""

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
    """Return what the page of a group says about its place in the log."""
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
    """Return where a group is, label by label."""
    if not group.subscribed:
        return [(_("State"), _("not subscribed: it begins when its first consumer starts"))]
    given = text.moment(group.offset_ms, now=topic.now_ms) if group.offset_ms else _("none yet")
    rows = [
        (_("Last message given"), given),
        (_("Offset"), text.visible(group.offset)),
        (_("Lag"), lag(group)),
        (_("Held by consumers"), text.number(group.pending)),
        (_("Retention used"), retention(group)),
        (_("Lost to the retention"), text.number(group.lost) if group.lost else ""),
        (_("Subscriber"), _("in this code") if group.name in topic.in_code else _("not in this code")),
    ]
    return [(label, value) for label, value in rows if value]


def lag(group: GroupStats) -> str:
    """Return how far a group is behind, in messages and in time."""
    if not group.lag:
        return _("none")
    words = ngettext("%(count)s message, %(time)s", "%(count)s messages, %(time)s", group.lag)
    return words % {"count": lag_count(group), "time": text.duration(group.lag_ms)}


def lag_count(group: GroupStats) -> str:
    """Return how many messages of the log a group was not given."""
    count = text.number(group.lag)
    return _("over %(count)s") % {"count": count} if group.at_least else count


def retention(group: GroupStats) -> SafeString | str:
    """Return how much of the retention a group is behind, as a bar and in words."""
    if group.share is None:
        return ""
    percent = text.percent(group.share)
    return charts.meter(group.share, label=percent, bad=group.alarm is not None) + text.visible(percent)


def alarms(group: GroupStats) -> list[dict[str, str]]:
    """Return what is wrong with a group's place, as sentences to stand behind its name."""
    found = []
    if group.alarm is not None:
        words = _("is behind by %(percent)s of the retention. At 100 %% it loses messages.")
        found.append({"sentence": words % {"percent": text.percent(group.share or 0)}, "what": "alarm"})
    if group.lost:
        words = ngettext(
            "lost %(count)s message to the retention before it was given it.",
            "lost %(count)s messages to the retention before it was given them.",
            group.lost,
        )
        found.append({"sentence": words % {"count": text.number(group.lost)}, "what": "lost"})
    return found
