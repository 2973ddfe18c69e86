"""Edit and resubmit a dead letter, group dead letters by error, and export them."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.utils.translation import gettext as _

from mq_django.admin.ui import filter_form, references, text
from mq_django.admin.ui.confirm import CONFIRMED, confirm
from mq_django.admin.ui.page import OPERATE, SEE_DATA, VIEW, Page, needs, sentence_of, tabs
from mq_django.core.filters import Filter
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.errors import DecodeError, InvalidMessage, StoreError
from mq_django.inspector import dead_letters
from mq_django.inspector.dead_letters import DeadGroup, resubmit
from mq_django.inspector.message_views import exported


@needs(VIEW, SEE_DATA, OPERATE)
def edit(page: Page, name: str, entry: str) -> HttpResponse:
    """Edit the data of a dead letter, and resubmit it."""
    view = dead_letters.get(name, entry)
    if view is None or view.problem:
        page.say(messages.WARNING, _("This dead letter no longer exists: it was redriven or deleted."))
        return HttpResponseRedirect(page.url("messages", name, "dead"))
    written = page.request.POST.get("data")
    if written is None:
        return _form(page, name, entry, editable(view.data))
    if CONFIRMED not in page.request.POST:
        return confirm(
            page,
            name,
            _("Resubmit 1 dead letter with changed data?"),
            tab="dead",
            sentence=_("It is published as a new message, at its first attempt, and the dead letter is deleted."),
            button=_("Yes, resubmit it"),
            act_url=page.url("dead_edit", name, entry),
            back_url=page.url("message", name, "dead", entry),
            fields=[("data", written)],
            listed=[text.visible(view.id, limit=200)],
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
        page.log(name, f"Resubmitted dead letter {view.id[:200]} with other data as {message_id}")
    return HttpResponseRedirect(page.url("messages", name, "dead"))


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
        back_url=page.url("message", name, "dead", entry),
    )


@needs(VIEW)
def groups(page: Page, name: str) -> HttpResponse:
    """Show the counts of dead letters by name and error."""
    found, can_move = dead_letters.groups(name), bool(dead_letters.targets(name))
    return page.render(
        "dead_groups",
        _("Dead letters by name and error"),
        queue=name,
        tabs=tabs(page, name, "dead"),
        rows=[_group(page, name, group, can_move=can_move) for group in found],
        counted=text.number(sum(group.count for group in found)),
        list_url=page.url("messages", name, "dead"),
    )


def _group(page: Page, name: str, found: DeadGroup, *, can_move: bool) -> dict[str, Any]:
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
        "url": f"{page.url('messages', name, 'dead')}?{query}",
        "redrive_url": f"{page.url('act_on_all', name, 'dead', 'redrive')}?{query}",
        "move_url": f"{page.url('act_on_all', name, 'dead', 'move')}?{query}" if can_move else "",
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
        for view in dead_letters.every(name, criteria):
            yield json.dumps(exported(view)) + "\n"
    except StoreError as error:
        # The headers of the response were already sent.
        yield json.dumps({"incomplete": sentence_of(error)}) + "\n"
