"""Show the log of a topic: any range of it, page by page."""

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from mq_django.admin.message_rows import facts, listed
from mq_django.admin.ui import filter_form, text
from mq_django.admin.ui.page import OPERATE, SEE_DATA, VIEW, Page, needs, topic_tabs
from mq_django.core.offsets import BEGINNING, END, Offset, parse
from mq_django.core.partitions import SEPARATOR, number_in
from mq_django.errors import InvalidOffset, UnknownTopic
from mq_django.inspector import message_lists, topics
from mq_django.inspector.message_views import EntryView
from mq_django.inspector.stream_reader import Filter
from mq_django.inspector.topics import GroupStats, TopicView

#: Messages per page.
PER_PAGE = 50

#: Form fields: a range by offsets or times, a filter, and the order.
FIELDS = ("first", "last", "from", "to", "name", "key", "order")
OLDEST_FIRST = "oldest"


@needs(VIEW)
def log(page: Page, topic: str) -> HttpResponse:
    """Show a page of a topic's log, newest first by default."""
    asked = filter_form.asked(page, FIELDS)
    view = topics.topic(topic)
    criteria = Filter(name=asked.get("name", ""), key=asked.get("key", ""))
    try:
        found = message_lists.in_log(
            topic,
            criteria,
            since=_place(asked.get("first", ""), asked.get("from", ""), BEGINNING),
            until=_place(asked.get("last", ""), asked.get("to", ""), END),
            newest_first=asked.get("order") != OLDEST_FIRST,
            after=page.request.GET.get("after", ""),
            limit=PER_PAGE,
        )
    except InvalidOffset:
        page.say(messages.WARNING, _("An offset is two numbers with a dash, such as 1700000000000-0."))
        return HttpResponseRedirect(page.url("log", topic))
    return page.render(
        "log",
        _("Log"),
        queue=topic,
        tabs=topic_tabs(page, view, "log"),
        rows=[_row(page, view, row) for row in found.rows],
        has_groups=bool(view.groups),
        asked=asked,
        filter_key=page.can(SEE_DATA),
        is_filtered=bool(criteria),
        total=text.number(view.length),
        orders=_orders(asked),
        **_progress(page, asked, found.scanned, found.after),
    )


def _place(offset: str, moment: str, otherwise: Offset) -> Offset:
    return offset or (filter_form.moment(moment) if moment else otherwise)


def _orders(asked: dict[str, str]) -> list[dict[str, Any]]:
    oldest_first = asked.get("order") == OLDEST_FIRST
    others = {field: value for field, value in asked.items() if field != "order"}
    return [
        {"label": _("Newest first"), "url": f"?{urlencode(others)}", "is_current": not oldest_first},
        {
            "label": _("Oldest first"),
            "url": f"?{urlencode({**others, 'order': OLDEST_FIRST})}",
            "is_current": oldest_first,
        },
    ]


def _progress(page: Page, asked: dict[str, str], scanned: int, after: str) -> dict[str, Any]:
    seen = page.request.GET.get("seen", "")
    total = scanned + (int(seen) if seen.isdecimal() and len(seen) < 16 else 0)
    return {
        "looked": _("Scanned %(count)s messages.") % {"count": text.number(total)},
        "go_on": f"?{urlencode({**asked, 'after': after, 'seen': str(total)})}" if after else "",
        "start_url": f"?{urlencode(asked)}",
        "is_later_page": "after" in page.request.GET,
    }


def _row(page: Page, view: TopicView, row: EntryView) -> dict[str, Any]:
    entry = row.entry.decode()
    return {
        **listed(row.message, can_see_data=page.can(SEE_DATA)),
        "url": page.url("log_entry", view.name, entry),
        "offset": entry,
        "published": text.moment(row.ready_ms, now=view.now_ms),
        "missing": _missing(view, entry),
    }


def _missing(view: TopicView, entry: str) -> list[str]:
    """Return the groups to which a message has not been delivered yet."""
    log, offset = _log_of(view, entry)
    return [group.name for group in log.groups if parse(group.offset) < parse(offset)]


def _log_of(view: TopicView, entry: str) -> tuple[TopicView, str]:
    """Return the topic, or the partition, that has an entry, and the offset of the entry in it."""
    number = number_in(entry)
    return view if number is None else view.parts[number], entry.partition(SEPARATOR)[0]


@needs(VIEW)
def message(page: Page, topic: str, entry: str) -> HttpResponse:
    """Show a message of a topic's log."""
    try:
        found = message_lists.get_in_log(topic, entry)
    except (InvalidOffset, UnknownTopic):
        found = None
    if found is None:
        page.say(messages.WARNING, _("The message is not in the log: it was trimmed, or never existed."))
        return HttpResponseRedirect(page.url("log", topic))
    view = topics.topic(topic)
    log, offset = _log_of(view, entry)
    return page.render(
        "log_entry",
        _("Message"),
        queue=topic,
        tabs=topic_tabs(page, view, "log"),
        groups=[_given(page, group, offset) for group in log.groups if group.subscribed],
        **facts(
            found.message,
            can_see_data=page.can(SEE_DATA),
            first=[(_("Offset"), text.visible(entry))],
            last=[(_("In the log since"), text.moment(found.ready_ms, now=view.now_ms))],
        ),
    )


def _given(page: Page, group: GroupStats, entry: str) -> dict[str, Any]:
    query = urlencode({"to": "offset", "offset": entry})
    return {
        "name": group.name,
        "url": page.queue_url(group.queue),
        "given": parse(group.offset) >= parse(entry),
        "seek_url": f"{page.url('seek', group.queue)}?{query}" if page.can(OPERATE) else "",
    }
