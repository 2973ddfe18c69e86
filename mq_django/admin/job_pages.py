"""What is done with messages: its verbs and questions, and the pages of background jobs on all that match."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.contrib import messages
from django.contrib.admin.models import LogEntry
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.ui import filter_form, text
from mq_django.admin.ui.page import OPERATE, SEE_DATA, VIEW, Page, confirm, needs, one_of, tabs
from mq_django.core.jsontext import whole
from mq_django.core.texts import escape
from mq_django.errors import InvalidFilter
from mq_django.inspector import action_log, dead_letters, jobs
from mq_django.inspector.action_log import CLOSE_MS, Action, Criteria
from mq_django.inspector.jobs import ACTIONS, ActionableState, BackgroundJob, Matching, pace_of
from mq_django.inspector.message_views import MessageState
from mq_django.inspector.queues import quick_stats

# What is done with messages has one verb, from the button to the entry in the admin's history.

REDRIVE, MOVE, DELETE, CANCEL, PURGE_READY = "redrive", "move", "delete", "cancel", "purge"

#: The most ends of jobs that the history reads.
MAX_ENDS = 1000

#: Their participles, for the history.
DONE = {REDRIVE: "redriven", MOVE: "moved", DELETE: "deleted", CANCEL: "cancelled", PURGE_READY: "purged"}


def verb_of(state: MessageState, what: str) -> str:
    """Return the verb for what is done with messages in a state: only dead letters are said to be deleted."""
    return what if state == "dead" or what == MOVE else PURGE_READY if state == "ready" else CANCEL


# Background jobs as text: what they do, and how far they are.


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
        (REDRIVE, "running"): _("Redriving: %(done)s so far."),
        (REDRIVE, "finished"): _("Redriven: %(done)s dead letters."),
        (REDRIVE, "cancelled"): _("The job was cancelled after %(done)s dead letters were redriven."),
        (MOVE, "running"): _("Moving to %(target)s: %(done)s so far."),
        (MOVE, "finished"): _("Moved to %(target)s: %(done)s dead letters."),
        (MOVE, "cancelled"): _("The job was cancelled after %(done)s dead letters were moved to %(target)s."),
        (DELETE, "running"): _("Deleting: %(done)s so far."),
        (DELETE, "finished"): _("Deleted: %(done)s dead letters."),
        (DELETE, "cancelled"): _("The job was cancelled after %(done)s dead letters were deleted."),
        (CANCEL, "running"): _("Cancelling messages: %(done)s so far."),
        (CANCEL, "finished"): _("Cancelled: %(done)s messages."),
        (CANCEL, "cancelled"): _("The job was cancelled after %(done)s messages were cancelled."),
        (PURGE_READY, "running"): _("Purging messages: %(done)s so far."),
        (PURGE_READY, "finished"): _("Purged: %(done)s messages."),
        (PURGE_READY, "cancelled"): _("The job was cancelled after %(done)s messages were purged."),
    }
    verb = verb_of(order.messages, order.what)
    if verb == MOVE and order.messages != "dead":
        sentences[MOVE, "finished"] = _("Moved to %(target)s: %(done)s messages.")
        sentences[MOVE, "cancelled"] = _("The job was cancelled after %(done)s messages were moved to %(target)s.")
    return sentences[verb, found.state] % {"done": done, "target": escape(order.target)[:160]}


def summary(found: BackgroundJob) -> str:
    """Return what a job does or did, to how many messages, and how far it is while it runs."""
    return f"{progress(found)} {pace(found)}".strip()


# The result of a job in the admin's history, where the entry of its start names the job: the activity has it.

#: Before the token of a job.
BEGUN = ": started as job "


def add_results(name: str, entries: Iterable[LogEntry]) -> None:
    """Show the results of a queue's jobs that have ended in these entries, as far as the activity has them."""
    begun = {each.change_message.rpartition(BEGUN)[2]: each for each in entries if BEGUN in each.change_message}
    if not begun:
        return
    since_ms = round(min(each.action_time for each in begun.values()).timestamp() * 1000) - CLOSE_MS
    criteria = Criteria(queue=name, verbs=("finish job", "cancel job"), since_ms=since_ms)
    # With partitions there is an end for each, and some may still run.
    running = {job.order.token for job in jobs.get_jobs(name).values() if job.state == "running"}
    ends: dict[str, list[Action]] = {}
    for end in action_log.search(criteria, limit=MAX_ENDS).rows:
        ends.setdefault(end.job, []).append(end)
    for token, entry in begun.items():
        if token in ends and token not in running:
            start = entry.change_message.removesuffix(f"{BEGUN}{token}")
            entry.change_message = f"{start}: {_result(ends[token], DONE.get(start.partition(' ')[0].lower(), 'done'))}"


def _result(ends: Sequence[Action], done: str) -> str:
    """Return what a job has done; in English, as the history is."""
    cancelled = [end.result for end in ends if end.verb == "cancel job"]
    if cancelled:
        return f"the job was cancelled {cancelled[0]}"
    counts = Counter({done: sum(end.done for end in ends)})
    for count, _space, word in (part.partition(" ") for end in ends for part in end.result.split(", ")):
        counts["no longer existed" if word == "missing" else word] += whole(count) or 0
    said = [f"{text.number(count)} {word}" for word, count in counts.items() if count or word == done]
    said += ["the job was cancelled"] if any(end.result.endswith("cancelled") for end in ends) else []
    return ", ".join(said)


# The pages of a queue's background jobs: watch one, cancel it, and run it in the request if it is short.

PARTS = ("tabs", "job")


def partition_for(word: str) -> ActionableState:
    """Return the place in an address.

    Raises:
        Http404: no jobs are on messages in this state.
    """
    return one_of(word, ACTIONS)


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
    live_url, where = page.url("job_stats", name, state), partition_for(state)
    return page.render("job", _("Background job"), live_url=live_url, **_context(page, name, where))


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
    runs = found.state == "running"
    return {
        "job": found,
        "job_runs": runs,
        "job_is_idle": runs and not view.alive,
        "job_on": {
            "dead": _("Dead letters at the start of the job."),
            "ready": _("Ready messages at the start of the job."),
            "delayed": _("Delayed messages at the start of the job."),
            "unhandled": _("Unhandled messages at the start of the job."),
            "parked": _("Parked messages at the start of the job."),
        }[state],
        "chips": filter_form.chips(found.order.criteria, can_see_data=page.can(SEE_DATA)),
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
        (_("Started"), text.moment(found.since_ms, exact=True)),
        (_("Last step") if found.state == "running" else _("Ended"), text.moment(found.changed_ms, exact=True)),
        (_("Rate limit"), _("%(count)s/s") % {"count": text.number(found.rate)} if found.rate else ""),
        (_("Worker"), text.visible(found.worker, limit=100) if found.worker else ""),
        (_("Scanned"), scanned(found)),
        (_("No longer existed"), text.number(found.missing) if found.missing else ""),
        (
            _("Refused") if found.order.target else _("Not valid messages"),
            text.number(found.refused) if found.refused else "",
        ),
    ]


# The question before something is done with messages.

#: The form field with the queue to which messages are moved.
TARGET = "target"


def chosen_target(page: Page, name: str) -> str:
    """Return the queue to which a user moves messages.

    Raises:
        InvalidFilter: none was selected, or one to which they cannot be moved.
    """
    target = filter_form.given(page, TARGET) or ""
    if target not in dead_letters.targets(name):
        raise InvalidFilter(_("Select the queue to which the messages are moved."))
    return target


def how_many(found: Matching) -> str:
    """Return the number of messages as far as they were counted."""
    number = {"count": text.number(found.count)}
    if not found.is_more:
        return number["count"]
    if found.count == jobs.MAX_COUNTED:
        return _("more than %(count)s") % number
    return _("at least %(count)s") % number if found.count else _("all matching")


def confirm_act(
    page: Page,
    name: str,
    state: MessageState,
    what: str,
    found: Matching,
    *,
    act_url: str,
    fields: list[tuple[str, str]],
    listed: Sequence[SafeString] = (),
    more: Sequence[str] = (),
    inputs: Sequence[Mapping[str, Any]] = (),
    samples: Mapping[str, Any] | None = None,
) -> HttpResponse:
    """Render the confirmation page of an action on messages."""
    verb = verb_of(state, what)
    # Without a number it is about several, also in languages in which nought is singular.
    count = max(2, found.count) if found.is_more else found.count
    is_live = verb == MOVE and state != "dead"
    title, sentence, button = _question_of_move(state, count) if is_live else _question(state, verb, count)
    if verb == MOVE:
        inputs = [_target_input(name), *inputs]
    return confirm(
        page,
        name,
        title % {"count": how_many(found)},
        " ".join([sentence, *more]),
        button,
        tab=state,
        act_url=act_url,
        back_url=page.url("messages", name, state) + filter_form.query(page),
        fields=fields,
        listed=listed,
        count=found.count if listed else 0,
        dangerous=verb in (DELETE, CANCEL, PURGE_READY),
        inputs=inputs,
        samples=samples,
    )


def _question(state: MessageState, verb: str, count: int) -> tuple[str, str, str]:
    """Return the title, the sentence and the button of the confirmation page of an action."""
    titles = {
        "ready": ngettext("Purge %(count)s ready message?", "Purge %(count)s ready messages?", count),
        "delayed": ngettext("Cancel %(count)s delayed message?", "Cancel %(count)s delayed messages?", count),
        "unhandled": ngettext("Cancel %(count)s unhandled message?", "Cancel %(count)s unhandled messages?", count),
        "parked": ngettext("Cancel %(count)s parked message?", "Cancel %(count)s parked messages?", count),
        "pending": ngettext("Cancel %(count)s pending message?", "Cancel %(count)s pending messages?", count),
        REDRIVE: ngettext("Redrive %(count)s dead letter?", "Redrive %(count)s dead letters?", count),
        MOVE: ngettext(
            "Move %(count)s dead letter to another queue?", "Move %(count)s dead letters to another queue?", count
        ),
        DELETE: ngettext("Delete %(count)s dead letter?", "Delete %(count)s dead letters?", count),
    }
    sentences = {
        REDRIVE: ngettext(
            "It returns to the queue and restarts at its first attempt.",
            "They return to the queue, and each restarts at its first attempt.",
            count,
        ),
        MOVE: ngettext(
            "It becomes ready in the queue that you select, and restarts at its first attempt.",
            "They become ready in the queue that you select, and each restarts at its first attempt.",
            count,
        ),
        DELETE: _("Deleted messages cannot be restored and are never handled."),
        CANCEL: _("Cancelled messages cannot be restored and are never handled."),
        PURGE_READY: _("Purged messages cannot be restored and are never handled."),
        "pending": _(
            "A handler that runs is interrupted where it is: its transaction is rolled back, and what it has done "
            "outside of it stays. A message whose handler has not started is never handled."
        ),
    }
    buttons = {
        REDRIVE: (_("Yes, redrive it"), _("Yes, redrive them")),
        MOVE: (_("Yes, move it"), _("Yes, move them")),
        DELETE: (_("Yes, delete it"), _("Yes, delete them")),
        CANCEL: (_("Yes, cancel it"), _("Yes, cancel them")),
        PURGE_READY: (_("Yes, purge it"), _("Yes, purge them")),
    }
    sentence = sentences[state if state == "pending" else verb]
    return titles[verb if state == "dead" else state], sentence, buttons[verb][count != 1]


def _question_of_move(state: MessageState, count: int) -> tuple[str, str, str]:
    """Return the same for a move of messages that are ready or wait."""
    titles = {
        "ready": ngettext(
            "Move %(count)s ready message to another queue?", "Move %(count)s ready messages to another queue?", count
        ),
        "delayed": ngettext(
            "Move %(count)s delayed message to another queue?",
            "Move %(count)s delayed messages to another queue?",
            count,
        ),
        "unhandled": ngettext(
            "Move %(count)s unhandled message to another queue?",
            "Move %(count)s unhandled messages to another queue?",
            count,
        ),
        "parked": ngettext(
            "Move %(count)s parked message to another queue?", "Move %(count)s parked messages to another queue?", count
        ),
    }
    sentence = ngettext(
        "It keeps its id, its attempts, and its due time if it has one. If a consumer takes it first, it stays here.",
        "They keep their ids, attempts, and the due times that they have. Those that a consumer takes first stay here.",
        count,
    )
    return titles[state], sentence, _("Yes, move it") if count == 1 else _("Yes, move them")


def _target_input(name: str) -> dict[str, Any]:
    """Return the field for the queue to which messages are moved."""
    return {
        "name": TARGET,
        "label": _("To queue"),
        "choices": dead_letters.targets(name),
        "help": _("It needs handlers for these messages. Without one, they wait."),
    }
