"""The page of a topic, and the section of topics and groups on the page of all queues."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

from django.http import HttpResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from mq_django import inspector
from mq_django.admin import outbox_page
from mq_django.admin.ui import charts, text
from mq_django.admin.ui.page import VIEW, Page, listed_problems, needs, topic_tabs
from mq_django.admin.ui.text import settings_of
from mq_django.conf import get_config
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.errors import StoreError
from mq_django.inspector import topics
from mq_django.inspector.problem_list import QueueProblem, get_mutes, problems_among
from mq_django.inspector.queue_view import Activity, QueueView
from mq_django.inspector.queues import activity_in
from mq_django.inspector.topics import GroupStats, TopicView
from mq_django.stores.preferences import Mutes

# The offset and lag of a group of a topic, for its page and for tables.


def section(page: Page, name: str) -> dict[str, Any]:
    """Return the context of a group's page about its position in the log."""
    topic, _separator, group = name.partition(GROUP_SEPARATOR)
    view = topics.topic(topic)
    found = view.group(group)
    return {
        "position": facts(view, found),
        "subscribed": found.subscribed,
        "seek_url": page.url("seek", name),
        "unsubscribe_url": page.url("unsubscribe", name),
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


PARTS = ("tabs", "problems", "tiles", "topic_groups", "topic_chart")


@needs(VIEW)
def topic(page: Page, topic: str) -> HttpResponse:
    """Show a topic: its log, its groups and its activity."""
    live_url = page.url("topic_stats", topic) + charts.query(charts.span_of(page), "")
    return page.render("topic", topic, live_url=live_url, settings=settings_of(topic), **_context(page, topic))


@needs(VIEW)
def stats(page: Page, topic: str) -> HttpResponse:
    """Return the live parts of the page."""
    context = _context(page, topic)
    return page.parts([*PARTS, *(["topic_partitions"] if context["partitions"] else [])], context)


@needs(VIEW)
def figures(page: Page, topic: str) -> HttpResponse:
    """Show the chart of a topic as a table."""
    view = topics.topic(topic)
    activity = _activity(page, view)
    return page.render(
        "figures",
        _("Figures"),
        queue=topic,
        tabs=topic_tabs(page, view, "topic"),
        figures=charts.figures(activity),
        only_published=True,
        said=_published(activity),
        **charts.frame(page, ""),
    )


def _context(page: Page, name: str) -> dict[str, Any]:
    view = topics.topic(name)
    queues = {found.name: found for found in inspector.groups_of(name)}
    rows = [_group(page, group, queues.get(group.queue)) for group in view.groups]
    found = [*unread([view]), *(problems_among(list(queues.values()), list(queues)) if queues else ())]
    activity, label = _activity(page, view), str(charts.SPANS[charts.span_of(page)])
    said = _published(activity)
    return {
        "queue": name,
        "tabs": topic_tabs(page, view, "topic"),
        **listed_problems(page, found, own=name),
        "tiles": _tiles(page, view),
        "groups": rows,
        "partitions": [_partition(page, part) for part in view.parts],
        "log_url": page.url("log", name),
        "chart": charts.columns(activity, label=f"{label}: {said}", stacks=charts.PUBLISHED),
        "said": said,
        **charts.frame(page, page.url("topic_figures", name)),
    }


def _partition(page: Page, view: TopicView) -> dict[str, Any]:
    """Return a row of the table of a topic's partitions."""
    behind = max(view.groups, key=lambda group: group.lag, default=None)
    return {
        "name": view.name,
        "url": page.queue_url(view.name),
        "count": text.number(view.length),
        "log_url": page.url("log", view.name),
        "size": text.size(view.size),
        "lag": f"{lag_count(behind)} ({behind.name})" if behind and behind.lag else "",
        "oldest": "" if view.first_ms is None else text.moment(view.first_ms, now=view.now_ms),
        "newest": "" if view.last_ms is None else text.moment(view.last_ms, now=view.now_ms),
    }


def _activity(page: Page, view: TopicView) -> Activity:
    span = charts.span_of(page)
    if view.error or span not in charts.HOURS:
        return view.activity
    return activity_in(get_config().topic(view.name), charts.period(span))


def _published(activity: Activity) -> str:
    count = sum(activity.published)
    words = ngettext("%(count)s message was published.", "%(count)s messages were published.", count)
    return words % {"count": text.number(count)}


def _tiles(page: Page, view: TopicView) -> list[dict[str, Any]]:
    behind = max(view.groups, key=lambda group: group.lag, default=None)
    oldest = "" if view.first_ms is None else text.duration(max(0, view.now_ms - view.first_ms))
    newest = "" if view.last_ms is None else text.moment(view.last_ms, now=view.now_ms)
    rate = text.rate(view.activity.per_minute("published"))
    lag = lag_count(behind) if behind else ""
    return [
        {"label": _("Messages"), "count": text.number(view.length), "url": page.url("log", view.name), "note": newest},
        {"label": pgettext("count", "Published"), "count": rate or _("%(count)s/min") % {"count": 0}},
        {"label": _("Memory"), "count": text.size(view.size), "note": _("in Redis")},
        {"label": _("Oldest message"), "count": oldest, "note": retention_of(view)},
        {"label": _("Groups"), "count": text.number(len(view.groups))},
        {
            "label": _("Largest lag"),
            "count": lag,
            "note": behind.name if behind and behind.lag else "",
            "bad": any(group.alarm is not None for group in view.groups),
        },
        *(outbox_page.tile(page, view.name) if view.name in get_config().topics else []),
    ]


def retention_of(view: TopicView) -> str:
    """Return the retention of a topic as text."""
    limits = []
    if view.config.retention:
        limits.append(text.period(view.config.retention))
    if view.config.retention_count:
        most = view.config.retention_count
        words = ngettext("%(count)s message", "%(count)s messages", most)
        limits.append(words % {"count": text.number(most)})
    if view.config.retention_bytes:
        limits.append(text.size(view.config.retention_bytes))
    return _("kept: %(what)s") % {"what": ", ".join(limits)} if limits else _("kept forever")


def overview(
    page: Page, views: Sequence[QueueView], listed: Collection[str], matches: Callable[[str], bool], *, reads_all: bool
) -> tuple[list[dict[str, Any]], list[QueueProblem]]:
    """Return topics as rows, each followed by its groups, and those that cannot be read. `views` are all groups.

    Of the groups those that are `listed`, with their topics, and the topics whose name `matches`. Unless it
    `reads_all`, no other topic is read.
    """
    by_name, rows = {view.name: view for view in views}, []
    of_listed = {name.partition(GROUP_SEPARATOR)[0] for name in listed if is_group(name)}
    found = topics.topics(lambda name: reads_all or name in of_listed or matches(name))
    for view in found:
        groups = [_group(page, group, by_name.get(group.queue)) for group in view.groups if group.queue in listed]
        if groups or matches(view.name):
            rows += [_topic(page, view), *groups]
    return rows, unread(found)


def unread(found: Sequence[TopicView]) -> list[QueueProblem]:
    """Return the topics that cannot be read, or not with all their groups, as problems, also muted ones."""
    errors = [(topic.name, _("cannot be read: %(error)s") % {"error": topic.error}) for topic in found if topic.error]
    for topic in found:
        if topic.left_out:
            words = ngettext(
                "has %(count)s more group, which is not shown",
                "has %(count)s more groups, which are not shown",
                topic.left_out,
            )
            errors.append((topic.name, words % {"count": text.number(topic.left_out)}))
    mutes: Mutes = {}
    if errors:
        # Their server may be the problem.
        with suppress(StoreError):
            mutes = get_mutes()
    return [
        QueueProblem(
            queue=name,
            kind="unreadable",
            sentence=f"{name} {said}",
            figure=None,
            threshold=None,
            mute=mutes.get((name, "unreadable")),
        )
        for name, said in errors
    ]


def _topic(page: Page, view: TopicView) -> dict[str, Any]:
    return {
        "is_topic": True,
        "name": view.name,
        "url": page.queue_url(view.name),
        "error": view.error,
        "messages": text.number(view.length),
        "log_url": page.url("log", view.name),
        "kept": retention_of(view),
        "size": text.size(view.size),
        "published": text.rate(view.activity.per_minute("published")),
        "chart": charts.sparkline(
            view.activity.published, label=_("Published in the last %(minutes)s minutes: %(count)s")
        ),
    }


def _group(page: Page, group: GroupStats, view: QueueView | None) -> dict[str, Any]:
    queue = view or QueueView(name=group.queue)
    return {
        **charts.queue_cells(page, queue, troubled=bool(queue.problems())),
        "name": group.name,
        "subscribed": group.subscribed,
        "alarm": group.alarm is not None,
        "lag": lag_count(group),
        "behind": text.duration(group.lag_ms) if group.lag else "",
        "retention": retention(group),
        "errors": text.percent(queue.error_share),
        "has_errors": queue.fails_often,
        "seek_url": page.url("seek", group.queue) if group.subscribed else "",
        "chart": charts.sparkline(
            queue.activity.handled, label=_("Handled in the last %(minutes)s minutes: %(count)s")
        ),
    }


def is_group(name: str) -> bool:
    """Return whether the name of a queue is that of a group of a topic."""
    return GROUP_SEPARATOR in name
