"""Show the log of a topic: any range of it, page by page."""

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from mq_django.admin.message_lists import PER_PAGE, Column, facts, listed, table
from mq_django.admin.ui import filter_form, text
from mq_django.admin.ui.page import OPERATE, SEE_DATA, VIEW, Page, needs, topic_tabs
from mq_django.core.offsets import BEGINNING, END, Offset, parse
from mq_django.core.partitions import SEPARATOR, number_in
from mq_django.errors import InvalidOffset, UnknownTopic
from mq_django.inspector import message_lists, topics
from mq_django.inspector.message_views import MessageView
from mq_django.inspector.stream_reader import Filter
from mq_django.inspector.topics import GroupStats, TopicView

#: The columns after that of the offset.
COLUMNS = (
    Column("name", gettext_lazy("Name"), "mq-name"),
    Column("published", gettext_lazy("Published"), "nowrap"),
    Column("id", gettext_lazy("Id"), "mq-wide mq-id"),
    Column("delivered", gettext_lazy("Delivered to"), "mq-wide mq-name"),
    Column("data_code", gettext_lazy("Data"), "mq-data"),
)

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
            since=_position(asked.get("first", ""), asked.get("from", ""), BEGINNING),
            until=_position(asked.get("last", ""), asked.get("to", ""), END),
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
        **table(
            page,
            COLUMNS if view.groups else [column for column in COLUMNS if column.cell != "delivered"],
            [_row(page, view, row) for row in found.rows],
        ),
        first_head=_("Offset"),
        empty=_empty(is_filtered=bool(criteria), has_range=bool(asked)),
        asked=asked,
        filter_key=page.can(SEE_DATA),
        is_filtered=bool(criteria),
        total=text.number(view.length),
        orders=_orders(asked),
        **_progress(page, asked, found.scanned, found.after),
    )


def _position(offset: str, moment: str, otherwise: Offset) -> Offset:
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


def _row(page: Page, view: TopicView, row: MessageView) -> dict[str, Any]:
    entry = row.ref
    return {
        **listed(row, can_see_data=page.can(SEE_DATA)),
        "url": page.url("log_entry", view.name, entry),
        "first": entry,
        "offset": entry,
        "published": text.moment(row.at_ms, now=view.now_ms),
        "delivered": _delivered(_missing(view, entry)),
    }


def _delivered(missing: list[str]) -> SafeString | str:
    if not missing:
        return _("all groups")
    return format_html('<span class="mq-quiet">{}</span> {}', _("not yet:"), ", ".join(missing))


def _columns(view: TopicView) -> list[Column]:
    return [column for column in COLUMNS if view.groups or column.cell != "delivered"]


def _empty(*, is_filtered: bool, has_range: bool) -> str:
    if is_filtered:
        return _("None found yet.")
    return _("No messages in this range.") if has_range else _("The log is empty.")


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
        "message",
        _("Message"),
        queue=topic,
        tabs=topic_tabs(page, view, "log"),
        groups=[_given(page, group, offset) for group in log.groups if group.subscribed],
        **facts(
            found,
            can_see_data=page.can(SEE_DATA),
            first=[(_("Offset"), text.visible(entry))],
            last=[(_("In the log since"), text.moment(found.at_ms, now=view.now_ms))],
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
