"""The pages of dead letters, and actions on selected ones."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse, HttpResponseBadRequest, HttpResponseRedirect, StreamingHttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.jobs_on_all import DELETE, MOVE, REDRIVE, chosen_target, confirm_act
from mq_django.admin.message_rows import facts, listed, shown_error
from mq_django.admin.ui import filter_form, references, text
from mq_django.admin.ui.confirm import CHOSEN, CONFIRMED, MAX_LISTED, chosen, confirm, report
from mq_django.admin.ui.filter_form import found_at_once
from mq_django.admin.ui.job_pages import job_line
from mq_django.admin.ui.page import OPERATE, SEE_DATA, VIEW, Page, needs, sentence_of, tabs
from mq_django.core.filters import Filter
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.errors import DecodeError, InvalidMessage, StoreError
from mq_django.inspector import dead_letters, moves
from mq_django.inspector.actions import Outcome
from mq_django.inspector.dead_letters import DeadGroup, DeadLetterView, exported_dead_letters, resubmit
from mq_django.inspector.explain import reason
from mq_django.inspector.queues import quick_stats

#: Dead letters per page.
PER_PAGE = 50


@needs(VIEW)
def listing(page: Page, name: str) -> HttpResponse:
    """Show a page of dead letters, newest first, or find one by its message id."""
    asked = page.request.GET
    criteria = asked.get("id", "").strip()
    if criteria:
        entry = dead_letters.find(name, criteria)
        url = page.url("dead_letter", name, entry) if entry is not None else found_at_once(page, name, criteria)
        if url:
            return HttpResponseRedirect(url)
        page.say(messages.WARNING, _("There is no dead letter with the id “%(id)s”.") % {"id": criteria[:200]})
    if filter_form.criteria(page):
        return _filtered(page, name)
    found = dead_letters.page(name, limit=PER_PAGE, before=asked.get("before", ""), after=asked.get("after", ""))
    letters = found.letters
    return page.render(
        "dead",
        _("Dead letters"),
        queue=name,
        tabs=tabs(page, name, "dead"),
        rows=[_row(page, name, letter) for letter in letters],
        total=text.number(found.total),
        newer=letters[0].entry if letters and found.has_newer else "",
        older=letters[-1].entry if letters and found.has_older else "",
        **_frame(page, name, criteria),
    )


def _filtered(page: Page, name: str) -> HttpResponse:
    after = page.request.GET.get("after", "")
    found = dead_letters.look_among(name, filter_form.criteria(page), after=after, limit=PER_PAGE)
    return page.render(
        "dead",
        _("Dead letters"),
        queue=name,
        tabs=tabs(page, name, "dead"),
        rows=[_row(page, name, letter) for letter in found.rows],
        total=text.number(quick_stats(name).dead),
        **_frame(page, name, ""),
        **filter_form.progress(page, found),
    )


def _frame(page: Page, name: str, criteria: str) -> dict[str, Any]:
    query = filter_form.query(page)
    return {
        "act_url": page.url("dead_act", name) + query,
        "redrive_all_url": page.url("act_on_all", name, "dead", REDRIVE) + query,
        "move_all_url": page.url("act_on_all", name, "dead", MOVE) + query if moves.targets(name) else "",
        "groups_url": page.url("dead_groups", name),
        "export_url": page.url("dead_export", name) + query if page.can(SEE_DATA) else "",
        **job_line(page, name, "dead"),
        "delete_all_url": page.url("act_on_all", name, "dead", DELETE) + query,
        "chosen_field": CHOSEN,
        **filter_form.shown(page, message_id=criteria, with_error=True),
    }


@needs(VIEW)
def letter(page: Page, name: str, entry: str) -> HttpResponse:
    """Show a dead letter."""
    view = dead_letters.get(name, entry)
    if view is None:
        page.say(messages.WARNING, _("This dead letter no longer exists: it was redriven or deleted."))
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
        can_move=view.can_go_back and bool(moves.targets(name)),
        edit_url=page.url("dead_edit", name, entry) if page.can(SEE_DATA, OPERATE) else "",
        act_url=page.url("dead_act", name) + filter_form.query(page),
        chosen_field=CHOSEN,
        **about,
    )


@needs(VIEW, OPERATE)
def act(page: Page, name: str) -> HttpResponse:
    """Redrive, move or delete the selected dead letters, after confirmation."""
    what = page.request.POST.get("action", "")
    if what not in (REDRIVE, MOVE, DELETE):
        return HttpResponseBadRequest()
    entries, query = chosen(page), filter_form.query(page)
    list_url = page.url("dead", name) + query
    if not entries:
        page.say(messages.WARNING, _("Select dead letters first."))
        return HttpResponseRedirect(list_url)
    labels = dead_letters.labels(name, entries[:MAX_LISTED])
    if CONFIRMED not in page.request.POST:
        return confirm_act(
            page,
            name,
            "dead",
            what,
            len(entries),
            act_url=page.url("dead_act", name) + query,
            fields=[("action", what), *((CHOSEN, entry) for entry in entries)],
            listed=[text.visible(label, limit=200) for label in labels],
            unlisted=len(entries) - len(labels),
        )
    which = f": {', '.join(labels)}"
    if what == MOVE:
        target = chosen_target(page, name)
        _report_moved(page, name, target, moves.move(name, target, entries), which)
    else:
        outcome = dead_letters.redrive(name, entries) if what == REDRIVE else dead_letters.delete(name, entries)
        _report(page, name, what, outcome, which)
    return HttpResponseRedirect(list_url)


def _report_moved(page: Page, name: str, target: str, outcome: Outcome, which: str) -> None:
    done = ngettext(
        "%(count)s dead letter was moved to %(target)s.",
        "%(count)s dead letters were moved to %(target)s.",
        outcome.done,
    )
    refused = _(
        "%(count)s stay here: they are not valid messages, or are too long for the other queue, or it has their ids."
    )
    count = text.number(outcome.done)
    logged = f"Moved {count} dead letters to {target}{which}"
    report(page, name, outcome, done=done % {"count": count, "target": target}, logged=logged, refused=refused)


def _report(page: Page, name: str, what: str, outcome: Outcome, which: str) -> None:
    count = {"count": text.number(outcome.done)}
    if what == REDRIVE:
        done = ngettext("%(count)s dead letter was redriven.", "%(count)s dead letters were redriven.", outcome.done)
    else:
        done = ngettext("%(count)s dead letter was deleted.", "%(count)s dead letters were deleted.", outcome.done)
    verb = "Redrove" if what == REDRIVE else "Deleted"
    report(page, name, outcome, done=done % count, logged=f"{verb} {count['count']} dead letters{which}")


def _row(page: Page, name: str, view: DeadLetterView) -> dict[str, Any]:
    can_see_data = page.can(SEE_DATA)
    return {
        "entry": view.entry,
        "url": page.url("dead_letter", name, view.entry) + filter_form.query(page),
        "reason": text.visible(reason(view.reason), limit=40),
        "error": shown_error(view.error, can_see_data=can_see_data, limit=160),
        "attempts": text.number(view.attempts),
        "buried": text.moment(view.buried_ms),
        **listed(view.message, can_see_data=can_see_data),
    }


# Edit and resubmit a dead letter, group dead letters by error, and export them.


@needs(VIEW, SEE_DATA, OPERATE)
def edit(page: Page, name: str, entry: str) -> HttpResponse:
    """Edit the data of a dead letter, and resubmit it."""
    view = dead_letters.get(name, entry)
    if view is None or not view.can_go_back:
        page.say(messages.WARNING, _("This dead letter no longer exists: it was redriven or deleted."))
        return HttpResponseRedirect(page.url("dead", name))
    written = page.request.POST.get("data")
    if written is None:
        return _form(page, name, entry, editable(view.message.data))
    if CONFIRMED not in page.request.POST:
        return confirm(
            page,
            name,
            _("Resubmit 1 dead letter with changed data?"),
            tab="dead",
            sentence=_("It is published as a new message, at its first attempt, and the dead letter is deleted."),
            button=_("Yes, resubmit it"),
            act_url=page.url("dead_edit", name, entry),
            back_url=page.url("dead_letter", name, entry),
            fields=[("data", written)],
            listed=[text.visible(view.message.id, limit=200)],
        )
    try:
        message_id = resubmit(name, entry, written)
    except (DecodeError, InvalidMessage) as error:
        page.say(messages.ERROR, str(error))
        return _form(page, name, entry, written)
    if message_id is None:
        page.say(messages.WARNING, _("This dead letter no longer exists: it was redriven or deleted."))
    else:
        page.say(messages.SUCCESS, _("It was resubmitted as message %(id)s.") % {"id": message_id})
        page.log(name, f"Resubmitted dead letter {view.message.id[:200]} with other data as {message_id}")
    return HttpResponseRedirect(page.url("dead", name))


def editable(data: Any) -> str:
    """Return data as JSON text to edit, with invisible characters escaped."""
    shown = json.dumps(data, indent=2, ensure_ascii=False)
    return "".join(
        character if character.isprintable() or character == "\n" else json.dumps(character)[1:-1]
        for character in shown
    )


def _form(page: Page, name: str, entry: str, written: str) -> HttpResponse:
    return page.render(
        "dead_edit",
        _("Edit and resubmit"),
        queue=name,
        tabs=tabs(page, name, "dead"),
        written=written,
        act_url=page.url("dead_edit", name, entry),
        back_url=page.url("dead_letter", name, entry),
    )


@needs(VIEW)
def groups(page: Page, name: str) -> HttpResponse:
    """Show the counts of dead letters by name and error."""
    found = dead_letters.groups(name)
    return page.render(
        "dead_groups",
        _("Dead letters by name and error"),
        queue=name,
        tabs=tabs(page, name, "dead"),
        rows=[_group(page, name, group) for group in found],
        counted=text.number(sum(group.count for group in found)),
        list_url=page.url("dead", name),
    )


def _group(page: Page, name: str, found: DeadGroup) -> dict[str, Any]:
    row = {"count": text.number(found.count), "newest": text.moment(found.buried_ms), "is_rest": found.group is None}
    if found.group is None:
        return row
    named, error = found.group
    row["name"] = text.visible(named, limit=80) if named else ""
    if not filter_form.may_ask_for(page, error):
        return row | {"error": references.HIDDEN}
    query = urlencode(filter_form.group_terms(found.group))
    return row | {
        "error": text.visible(error, limit=80) if error else "",
        "url": f"{page.url('dead', name)}?{query}",
        "redrive_url": f"{page.url('act_on_all', name, 'dead', 'redrive')}?{query}",
        "move_url": f"{page.url('act_on_all', name, 'dead', 'move')}?{query}" if moves.targets(name) else "",
        "delete_url": f"{page.url('act_on_all', name, 'dead', 'delete')}?{query}",
    }


@needs(VIEW, SEE_DATA)
def export(page: Page, name: str) -> Any:
    """Stream the matching dead letters as JSON lines, oldest first, with secrets replaced."""
    filter_form.refuse_others(page, *filter_form.FIELDS, filter_form.OF_NAME, filter_form.OF_ERROR)
    description = filter_form.describe(page, log=True)
    page.log(name, f"Exported the dead letters: {description}" if description else "Exported the dead letters")
    response = StreamingHttpResponse(_lines(name, filter_form.criteria(page)), content_type="application/x-ndjson")
    file = name.replace(GROUP_SEPARATOR, "-")
    response["Content-Disposition"] = f'attachment; filename="{file}-dead.jsonl"'
    return response


def _lines(name: str, criteria: Filter) -> Iterator[str]:
    try:
        for row in exported_dead_letters(name, criteria):
            yield json.dumps(row) + "\n"
    except StoreError as error:
        # The headers of the response were already sent.
        yield json.dumps({"incomplete": sentence_of(error)}) + "\n"
