"""Background jobs on all messages of a state that match: preview, confirm and start one, watch it, cancel it."""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseRedirect
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.ui import filter_form, text
from mq_django.admin.ui.page import MAX_LISTED, OPERATE, PURGE, SEE_DATA, VIEW, Page, confirm, needs, tabs
from mq_django.consumers.supervisor.job_runner import work_here
from mq_django.core.filters import Filter
from mq_django.core.keys import GROUP_SEPARATOR, UNIQUE_PREFIX
from mq_django.core.texts import escape
from mq_django.errors import InvalidFilter
from mq_django.inspector import dead_letters, jobs
from mq_django.inspector.jobs import ACTIONS, ActionableState, BackgroundJob, What, pace_of
from mq_django.inspector.message_lists import messages as list_messages
from mq_django.inspector.message_views import MessageState
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import quick_stats
from mq_django.stores.background_jobs import DeletableState

# Background jobs as text: what they do, how far they are, and the fields of their forms.

#: The highest rate that can be entered.
MAX_RATE = 1_000_000


def rate_input() -> dict[str, str]:
    """Return the field for the rate of a job, for a confirmation page."""
    shown = {"name": "rate", "label": _("Rate (messages/s)"), "value": "", "help": _("Empty = unlimited.")}
    return {**shown, "max": str(MAX_RATE)}


def scanned(found: BackgroundJob) -> str:
    """Return how many messages a job has scanned, of how many."""
    return _("%(count)s of %(total)s") % {"count": text.number(found.looked), "total": text.number(found.total)}


def pace(found: BackgroundJob) -> str:
    """Return how far a running job is, how fast, and when it ends if it continues like this; else empty."""
    paced = pace_of(found)
    if paced is None:
        return ""
    per_second, left_ms = paced
    return _("Scanned %(scanned)s, %(count)s/s, about %(time)s left.") % {
        "scanned": scanned(found),
        "count": text.number(max(1, per_second)),
        "time": text.duration(left_ms),
    }


def progress(found: BackgroundJob) -> str:
    """Return what a job does, or did, and to how many messages."""
    order, done = found.order, text.number(found.done)
    sentences: dict[tuple[str, str], str] = {
        ("redrive", "running"): _("Redriving: %(done)s so far."),
        ("redrive", "finished"): _("Redriven: %(done)s dead letters."),
        ("redrive", "cancelled"): _("Cancelled after %(done)s dead letters were redriven."),
        ("move", "running"): _("Moving to %(target)s: %(done)s so far."),
        ("move", "finished"): _("Moved to %(target)s: %(done)s dead letters."),
        ("move", "cancelled"): _("Cancelled after %(done)s dead letters were moved to %(target)s."),
        ("delete", "running"): _("Deleting: %(done)s so far."),
        ("delete", "finished"): _("Deleted: %(done)s dead letters."),
        ("delete", "cancelled"): _("Cancelled after %(done)s dead letters were deleted."),
        ("purge", "running"): _("Deleting messages: %(done)s so far."),
        ("purge", "finished"): _("Deleted: %(done)s messages."),
        ("purge", "cancelled"): _("Cancelled after %(done)s messages were deleted."),
    }
    what = order.what if order.messages == "dead" else "purge"
    return sentences[what, found.state] % {"done": done, "target": escape(order.target)[:160]}


def summary(found: BackgroundJob) -> str:
    """Return what a job does or did, to how many messages, and how far it is while it runs."""
    return f"{progress(found)} {pace(found)}".strip()


def filter_text(found: BackgroundJob, *, can_see_data: bool) -> str:
    """Return the filter of a job as text. Keys and errors may contain message data."""
    criteria, state = found.order.criteria, found.order.messages
    all_of_them = {
        "dead": _("All dead letters at the start of the job."),
        "ready": _("Ready messages at the start of the job."),
        "delayed": _("Delayed messages at the start of the job."),
        "unhandled": _("Unhandled messages at the start of the job."),
        "parked": _("Parked messages at the start of the job."),
    }[state]
    if not criteria:
        return all_of_them
    name, error = criteria.group or ("", "")
    terms = {
        "name": criteria.name,
        "key": criteria.key,
        "error": criteria.error,
        "from": "" if criteria.since_ms is None else text.date(criteria.since_ms),
        "to": "" if criteria.until_ms is None else text.date(criteria.until_ms),
        filter_form.OF_NAME: name,
        filter_form.OF_ERROR: error,
    }
    known = {field: value for field, value in terms.items() if value}
    selected = filter_form.described(known, can_see_data=can_see_data)
    return selected if state == "dead" else f"{all_of_them} {selected}"


def read_rate(value: str) -> int:
    """Return the rate in messages per second, 0 for no limit. Invalid input must not mean no limit."""
    if not value:
        return 0
    if not (value.isdecimal() and len(value) < 10 and 0 < int(value) <= MAX_RATE):
        raise InvalidFilter(_("A rate is a number from 1 to %(most)s.") % {"most": text.number(MAX_RATE)})
    return int(value)


# The pages of a queue's background jobs: watch one, cancel it, and run it in the request if it is short.

#: A job on up to this many messages is run by the request itself, for up to this many seconds.
AT_ONCE, SECONDS = 1000, 1.0

PARTS = ("tabs", "job")


def work_at_once(step: Callable[[str], float]) -> None:
    """Run a short job in this request. `step` gets a worker; it returns 0 while another step can follow at once."""
    worker, deadline = f"admin-{secrets.token_hex(4)}", time.monotonic() + SECONDS
    while not step(worker) and time.monotonic() < deadline:
        pass


def partition_for(word: str) -> ActionableState:
    """Return the place in an address.

    Raises:
        Http404: no jobs are on messages in this state.
    """
    for state in get_args(ActionableState):
        if word == state:
            found: ActionableState = state
            return found
    raise Http404


def running_jobs(page: Page, name: str, found: tuple[BackgroundJob, ...]) -> list[dict[str, str]]:
    """Return the running jobs of a queue, for the overview and the queue's page."""
    return [{"queue": name, "line": summary(job), "url": page.url("job", name, job.order.messages)} for job in found]


def job_line(page: Page, name: str, state: ActionableState) -> dict[str, Any]:
    """Return the summary of the job for the list of messages that it is on."""
    found = jobs.get_job(name, state)
    if found is None:
        return {}
    return {
        "job_line": summary(found),
        "job_runs": found.state == "running",
        "job_url": page.url("job", name, state),
    }


@needs(VIEW)
def show(page: Page, name: str, state: str) -> HttpResponse:
    """Show the running job of a place, or the last one."""
    live_url = page.url("job_stats", name, state)
    return page.render("job", _("Background job"), live_url=live_url, **_context(page, name, partition_for(state)))


@needs(VIEW)
def stats(page: Page, name: str, state: str) -> HttpResponse:
    """Return the live parts of the page."""
    return page.parts(PARTS, _context(page, name, partition_for(state)))


@needs(VIEW)
def latest(page: Page, name: str) -> HttpResponse:
    """Go to the page of the running job, or the last one, whatever its place: an old address says none."""
    found = max(jobs.get_jobs(name).values(), key=lambda job: (job.state == "running", job.since_ms), default=None)
    return HttpResponseRedirect(page.queue_url(name) if found is None else page.url("job", name, found.order.messages))


@needs(VIEW, OPERATE)
def cancel(page: Page, name: str, state: str) -> HttpResponse:
    """Cancel the job, after confirmation."""
    where, back_url = partition_for(state), page.url("job", name, state)
    found = jobs.get_job(name, where)
    if found is None or found.state != "running":
        return page.leave(back_url, _("No job is running."), messages.INFO)
    if not page.is_confirmed:
        others = _("The other dead letters are kept.") if where == "dead" else _("The other messages are kept.")
        changes = _("%(progress)s Changes made so far stay.") % {"progress": progress(found)}
        return confirm(
            page, name, _("Cancel the job?"), f"{changes} {others}", _("Yes, cancel it"), tab=where, back_url=back_url
        )
    if jobs.cancel(name, where):
        page.say(messages.SUCCESS, _("The job was cancelled."))
        page.log(name, f"Cancelled a job of {found.order.who}: {progress(found)}")
    return HttpResponseRedirect(back_url)


def _context(page: Page, name: str, state: ActionableState) -> dict[str, Any]:
    found, view = jobs.get_job(name, state), quick_stats(name)
    frame = {
        "queue": name,
        "tabs": tabs(page, name, state, view),
        "list_url": page.url("messages", name, state),
        "list_label": _("Back to the dead letters") if state == "dead" else _("Back to the messages"),
    }
    if found is None:
        return {"job": None, "summary": _("There is no job."), **frame}
    runs, can_see_data = found.state == "running", page.can(SEE_DATA)
    return {
        "job": found,
        "job_runs": runs,
        "job_is_idle": runs and not view.alive,
        "job_filter": text.visible(filter_text(found, can_see_data=can_see_data), limit=1000),
        "job_facts": [(label, value) for label, value in _facts(found) if value],
        # Numbers for attributes, without separators.
        "job_value": str(found.total if found.state == "finished" else min(found.looked, found.total)),
        "job_max": str(max(1, found.total)),
        "summary": summary(found),
        "cancel_url": page.url("job_cancel", name, state),
        **frame,
    }


def _facts(found: BackgroundJob) -> list[tuple[str, Any]]:
    return [
        (_("To queue"), text.visible(found.order.target, limit=160) if found.order.target else ""),
        (_("Started by"), text.visible(found.order.who, limit=100)),
        (_("Started"), text.moment(found.since_ms)),
        (_("Last step") if found.state == "running" else _("Ended"), text.moment(found.changed_ms)),
        (_("Rate limit"), _("%(count)s/s") % {"count": text.number(found.rate)} if found.rate else ""),
        (_("Worker"), text.visible(found.worker, limit=100) if found.worker else ""),
        (_("Scanned"), scanned(found)),
        (_("No longer existed"), text.number(found.missing) if found.missing else ""),
        (
            _("Refused") if found.order.target else _("Not valid messages"),
            text.number(found.refused) if found.refused else "",
        ),
    ]


# Begin a background job on all messages of a place that a filter finds: preview, confirm and start it.
#
# Operators redrive, move or delete dead letters, purge ready messages, and cancel those that wait.

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
def act_on_all(page: Page, name: str, state: str, what: str) -> HttpResponse:
    """Begin a job on all messages of a place that match."""
    where = partition_for(state)
    for action in ACTIONS[where]:
        if action == what:
            return _delete_all(page, name=name, state=where) if what == DELETE else _act(page, name, where, action)
    raise Http404


@needs(VIEW, OPERATE, PURGE)
def _delete_all(page: Page, name: str, state: ActionableState) -> HttpResponse:
    return _act(page, name, state, "delete")


@needs(VIEW)
def old_purge(page: Page, name: str, state: str) -> HttpResponse:
    """Go from the old address of a purge to its question."""
    return HttpResponseRedirect(page.url("act_on_all", name, partition_for(state), DELETE) + page.query)


def _act(page: Page, name: str, state: ActionableState, what: What) -> HttpResponse:
    fields = FIELDS_OF_DEAD if state == "dead" else FIELDS
    filter_form.refuse_others(page, *fields, "until", "rate", *([TARGET] if what == MOVE else []))
    criteria = filter_form.criteria(page)
    if not page.is_confirmed:
        return _ask(page, name, state, what, _preview(page, name, state, criteria))
    rate, until = read_rate(filter_form.given(page, "rate") or ""), filter_form.given(page, "until") or ""
    if state != "dead":
        if not (until.isdecimal() and len(until) < 16):
            raise InvalidFilter(_("The time of the preview is missing."))
        until = f"{until}-0"
    target = chosen_target(page, name) if what == MOVE else ""
    # The log of the admin has the number that the user was asked about.
    found = _preview(page, name, state, criteria)
    who = escape(page.request.user.get_username())
    begun = jobs.begin(name, what, state, who=who, criteria=criteria, until=until, rate=rate, target=target)
    if begun.word == "nothing":
        return _nothing(page, name, state)
    if begun.word == "busy":
        return page.leave(
            page.url("job", name, state), _("Another job is running. Wait until it finishes, or cancel it.")
        )
    _log(page, name, state, what, found, target, rate)
    if begun.total <= AT_ONCE and not rate:
        work_at_once(lambda worker: work_here(name, worker, state))
    return HttpResponseRedirect(page.url("job", name, state))


def _log(page: Page, name: str, state: ActionableState, what: What, found: Preview, target: str, rate: int) -> None:
    description, most = filter_form.describe(page, log=True), f", at most {rate}/s" if rate else ""
    which = f" where {description}" if description else ""
    limit, where = "up to " if found.at_most else "", f" to {target}" if target else ""
    verb = what if state == "dead" else "purge" if state == "ready" else "cancel"
    named = "dead letters" if state == "dead" else f"{state} messages"
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


def _ask(page: Page, name: str, state: ActionableState, what: What, found: Preview) -> HttpResponse:
    description, terms = filter_form.describe(page), filter_form.asked(page)
    if not found.count:
        if not description or state == "dead":
            return _nothing(page, name, state)
        return page.leave(
            page.url("messages", name, state) + filter_form.query(page),
            _("No message matches the filter."),
            messages.INFO,
        )
    listed = found.examples[:MAX_LISTED]
    return confirm_act(
        page,
        name,
        state,
        what,
        found.count,
        act_url=page.url("act_on_all", name, state, what),
        fields=[("until", found.until), *terms.items()],
        listed=[
            *([text.visible(description, limit=1000)] if description else []),
            *(text.visible(example, limit=200) for example in listed),
        ],
        unlisted=max(0, found.count - len(listed)) if listed else 0,
        at_most=found.at_most,
        more=[_("It runs in the background. You can follow its progress and cancel it.")],
        inputs=[rate_input()],
    )


def _nothing(page: Page, name: str, state: ActionableState) -> HttpResponse:
    sentences = {"dead": _("There are no dead letters."), "ready": _("There is nothing to purge.")}
    return page.leave(
        page.url("messages", name, state), sentences.get(state) or _("There is nothing to cancel."), messages.INFO
    )


def _preview(page: Page, name: str, state: ActionableState, criteria: Filter) -> Preview:
    if state == "dead":
        return _preview_of_dead(page, name, criteria)
    return _preview_of(quick_stats(name), state, criteria)


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


def _preview_of(view: QueueView, state: DeletableState, criteria: Filter) -> Preview:
    until = str(view.now_ms + 1)
    if view.parts:
        found = [_preview_of(part, state, criteria) for part in view.parts if part.own(state)]
        examples = [example for each in found for example in each.examples]
        return Preview(sum(each.count for each in found), any(each.at_most for each in found), until, examples)
    read = list_messages(view.name, state, criteria, limit=PREVIEWED, with_log=False)
    count = view.own(state) if read.after else len(read.rows)
    # Of others, the id is a unique key, which may contain data.
    examples = [row.id for row in read.rows if not row.ref.startswith(UNIQUE_PREFIX)]
    return Preview(count, bool(read.after and criteria), until, examples)


def confirm_act(
    page: Page,
    name: str,
    state: MessageState,
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
    title, sentence, button = _question(name, state, what, count)
    if what == MOVE:
        inputs = [_target_input(name), *inputs]
    number = text.number(count)
    return confirm(
        page,
        name,
        title % {"count": _("up to %(count)s") % {"count": number} if at_most else number},
        " ".join([sentence, *more]),
        button,
        tab=state,
        act_url=act_url,
        back_url=page.url("messages", name, state) + filter_form.query(page),
        fields=fields,
        listed=listed,
        unlisted=unlisted,
        dangerous=what in (DELETE, CANCEL),
        inputs=inputs,
    )


def _question(name: str, state: MessageState, what: str, count: int) -> tuple[str, str, str]:
    """Return the title, the sentence and the button of the confirmation page of an action."""
    deleted = _("Deleted messages cannot be restored and are never handled.")
    if what == CANCEL:
        title = ngettext("Cancel %(count)s message?", "Cancel %(count)s messages?", count)
        sentence = ngettext(
            "It is deleted and will never be handled.", "They are deleted and will never be handled.", count
        )
    elif state != "dead":
        title = {
            "ready": ngettext("Purge %(count)s ready message?", "Purge %(count)s ready messages?", count),
            "delayed": ngettext("Cancel %(count)s delayed message?", "Cancel %(count)s delayed messages?", count),
            "unhandled": ngettext("Cancel %(count)s unhandled message?", "Cancel %(count)s unhandled messages?", count),
            "parked": ngettext("Cancel %(count)s parked message?", "Cancel %(count)s parked messages?", count),
        }[state]
        sentences = [deleted, _("Pending messages are not deleted.")]
        if state == "ready" and GROUP_SEPARATOR in name:
            sentences.append(_("Messages in the log of the topic stay: move the group to skip them."))
        return title, " ".join(sentences), _button(DELETE if state == "ready" else CANCEL, count)
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
