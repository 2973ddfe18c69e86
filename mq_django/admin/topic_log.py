"""The log of a topic, page by page, and what a group has of it: move it to another position, or unsubscribe it."""

from contextlib import suppress
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, pgettext_lazy

from mq_django.admin import topic_pages
from mq_django.admin.message_lists import PER_PAGE, Column, facts, listed, table
from mq_django.admin.ui import filter_form, text
from mq_django.admin.ui.page import OPERATE, PURGE, SEE_DATA, VIEW, Page, confirm, needs, tabs, topic_tabs
from mq_django.conf import get_config
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.offsets import BEGINNING, END, Offset, milliseconds, parse
from mq_django.core.partitions import SEPARATOR, number_in
from mq_django.core.texts import escape
from mq_django.errors import InvalidFilter, InvalidOffset, UnknownGroup, UnknownTopic
from mq_django.inbox.once import databases_of
from mq_django.inspector import message_lists, topics
from mq_django.inspector.message_views import MessageView
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import quick_stats
from mq_django.inspector.stream_reader import Filter
from mq_django.inspector.topics import GroupStats, SeekPreview, TopicView

#: The columns after that of the offset.
COLUMNS = (
    Column("name", gettext_lazy("Name"), "mq-name"),
    Column("published", pgettext_lazy("time", "Published"), "nowrap"),
    Column("id", gettext_lazy("Id"), "mq-wide mq-id"),
    Column("delivered", gettext_lazy("Delivered to"), "mq-wide mq-name"),
    Column("data_code", gettext_lazy("Data"), "mq-data"),
)

#: Form fields: a range by offsets or times, a filter, and the order.
FIELDS = ("first", "last", "from", "to", "name", "key", "data", "order")
OLDEST_FIRST = "oldest"


@needs(VIEW)
def log(page: Page, topic: str) -> HttpResponse:
    """Show a page of a topic's log, newest first by default."""
    asked = filter_form.asked(page, FIELDS)
    view = topics.topic(topic)
    criteria = Filter(name=asked.get("name", ""), key=asked.get("key", ""), data=asked.get("data", ""))
    try:
        found = message_lists.in_log(
            topic,
            criteria,
            since=_bound(asked.get("first", ""), asked.get("from", ""), BEGINNING),
            until=_bound(asked.get("last", ""), asked.get("to", ""), END),
            newest_first=asked.get("order") != OLDEST_FIRST,
            after=page.request.GET.get("after", ""),
            limit=PER_PAGE,
        )
    except InvalidOffset:
        return page.leave(page.url("log", topic), _("An offset is two numbers with a dash, such as 1700000000000-0."))
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


def _bound(offset: str, moment: str, otherwise: Offset) -> Offset:
    return offset or (filter_form.moment(moment) if moment else otherwise)


def _orders(asked: dict[str, str]) -> list[dict[str, Any]]:
    oldest_first = asked.get("order") == OLDEST_FIRST
    others = {field: value for field, value in asked.items() if field != "order"}
    oldest = {**others, "order": OLDEST_FIRST}
    return [
        {"label": _("Newest first"), "url": f"?{urlencode(others)}", "is_current": not oldest_first},
        {"label": _("Oldest first"), "url": f"?{urlencode(oldest)}", "is_current": oldest_first},
    ]


def _progress(page: Page, asked: dict[str, str], scanned: int, after: str) -> dict[str, Any]:
    return {
        **filter_form.onward(page, asked, scanned, after),
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
        return page.leave(page.url("log", topic), _("The message is not in the log: it was trimmed, or never existed."))
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
            last=[(_("In the log since"), text.moment(found.at_ms, now=view.now_ms, exact=True))],
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


# Move a group of a topic to another position, or unsubscribe it, after confirmation.

#: Form fields: the kind of position, and the values for a time and an offset.
TO, MOMENT, OFFSET = "to", "moment", "offset"
#: The form field for effects that happen again, although the subscriber has `@exactly_once`.
REPEAT = "repeat"


@needs(VIEW, OPERATE)
def seek(page: Page, name: str) -> HttpResponse:
    """Show the form, then a preview, and move the group after confirmation."""
    topic, _separator, group = name.partition(GROUP_SEPARATOR)
    if page.request.method != "POST":
        return _form(page, name, page.request.GET.dict())
    asked = {field: page.request.POST.get(field, "").strip()[:100] for field in (TO, MOMENT, OFFSET)}
    position = _position(asked)
    try:
        preview = None if position is None else topics.preview(topic, group, position)
        if position is None or preview is None:
            return _form(page, name, asked, error=_("Enter a position: a date and time, or the offset of a message."))
        if not page.is_confirmed:
            return _confirm_seek(page, name, asked, position, preview)
        repeats = page.request.POST.get(REPEAT) == "yes" and bool(databases_of(name))
        topics.seek(topic, group, position, repeat=repeats)
    except InvalidOffset:
        return _form(page, name, asked, error=_("An offset is two numbers with a dash, such as 1700000000000-0."))
    except UnknownGroup:
        return page.leave(page.queue_url(name), _("The group is not subscribed, so it cannot be moved."))
    done = _("The group was moved to %(position)s. %(what)s")
    page.say(messages.SUCCESS, done % {"position": said(position), "what": _will(preview)})
    more = "at least " if preview.more else ""
    counts = f"{more}{preview.replayed} messages again, {more}{preview.skipped} skipped"
    again = ", whose effects happen again" if repeats else ""
    page.log(name, f"Moved the group to {position}, after {preview.after}: {counts}{again}")
    return HttpResponseRedirect(page.queue_url(name))


def _position(asked: dict[str, str]) -> Offset | None:
    to = asked.get(TO)
    if to in (BEGINNING, END):
        return to
    if to == OFFSET:
        return asked[OFFSET] or None
    with suppress(InvalidFilter):
        return filter_form.moment(asked[MOMENT]) if to == MOMENT else None
    return None


def said(position: Offset) -> str:
    """Return a position as text."""
    if isinstance(position, datetime):
        return text.date(milliseconds(position))
    return {BEGINNING: _("the beginning"), END: _("the end")}.get(position, escape(position))


def _form(page: Page, name: str, asked: dict[str, str], *, error: str = "") -> HttpResponse:
    topic, _separator, group = name.partition(GROUP_SEPARATOR)
    view = topics.topic(topic)
    found = view.group(group)
    return page.render(
        "seek",
        _("Move the group"),
        queue=name,
        tabs=tabs(page, name, "queue"),
        position=topic_pages.facts(view, found),
        subscribed=found.subscribed,
        asked={TO: MOMENT, **asked},
        error=error,
        act_url=page.url("seek", name),
        back_url=page.queue_url(name),
    )


def _will(preview: SeekPreview) -> str:
    """Return the number of messages that a move replays or skips, as text."""
    if preview.replayed:
        words = ngettext(
            "%(count)s message is handled again.", "%(count)s messages are handled again.", preview.replayed
        )
        return words % {"count": _at_least(preview.replayed, preview)}
    if preview.skipped:
        words = ngettext(
            "%(count)s message is skipped and never handled.",
            "%(count)s messages are skipped and never handled.",
            preview.skipped,
        )
        return words % {"count": _at_least(preview.skipped, preview)}
    return _("0 messages are handled again, and 0 are skipped.")


def _at_least(count: int, preview: SeekPreview) -> str:
    return _("at least %(count)s") % {"count": text.number(count)} if preview.more else text.number(count)


def _confirm_seek(page: Page, name: str, asked: dict[str, str], position: Offset, preview: SeekPreview) -> HttpResponse:
    sentences = [_will(preview)]
    if preview.pending:
        sentences.append(
            ngettext(
                "%(count)s message of the log is being handled. Its outcome will be ignored.",
                "%(count)s messages of the log are being handled. Their outcomes will be ignored.",
                preview.pending,
            )
            % {"count": text.number(preview.pending)}
        )
    if preview.given_up:
        words = ngettext(
            "%(count)s of them is not delivered again.", "%(count)s of them are not delivered again.", preview.given_up
        )
        sentences.append(words % {"count": text.number(preview.given_up)})
    sentences.append(_("The group's retries and dead letters and other groups are not affected."))
    topic = name.partition(GROUP_SEPARATOR)[0]
    heads = [] if position == END else message_lists.in_log(topic, since=position, limit=1).rows
    return confirm(
        page,
        name,
        _("Move the group to %(position)s?") % {"position": said(position)},
        " ".join(sentences),
        _("Yes, move it"),
        back_url=page.url("seek", name),
        fields=[(field, value) for field, value in asked.items() if value],
        listed=[
            text.visible(_("Next: %(name)s, %(id)s") % {"name": head.name, "id": head.id}, limit=200) for head in heads
        ],
        dangerous=preview.skipped > 0,
        inputs=[_repeat()] if preview.replayed and databases_of(name) else [],
    )


def _repeat() -> dict[str, Any]:
    """Return the field of effects that happen again, for subscribers with `@exactly_once`."""
    shown = _(
        "The subscriber has @exactly_once, so messages that it has handled are acked without it, unless you check this."
    )
    return {"name": REPEAT, "is_box": True, "label": _("Let the effects happen again"), "help": shown}


@needs(VIEW, OPERATE, PURGE)
def unsubscribe(page: Page, name: str) -> HttpResponse:
    """Remove a group with all its keys."""
    topic, _separator, group = name.partition(GROUP_SEPARATOR)
    get_config().topic(topic)
    view = quick_stats(name)
    if not page.is_confirmed:
        return _confirm_unsubscribe(page, view)
    if topics.unsubscribe(topic, group):
        page.say(messages.SUCCESS, _("Group %(name)s is unsubscribed.") % {"name": name})
        page.log(name, f"Unsubscribed the group with {view.dead} dead letters and {view.delayed} retries")
    else:
        page.say(messages.INFO, _("The group was not subscribed."))
    return HttpResponseRedirect(page.queue_url(topic))


def _confirm_unsubscribe(page: Page, view: QueueView) -> HttpResponse:
    sentence = _(
        "Its offset is deleted, and its %(waiting)s waiting messages and %(dead)s dead letters are deleted "
        "for good. It has %(alive)s running consumers. They subscribe again at the start that their subscriber defines."
    )
    counts = {"waiting": view.delayed + view.unhandled, "dead": view.dead, "alive": view.alive}
    return confirm(
        page,
        view.name,
        _("Unsubscribe the group?"),
        sentence % {word: text.number(count) for word, count in counts.items()},
        _("Yes, unsubscribe it"),
        dangerous=True,
    )
