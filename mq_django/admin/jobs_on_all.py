"""Begin a background job on all messages of a place that a filter finds: preview, confirm and start it.

Operators redrive, move or delete dead letters, purge ready messages, and cancel those that wait.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseRedirect
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.ui import filter_form, job_pages, text
from mq_django.admin.ui.confirm import CONFIRMED, MAX_LISTED, confirm
from mq_django.admin.ui.job_pages import AT_ONCE, place_of, work_at_once
from mq_django.admin.ui.page import OPERATE, PURGE, VIEW, Page, needs
from mq_django.consumers.supervisor.job_runner import work_here
from mq_django.core.filters import Filter
from mq_django.core.keys import GROUP_SEPARATOR, UNIQUE_PREFIX
from mq_django.core.texts import escape
from mq_django.errors import InvalidFilter
from mq_django.inspector import dead_letters, jobs
from mq_django.inspector.jobs import ACTIONS, JobPlace, What
from mq_django.inspector.message_lists import messages as list_messages
from mq_django.inspector.message_views import MessageState
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import quick_stats
from mq_django.stores.background_jobs import MessagePlace

REDRIVE, MOVE, DELETE, CANCEL = "redrive", "move", "delete", "cancel"

#: The form field with the queue to which dead letters are moved.
TARGET = "target"

#: Messages that a preview reads at most, to count them and to show some.
PREVIEWED = 1000

#: The fields of a filter: only dead letters have an error.
FIELDS = ("name", "key", "from", "to")
FIELDS_OF_DEAD = (*filter_form.FIELDS, filter_form.OF_NAME, filter_form.OF_ERROR)


@dataclass(frozen=True)
class Preview:
    """How many messages match, or at most how many, the ids of some of them, and up to where the job goes."""

    count: int
    at_most: bool
    until: str
    examples: Sequence[str] = ()


@needs(VIEW, OPERATE)
def act_on_all(page: Page, name: str, place: str, what: str) -> HttpResponse:
    """Begin a job on all messages of a place that match."""
    where = place_of(place)
    for action in ACTIONS[where]:
        if action == what:
            return _delete_all(page, name=name, place=where) if what == DELETE else _act(page, name, where, action)
    raise Http404


@needs(VIEW, OPERATE, PURGE)
def _delete_all(page: Page, name: str, place: JobPlace) -> HttpResponse:
    return _act(page, name, place, "delete")


@needs(VIEW)
def old_purge(page: Page, name: str, place: str) -> HttpResponse:
    """Go from the old address of a purge to its question."""
    query = page.request.GET.urlencode()
    return HttpResponseRedirect(page.url("act_on_all", name, place_of(place), DELETE) + (f"?{query}" if query else ""))


def _act(page: Page, name: str, place: JobPlace, what: What) -> HttpResponse:
    fields = FIELDS_OF_DEAD if place == "dead" else FIELDS
    filter_form.refuse_others(page, *fields, "until", "rate", *([TARGET] if what == MOVE else []))
    criteria = filter_form.criteria(page)
    if page.request.method != "POST" or CONFIRMED not in page.request.POST:
        return _ask(page, name, place, what, _preview(page, name, place, criteria))
    rate, until = job_pages.read_rate(filter_form.given(page, "rate") or ""), filter_form.given(page, "until") or ""
    if place != "dead":
        if not (until.isdecimal() and len(until) < 16):
            raise InvalidFilter(_("The time of the preview is missing."))
        until = f"{until}-0"
    target = chosen_target(page, name) if what == MOVE else ""
    # The log of the admin has the number that the user was asked about.
    found = _preview(page, name, place, criteria)
    who = escape(page.request.user.get_username())
    begun = jobs.begin(name, what, place, who=who, criteria=criteria, until=until, rate=rate, target=target)
    if begun.word == "nothing":
        return _nothing(page, name, place)
    if begun.word == "busy":
        page.say(messages.WARNING, _("Another job is running. Wait until it finishes, or cancel it."))
        return HttpResponseRedirect(page.url("job", name, place))
    _log(page, name, place, what, found, target, rate)
    if begun.total <= AT_ONCE and not rate:
        work_at_once(lambda worker: work_here(name, worker, place))
    return HttpResponseRedirect(page.url("job", name, place))


def _log(page: Page, name: str, place: JobPlace, what: What, found: Preview, target: str, rate: int) -> None:
    description, most = filter_form.describe(page, log=True), f", at most {rate}/s" if rate else ""
    which = f" where {description}" if description else ""
    limit, where = "up to " if found.at_most else "", f" to {target}" if target else ""
    verb = what if place == "dead" else "purge" if place == "ready" else "cancel"
    named = "dead letters" if place == "dead" else f"{place} messages"
    page.log(name, f"Began to {verb} {limit}{text.number(found.count)} {named}{where}{which}{most}")


def chosen_target(page: Page, name: str) -> str:
    """Return the queue to which a user moves dead letters.

    Raises:
        InvalidFilter: none was selected, or one to which they cannot be moved.
    """
    target = filter_form.given(page, TARGET) or ""
    if target not in dead_letters.targets(name):
        raise InvalidFilter(_("Select the queue to which the dead letters are moved."))
    return target


def _ask(page: Page, name: str, place: JobPlace, what: What, found: Preview) -> HttpResponse:
    description, terms = filter_form.describe(page), filter_form.asked(page)
    if not found.count:
        if not description or place == "dead":
            return _nothing(page, name, place)
        page.say(messages.INFO, _("No message matches the filter."))
        return HttpResponseRedirect(page.url("messages", name, place) + filter_form.query(page))
    listed = found.examples[:MAX_LISTED]
    return confirm_act(
        page,
        name,
        place,
        what,
        found.count,
        act_url=page.url("act_on_all", name, place, what),
        fields=[("until", found.until), *terms.items()],
        listed=[
            *([text.visible(description, limit=1000)] if description else []),
            *(text.visible(example, limit=200) for example in listed),
        ],
        unlisted=max(0, found.count - len(listed)) if listed else 0,
        at_most=found.at_most,
        more=[_("It runs in the background. You can follow its progress and cancel it.")],
        inputs=[job_pages.rate_input()],
    )


def _nothing(page: Page, name: str, place: JobPlace) -> HttpResponse:
    sentences = {"dead": _("There are no dead letters."), "ready": _("There is nothing to purge.")}
    page.say(messages.INFO, sentences.get(place) or _("There is nothing to cancel."))
    return HttpResponseRedirect(page.url("messages", name, place))


def _preview(page: Page, name: str, place: JobPlace, criteria: Filter) -> Preview:
    if place == "dead":
        return _preview_of_dead(page, name, criteria)
    return _preview_of(quick_stats(name), place, criteria)


def _preview_of_dead(page: Page, name: str, criteria: Filter) -> Preview:
    """Return how many dead letters match: exactly for all, or for one group; for other filters, at most how many."""
    found = dead_letters.count(name, until=filter_form.given(page, "until") or "")
    if not criteria:
        return Preview(found.count, found.at_most, found.until)
    if criteria.group is not None and len(filter_form.asked(page)) == len(filter_form.group_terms(criteria.group)):
        counted = dead_letters.count_group(name, criteria.group)
        if counted is not None:
            return Preview(counted, found.at_most, found.until)
    return Preview(found.count, True, found.until)


def _preview_of(view: QueueView, place: MessagePlace, criteria: Filter) -> Preview:
    until = str(view.now_ms + 1)
    if view.parts:
        found = [_preview_of(part, place, criteria) for part in view.parts if part.own(place)]
        examples = [example for each in found for example in each.examples]
        return Preview(sum(each.count for each in found), any(each.at_most for each in found), until, examples)
    read = list_messages(view.name, place, criteria, limit=PREVIEWED, with_log=False)
    count = view.own(place) if read.after else len(read.rows)
    # Of others, the id is a unique key, which may contain data.
    examples = [row.id for row in read.rows if not row.ref.startswith(UNIQUE_PREFIX)]
    return Preview(count, bool(read.after and criteria), until, examples)


def confirm_act(
    page: Page,
    name: str,
    place: MessageState,
    what: str,
    count: int,
    *,
    act_url: str,
    fields: list[tuple[str, str]],
    listed: Sequence[SafeString] = (),
    unlisted: int = 0,
    at_most: bool = False,
    more: Sequence[str] = (),
    inputs: Sequence[Mapping[str, Any]] = (),
) -> HttpResponse:
    """Render the confirmation page of an action on messages, of which there are `count`, or at most as many."""
    title, sentence, button = _question(name, place, what, count)
    if what == MOVE:
        inputs = [_target_input(name), *inputs]
    number = text.number(count)
    return confirm(
        page,
        name,
        title % {"count": _("up to %(count)s") % {"count": number} if at_most else number},
        tab=place,
        sentence=" ".join([sentence, *more]),
        button=button,
        act_url=act_url,
        back_url=page.url("messages", name, place) + filter_form.query(page),
        fields=fields,
        listed=listed,
        unlisted=unlisted,
        dangerous=what in (DELETE, CANCEL),
        inputs=inputs,
    )


def _question(name: str, place: MessageState, what: str, count: int) -> tuple[str, str, str]:
    """Return the title, the sentence and the button of the confirmation page of an action."""
    deleted = _("Deleted messages cannot be restored and are never handled.")
    if what == CANCEL:
        title = ngettext("Cancel %(count)s message?", "Cancel %(count)s messages?", count)
        sentence = ngettext(
            "It is deleted and will never be handled.", "They are deleted and will never be handled.", count
        )
    elif place != "dead":
        title = {
            "ready": ngettext("Purge %(count)s ready message?", "Purge %(count)s ready messages?", count),
            "delayed": ngettext("Cancel %(count)s delayed message?", "Cancel %(count)s delayed messages?", count),
            "unhandled": ngettext("Cancel %(count)s unhandled message?", "Cancel %(count)s unhandled messages?", count),
            "parked": ngettext("Cancel %(count)s parked message?", "Cancel %(count)s parked messages?", count),
        }[place]
        sentences = [deleted, _("Pending messages are not deleted.")]
        if place == "ready" and GROUP_SEPARATOR in name:
            sentences.append(_("Messages in the log of the topic stay: move the group to skip them."))
        return title, " ".join(sentences), _button(DELETE if place == "ready" else CANCEL, count)
    elif what == REDRIVE:
        title = ngettext("Redrive %(count)s dead letter?", "Redrive %(count)s dead letters?", count)
        sentence = ngettext(
            "It returns to the queue and restarts at its first attempt.",
            "They return to the queue, and each restarts at its first attempt.",
            count,
        )
    elif what == MOVE:
        title = ngettext(
            "Move %(count)s dead letter to another queue?", "Move %(count)s dead letters to another queue?", count
        )
        sentence = ngettext(
            "It becomes ready in the queue that you select, and restarts at its first attempt.",
            "They become ready in the queue that you select, and each restarts at its first attempt.",
            count,
        )
    else:
        title, sentence = ngettext("Delete %(count)s dead letter?", "Delete %(count)s dead letters?", count), deleted
    return title, sentence, _button(what, count)


def _button(verb: str, count: int) -> str:
    words = {
        REDRIVE: (_("Yes, redrive it"), _("Yes, redrive them")),
        MOVE: (_("Yes, move it"), _("Yes, move them")),
        DELETE: (_("Yes, delete it"), _("Yes, delete them")),
        CANCEL: (_("Yes, cancel it"), _("Yes, cancel them")),
    }
    return words[verb][count != 1]


def _target_input(name: str) -> dict[str, Any]:
    """Return the field for the queue to which dead letters are moved."""
    return {
        "name": TARGET,
        "label": _("To queue"),
        "choices": dead_letters.targets(name),
        "help": _("It needs handlers for these messages. Without one, they wait."),
    }
