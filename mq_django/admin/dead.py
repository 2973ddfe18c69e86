"""The pages of dead letters, their redriving and their deleting."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse, HttpResponseBadRequest, HttpResponseRedirect
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin import filters, text
from mq_django.admin.confirm import CHOSEN, CONFIRMED, MAX_LISTED, chosen, confirm, report
from mq_django.admin.message import facts, listed, shown_error
from mq_django.admin.page import OPERATE, PURGE, SEE_DATA, VIEW, Page, needs
from mq_django.admin.tabs import tabs
from mq_django.admin.wording import reason
from mq_django.inspector import actions, dead_letters, search
from mq_django.inspector.dead_letters import DeadLetterView
from mq_django.inspector.queues import glance

#: Dead letters a page.
PER_PAGE = 50

REDRIVE, DELETE = "redrive", "delete"


@needs(VIEW)
def listing(page: Page, name: str) -> HttpResponse:
    """Show a page of dead letters, newest first, or the one of the message that was asked for by its id."""
    asked = page.request.GET
    wanted = asked.get("id", "").strip()
    if wanted:
        entry = dead_letters.find(name, wanted)
        if entry is not None:
            return HttpResponseRedirect(page.url("dead_letter", name, entry))
        page.say(messages.WARNING, _("No message “%(id)s” is among the dead letters.") % {"id": wanted[:200]})
    if filters.wanted(page):
        return _filtered(page, name)
    some = dead_letters.page(name, limit=PER_PAGE, before=asked.get("before", ""), after=asked.get("after", ""))
    letters = some.letters
    return page.render(
        "dead",
        _("Dead letters"),
        queue=name,
        tabs=tabs(page, name, "dead"),
        rows=[_row(page, name, letter) for letter in letters],
        total=text.number(some.total),
        newer=letters[0].entry if letters and some.has_newer else "",
        older=letters[-1].entry if letters and some.has_older else "",
        **_frame(page, name, wanted),
    )


def _filtered(page: Page, name: str) -> HttpResponse:
    some = search.dead(name, filters.wanted(page), after=page.request.GET.get("after", ""), limit=PER_PAGE)
    return page.render(
        "dead",
        _("Dead letters"),
        queue=name,
        tabs=tabs(page, name, "dead"),
        rows=[_row(page, name, letter) for letter in some.rows],
        total=text.number(glance(name).dead),
        **_frame(page, name, ""),
        **filters.progress(page, some),
    )


def _frame(page: Page, name: str, wanted: str) -> dict[str, Any]:
    query = f"?{urlencode(terms)}" if (terms := filters.asked(page)) else ""
    return {
        "act_url": page.url("dead_act", name),
        "redrive_all_url": page.url("dead_all", name, REDRIVE) + query,
        "groups_url": page.url("dead_groups", name),
        "export_url": page.url("dead_export", name) if page.can(SEE_DATA) else "",
        "delete_all_url": page.url("dead_all", name, DELETE) + query,
        "chosen_field": CHOSEN,
        **filters.shown(page, message_id=wanted, with_error=True),
    }


@needs(VIEW)
def letter(page: Page, name: str, entry: str) -> HttpResponse:
    """Show a dead letter: what it says and why it is dead."""
    view = dead_letters.get(name, entry)
    if view is None:
        page.say(messages.WARNING, _("There is no such dead letter any more: it was redriven or deleted."))
        return HttpResponseRedirect(page.url("dead", name))
    can_see_data = page.can(SEE_DATA)
    about = facts(
        view.message,
        can_see_data=can_see_data,
        first=[
            (_("Reason"), text.visible(reason(view.reason))),
            (_("Attempts"), text.number(view.attempts)),
        ],
        last=[(_("Buried"), text.moment(view.buried_ms))],
    )
    return page.render(
        "dead_letter",
        _("Dead letter"),
        queue=name,
        tabs=tabs(page, name, "dead"),
        entry=entry,
        error=shown_error(view.error, can_see_data=can_see_data),
        traceback=text.visible(view.traceback, lines=True) if view.traceback and can_see_data else "",
        has_traceback=bool(view.traceback),
        raw=text.visible_bytes(view.raw) if view.raw and can_see_data else "",
        can_go_back=view.can_go_back,
        edit_url=page.url("dead_edit", name, entry) if page.can(SEE_DATA, OPERATE) else "",
        act_url=page.url("dead_act", name),
        chosen_field=CHOSEN,
        **about,
    )


@needs(VIEW, OPERATE)
def act(page: Page, name: str) -> HttpResponse:
    """Redrive or delete the chosen dead letters, once that is confirmed."""
    what = page.request.POST.get("action", "")
    if what not in (REDRIVE, DELETE):
        return HttpResponseBadRequest()
    entries = chosen(page)
    if not entries:
        page.say(messages.WARNING, _("Choose dead letters first."))
        return HttpResponseRedirect(page.url("dead", name))
    labels = dead_letters.labels(name, entries[:MAX_LISTED])
    if CONFIRMED not in page.request.POST:
        return _confirm(
            page,
            name,
            what,
            len(entries),
            act_url=page.url("dead_act", name),
            fields=[("action", what), *((CHOSEN, entry) for entry in entries)],
            listed=[text.visible(label, limit=200) for label in labels],
            unlisted=len(entries) - len(labels),
        )
    outcome = actions.redrive(name, entries) if what == REDRIVE else actions.delete(name, entries)
    _report(page, name, what, outcome, f": {', '.join(labels)}")
    return HttpResponseRedirect(page.url("dead", name))


@needs(VIEW, OPERATE)
def act_on_all(page: Page, name: str, what: str) -> HttpResponse:
    """Redrive or delete all dead letters up to now, as many at a time as a request has time for."""
    if what not in (REDRIVE, DELETE):
        return HttpResponseBadRequest()
    if what == DELETE:
        return _delete_all(page, name=name)
    return _all(page, name, what)


@needs(VIEW, OPERATE, PURGE)
def _delete_all(page: Page, name: str) -> HttpResponse:
    return _all(page, name, DELETE)


def _all(page: Page, name: str, what: str) -> HttpResponse:
    request, url = page.request, page.url("dead_all", name, what)
    asked = request.POST if request.method == "POST" else request.GET
    until, after = asked.get("until", ""), asked.get("after", "")
    wanted, terms = filters.wanted(page), filters.asked(page)
    if request.method != "POST" or CONFIRMED not in request.POST:
        found = dead_letters.count(name, until=until)
        if not found.count:
            page.say(messages.INFO, _("There are no dead letters."))
            return HttpResponseRedirect(page.url("dead", name))
        return _confirm(
            page,
            name,
            what,
            found.count,
            act_url=url,
            fields=[("until", found.until), ("after", after), *terms.items()],
            listed=[text.visible(f"{term}: {value}", limit=200) for term, value in terms.items()],
            at_most=found.at_most or bool(wanted),
        )
    run = actions.redrive_all if what == REDRIVE else actions.delete_all
    outcome = run(name, until=until, after=after, seconds=actions.SECONDS, wanted=wanted)
    if wanted and not outcome.done and outcome.resume_after is None and outcome.error is None:
        page.say(messages.INFO, _("No dead letter fits."))
    meant = "".join(f", {term} {value}" for term, value in terms.items())
    _report(page, name, what, outcome, f", all up to {until}{meant}")
    if outcome.resume_after is None:
        return HttpResponseRedirect(page.url("dead", name))
    onward = urlencode({"until": until, "after": outcome.resume_after, **terms})
    return HttpResponseRedirect(f"{url}?{onward}")


def _confirm(
    page: Page,
    name: str,
    what: str,
    count: int,
    *,
    act_url: str,
    fields: list[tuple[str, str]],
    listed: Sequence[SafeString] = (),
    unlisted: int = 0,
    at_most: bool = False,
) -> HttpResponse:
    if what == REDRIVE:
        title = ngettext("Redrive %(count)s dead letter?", "Redrive %(count)s dead letters?", count)
        sentence = ngettext(
            "It goes back into the queue and starts again at its first attempt.",
            "They go back into the queue, and each starts again at its first attempt.",
            count,
        )
    else:
        title = ngettext("Delete %(count)s dead letter?", "Delete %(count)s dead letters?", count)
        sentence = _("What is deleted is gone for good and will never be handled.")
    words = {
        REDRIVE: (_("Yes, redrive it"), _("Yes, redrive them")),
        DELETE: (_("Yes, delete it"), _("Yes, delete them")),
    }
    number = text.number(count)
    return confirm(
        page,
        name,
        title % {"count": _("up to %(count)s") % {"count": number} if at_most else number},
        tab="dead",
        sentence=sentence,
        button=words[what][count != 1],
        act_url=act_url,
        back_url=page.url("dead", name),
        fields=fields,
        listed=listed,
        unlisted=unlisted,
        dangerous=what == DELETE,
    )


def _report(page: Page, name: str, what: str, outcome: actions.Outcome, which: str) -> None:
    count = {"count": text.number(outcome.done)}
    if what == REDRIVE:
        done = ngettext("%(count)s dead letter was redriven.", "%(count)s dead letters were redriven.", outcome.done)
    else:
        done = ngettext("%(count)s dead letter was deleted.", "%(count)s dead letters were deleted.", outcome.done)
    if outcome.resume_after is not None and outcome.error is None:
        page.say(messages.WARNING, _("There are more than a request has time for. Go on?"))
    verb = "Redrove" if what == REDRIVE else "Deleted"
    report(page, name, outcome, done=done % count, logged=f"{verb} {count['count']} dead letters{which}")


def _row(page: Page, name: str, view: DeadLetterView) -> dict[str, Any]:
    can_see_data = page.can(SEE_DATA)
    return {
        "entry": view.entry,
        "url": page.url("dead_letter", name, view.entry),
        "reason": text.visible(reason(view.reason), limit=40),
        "error": shown_error(view.error, can_see_data=can_see_data, limit=160),
        "attempts": text.number(view.attempts),
        "buried": text.moment(view.buried_ms),
        **listed(view.message, can_see_data=can_see_data),
    }
