"""The pages of delayed, unhandled and parked messages, and cancelling them."""

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from mq_django.admin.message_rows import facts, listed
from mq_django.admin.ui import filter_form, references, text
from mq_django.admin.ui.confirm import CHOSEN, CONFIRMED, MAX_LISTED, chosen, confirm, report
from mq_django.admin.ui.filter_form import found_at_once
from mq_django.admin.ui.job_pages import job_line
from mq_django.admin.ui.page import OPERATE, SEE_DATA, VIEW, Page, needs, tabs
from mq_django.admin.ui.text import bar_of
from mq_django.inspector import actions, explain
from mq_django.inspector.explain import why
from mq_django.inspector.key_lines import line_hash
from mq_django.inspector.message_lists import find_waiting, look_among_waiting, waiting
from mq_django.inspector.message_views import Room, WaitingView
from mq_django.inspector.queues import queue as look_at

#: Messages per page.
PER_PAGE = 50

TITLES = {
    "delayed": gettext_lazy("Delayed messages"),
    "unhandled": gettext_lazy("Unhandled messages"),
    "parked": gettext_lazy("Parked messages"),
}


@needs(VIEW)
def listing(page: Page, name: str, room: str) -> HttpResponse:
    """Show a page of waiting messages of one kind, or find one by its id."""
    where, criteria = _room(room), page.request.GET.get("id", "").strip()
    if criteria:
        url = found_at_once(page, name, criteria)
        if url:
            return HttpResponseRedirect(url)
        page.say(messages.WARNING, _("There is no waiting message with the id “%(id)s”.") % {"id": criteria[:200]})
    if filter_form.criteria(page):
        return _filtered(page, name, where)
    number = _page_number(page)
    found = waiting(name, where, start=(number - 1) * PER_PAGE, limit=PER_PAGE)
    paginator = Paginator(range(found.total), PER_PAGE)
    if number > paginator.num_pages:
        number = paginator.num_pages
        found = waiting(name, where, start=(number - 1) * PER_PAGE, limit=PER_PAGE)
    return page.render(
        "waiting",
        str(TITLES[where]),
        queue=name,
        room=where,
        tabs=tabs(page, name, where),
        rows=[_row(page, name, found.now_ms, view) for view in found.waiting],
        total=text.number(found.total),
        number=number,
        page_range=list(paginator.get_elided_page_range(number)) if paginator.num_pages > 1 else [],
        **_frame(page, name, where, criteria),
    )


def _filtered(page: Page, name: str, where: Room) -> HttpResponse:
    after = page.request.GET.get("after", "")
    found = look_among_waiting(name, where, filter_form.criteria(page), after=after, limit=PER_PAGE)
    return page.render(
        "waiting",
        str(TITLES[where]),
        queue=name,
        room=where,
        tabs=tabs(page, name, where),
        rows=[_row(page, name, text.now_ms(), view) for view in found.rows],
        **_frame(page, name, where, ""),
        **filter_form.progress(page, found),
    )


def _frame(page: Page, name: str, where: Room, criteria: str) -> dict[str, Any]:
    return {
        "act_url": page.url("cancel", name) + filter_form.query(page),
        "purge_url": page.url("act_on_all", name, where, "delete") + filter_form.query(page),
        **job_line(page, name, where),
        "chosen_field": CHOSEN,
        **filter_form.shown(page, message_id=criteria),
    }


@needs(VIEW)
def message(page: Page, name: str, room: str, member: str) -> HttpResponse:
    """Show a waiting message."""
    view = find_waiting(name, references.named(page, member))
    if view is None:
        page.say(messages.WARNING, _("The message is no longer waiting: it is ready, was handled, or was deleted."))
        return HttpResponseRedirect(page.url("waiting", name, _room(room)))
    return page.render(
        "message",
        _("Message"),
        queue=name,
        room=view.room,
        tabs=tabs(page, name, view.room),
        member=references.handle(page, view),
        why=why(explain.why_waiting(view, look_at(name)), name=view.message.name, can_see_data=page.can(SEE_DATA)),
        act_url=page.url("cancel", name) + filter_form.query(page),
        line_url=_line_url(page, name, view),
        chosen_field=CHOSEN,
        progress=bar_of(name, view.message.id, can_see_data=page.can(SEE_DATA)),
        **facts(
            view.message,
            can_see_data=page.can(SEE_DATA),
            first=[(_("Due"), text.moment(view.due_ms)), (_("Attempt"), str(view.message.attempt))],
        ),
    )


def _line_url(page: Page, name: str, view: WaitingView) -> str:
    """Return the address of the line of a parked message, "" for others."""
    if view.room != "parked" or view.message.error:
        return ""
    return page.url("line", name, str(line_hash(view.message.key)))


@needs(VIEW, OPERATE)
def cancel(page: Page, name: str) -> HttpResponse:
    """Cancel the selected messages, after confirmation."""
    where = _room(page.request.POST.get("room", "delayed"))
    back_url = page.url("waiting", name, where) + filter_form.query(page)
    members, found = chosen(page), [references.named(page, member) for member in chosen(page)]
    if not members:
        page.say(messages.WARNING, _("Select messages first."))
        return HttpResponseRedirect(back_url)
    if CONFIRMED not in page.request.POST:
        return _confirm_cancel(page, name, where, members)
    outcome = actions.cancel(name, found)
    count = text.number(outcome.done)
    report(
        page,
        name,
        outcome,
        done=ngettext("%(count)s message was cancelled.", "%(count)s messages were cancelled.", outcome.done)
        % {"count": count},
        logged=f"Cancelled {count} messages: {', '.join(_ids(members))}",
    )
    return HttpResponseRedirect(back_url)


def _confirm_cancel(page: Page, name: str, where: Room, members: list[str]) -> HttpResponse:
    count = len(members)
    return confirm(
        page,
        name,
        ngettext("Cancel %(count)s message?", "Cancel %(count)s messages?", count) % {"count": count},
        tab=where,
        sentence=ngettext(
            "It is deleted and will never be handled.",
            "They are deleted and will never be handled.",
            count,
        ),
        button=_("Yes, cancel it") if count == 1 else _("Yes, cancel them"),
        act_url=page.url("cancel", name) + filter_form.query(page),
        back_url=page.url("waiting", name, where) + filter_form.query(page),
        fields=[("room", where), *((CHOSEN, member) for member in members)],
        listed=[text.visible(label, limit=200) for label in _ids(members)],
        unlisted=max(0, count - MAX_LISTED),
        dangerous=True,
    )


def _ids(members: list[str]) -> list[str]:
    return [references.label(member) for member in members[:MAX_LISTED]]


def _room(word: str) -> Room:
    if word == "delayed":
        return "delayed"
    if word == "unhandled":
        return "unhandled"
    if word == "parked":
        return "parked"
    raise Http404


def _page_number(page: Page) -> int:
    asked = page.request.GET.get("p", "1")
    return max(1, int(asked)) if asked.isdecimal() and len(asked) < 10 else 1


def _row(page: Page, name: str, now_ms: int, view: WaitingView) -> dict[str, Any]:
    member = references.handle(page, view)
    return {
        "member": member,
        "url": page.url("message", name, view.room, member) + filter_form.query(page) if member else "",
        "due": text.moment(view.due_ms, now=now_ms),
        "published": text.moment(view.message.published_ms, now=now_ms),
        **listed(view.message, can_see_data=page.can(SEE_DATA)),
        # Without an id in the body, the id is the member.
        **({} if member else {"id": text.visible(references.without_unique(view.message.id), limit=60)}),
    }
