"""Move a group of a topic to another position, or unsubscribe it, after confirmation."""

from contextlib import suppress
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin import topic_pages
from mq_django.admin.ui import filter_form, text
from mq_django.admin.ui.confirm import CONFIRMED, confirm
from mq_django.admin.ui.page import OPERATE, PURGE, VIEW, Page, needs, tabs
from mq_django.conf import current_time_zone, get_config
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.offsets import BEGINNING, END, Offset
from mq_django.core.texts import escape
from mq_django.errors import InvalidFilter, InvalidOffset, UnknownGroup
from mq_django.inbox.passes import databases_of
from mq_django.inspector import message_lists, topics
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import quick_stats
from mq_django.inspector.topics import SeekPreview

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
        if CONFIRMED not in page.request.POST:
            return _confirm_seek(page, name, asked, position, preview)
        repeats = page.request.POST.get(REPEAT) == "yes" and bool(databases_of(name))
        topics.seek(topic, group, position, repeat=repeats)
    except InvalidOffset:
        return _form(page, name, asked, error=_("An offset is two numbers with a dash, such as 1700000000000-0."))
    except UnknownGroup:
        page.say(messages.WARNING, _("The group is not subscribed, so it cannot be moved."))
        return HttpResponseRedirect(page.queue_url(name))
    done = _("The group was moved to %(place)s. %(what)s")
    page.say(messages.SUCCESS, done % {"place": said(position), "what": _will(preview)})
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
        return position.astimezone(current_time_zone()).isoformat(sep=" ", timespec="seconds")
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
        _("Move the group to %(place)s?") % {"place": said(position)},
        tab="queue",
        sentence=" ".join(sentences),
        button=_("Yes, move it"),
        act_url=page.url("seek", name),
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
    if CONFIRMED not in page.request.POST:
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
        tab="queue",
        sentence=sentence % {word: text.number(count) for word, count in counts.items()},
        button=_("Yes, unsubscribe it"),
        act_url=page.url("unsubscribe", view.name),
        back_url=page.queue_url(view.name),
        dangerous=True,
    )
