"""Delete all ready or waiting messages that a filter finds, in the background: preview, start, watch and cancel.

Operators purge ready messages, and cancel those that wait.
"""

from dataclasses import dataclass
from typing import get_args

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.ui import filter_form, job_pages, text
from mq_django.admin.ui.confirm import CONFIRMED, MAX_LISTED, confirm
from mq_django.admin.ui.job_pages import AT_ONCE, JobPages, work_at_once
from mq_django.admin.ui.page import OPERATE, PURGE, VIEW, Page, needs
from mq_django.consumers.supervisor.redriver import work_here
from mq_django.core.filters import Filter
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.texts import escape
from mq_django.errors import InvalidFilter
from mq_django.inspector import jobs, message_lists
from mq_django.inspector.jobs import MessagePlace
from mq_django.inspector.message_lists import look_among_waiting
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import quick_stats
from mq_django.stores.background_jobs import MessageJobs

PAGES = JobPages("messages")

#: Messages that a preview reads at most, to count them and to show some.
PREVIEWED = 1000

#: The fields of a filter of messages: they have no error.
FIELDS = ("name", "key", "from", "to")


@dataclass(frozen=True)
class Preview:
    """How many messages match, or at most how many, and the ids of some of them."""

    count: int
    at_most: bool
    examples: list[str]


@needs(VIEW, OPERATE, PURGE)
def purge(page: Page, name: str, place: str) -> HttpResponse:
    """Delete all messages of a place that match, in the background."""
    filter_form.refuse_others(page, *FIELDS, "until", "rate")
    where, criteria = _place(place), filter_form.criteria(page)
    if page.request.method != "POST" or CONFIRMED not in page.request.POST:
        return _ask(page, name, where, criteria)
    rate, until = job_pages.read_rate(filter_form.given(page, "rate") or ""), filter_form.given(page, "until") or ""
    if not (until.isdecimal() and len(until) < 16):
        raise InvalidFilter(_("The time of the preview is missing."))
    who = escape(page.request.user.get_username())
    # The log of the admin has the number that the user was asked about.
    found = _preview(quick_stats(name), where, criteria)
    begun = jobs.begin_deleting(name, where, who=who, criteria=criteria, until_ms=int(until), rate=rate)
    if begun.word == "nothing":
        return _nothing(page, name, where)
    if begun.word == "busy":
        page.say(messages.WARNING, _("Another job is running. Wait until it finishes, or cancel it."))
        return HttpResponseRedirect(page.url("message_job", name))
    description, most = filter_form.describe(page, log=True), f", at most {rate}/s" if rate else ""
    which = f" where {description}" if description else ""
    verb, limit = "purge" if where == "ready" else "cancel", "up to " if found.at_most else ""
    page.log(name, f"Began to {verb} {limit}{text.number(found.count)} {where} messages{which}{most}")
    if begun.total <= AT_ONCE and not rate:
        work_at_once(lambda worker: work_here(name, worker, MessageJobs))
    return HttpResponseRedirect(page.url("message_job", name))


def _ask(page: Page, name: str, place: MessagePlace, criteria: Filter) -> HttpResponse:
    view = quick_stats(name)
    if not view.own(place):
        return _nothing(page, name, place)
    found = _preview(view, place, criteria)
    count, listed = found.count, found.examples[:MAX_LISTED]
    if not count:
        page.say(messages.INFO, _("No message matches the filter."))
        return HttpResponseRedirect(_list_url(page, name, place) + filter_form.query(page))
    description = filter_form.describe(page)
    number = text.number(count)
    title = _title(place, count) % {"count": _("up to %(count)s") % {"count": number} if found.at_most else number}
    sentence = _("Deleted messages cannot be restored and are never handled. Pending messages are not deleted.")
    if place == "ready" and GROUP_SEPARATOR in name:
        of_log = _("Messages in the log of the topic stay: move the group to skip them.")
        sentence = f"{sentence} {of_log}"
    return confirm(
        page,
        name,
        title,
        tab=place,
        sentence=f"{sentence} {job_pages.in_background()}",
        button=_button(place, count),
        act_url=page.url("purge", name, place),
        back_url=_list_url(page, name, place) + filter_form.query(page),
        fields=[("until", str(view.now_ms + 1)), *filter_form.asked(page).items()],
        listed=[
            *([text.visible(description, limit=1000)] if description else []),
            *(text.visible(example, limit=200) for example in listed),
        ],
        unlisted=max(0, count - len(listed)) if listed else 0,
        dangerous=True,
        inputs=[job_pages.rate_input()],
    )


def _preview(view: QueueView, place: MessagePlace, criteria: Filter) -> Preview:
    if view.parts:
        found = [_preview(part, place, criteria) for part in view.parts if part.own(place)]
        examples = [example for each in found for example in each.examples]
        return Preview(sum(each.count for each in found), any(each.at_most for each in found), examples)
    if place == "ready":
        read = message_lists.ready(view.name, criteria, limit=PREVIEWED, with_log=False)
        rows, after = [row.message.id for row in read.rows], read.after
    else:
        waiting = look_among_waiting(view.name, place, criteria, limit=PREVIEWED)
        rows, after = [row.message.id for row in waiting.rows if row.handle], waiting.after
        rows += [""] * (len(waiting.rows) - len(rows))
    examples = [row for row in rows if row]
    return Preview(view.own(place), bool(criteria), examples) if after else Preview(len(rows), False, examples)


def _title(place: MessagePlace, count: int) -> str:
    titles = {
        "ready": ngettext("Purge %(count)s ready message?", "Purge %(count)s ready messages?", count),
        "delayed": ngettext("Cancel %(count)s delayed message?", "Cancel %(count)s delayed messages?", count),
        "unhandled": ngettext("Cancel %(count)s unhandled message?", "Cancel %(count)s unhandled messages?", count),
        "parked": ngettext("Cancel %(count)s parked message?", "Cancel %(count)s parked messages?", count),
    }
    return titles[place]


def _button(place: MessagePlace, count: int) -> str:
    if place == "ready":
        return _("Yes, delete it") if count == 1 else _("Yes, delete them")
    return _("Yes, cancel it") if count == 1 else _("Yes, cancel them")


def _nothing(page: Page, name: str, place: MessagePlace) -> HttpResponse:
    page.say(messages.INFO, _("There is nothing to purge.") if place == "ready" else _("There is nothing to cancel."))
    return HttpResponseRedirect(_list_url(page, name, place))


def _list_url(page: Page, name: str, place: MessagePlace) -> str:
    return page.url("ready", name) if place == "ready" else page.url("waiting", name, place)


def _place(word: str) -> MessagePlace:
    for place in get_args(MessagePlace):
        if word == place:
            found: MessagePlace = place
            return found
    raise Http404
