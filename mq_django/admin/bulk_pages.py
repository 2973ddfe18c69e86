"""Act on messages of a list: a background job on all that match, or at once on those that are selected.

Operators redrive or delete dead letters, purge ready messages, cancel messages that wait, and move all of these. A job
is counted, some of its messages are shown, and it starts when that is confirmed.
"""

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseBadRequest, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, override

from mq_django.admin import job_pages
from mq_django.admin.job_pages import CANCEL, DELETE, MOVE, REDRIVE, chosen_target, confirm_act, partition_for
from mq_django.admin.message_lists import COLUMNS, EXPORT, OF_CHOSEN, row_of, table
from mq_django.admin.ui import filter_form, text
from mq_django.admin.ui.page import (
    CHOSEN,
    MAX_LISTED,
    OPERATE,
    PURGE,
    SEE_DATA,
    VIEW,
    Page,
    attachment,
    chosen,
    confirm,
    needs,
    one_of,
    report,
)
from mq_django.conf import get_config
from mq_django.consumers.supervisor.chores import work_here
from mq_django.core import clock
from mq_django.core.filters import Filter
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.partitions import public_name
from mq_django.core.texts import escape, truncate
from mq_django.errors import InvalidFilter, MQError, QueueFull, StoreError
from mq_django.inspector import actions, dead_letters, jobs
from mq_django.inspector.actions import Outcome, effect_of
from mq_django.inspector.jobs import ACTIONS, ActionableState, Matching, What
from mq_django.inspector.message_lists import get_message
from mq_django.inspector.message_lists import messages as list_messages
from mq_django.inspector.message_views import MessageState, MessageView, exported, has_secrets, ref_of
from mq_django.producers import queues
from mq_django.stores.activity import recorded

#: A job on up to this many messages is run by the request itself, for up to this many seconds.
AT_ONCE, SECONDS = 1000, 1.0

#: The highest rate that can be entered.
MAX_RATE = 1_000_000


def _rate_input() -> dict[str, str]:
    """Return the field for the rate of a job, for a confirmation page."""
    shown = {"name": "rate", "label": _("Rate (messages/s)"), "value": "", "help": _("Empty = unlimited.")}
    return {**shown, "max": str(MAX_RATE)}


def _work_at_once(step: Callable[[str], float]) -> None:
    """Run a short job in this request. `step` gets a worker; it returns 0 while another step can follow at once."""
    worker, deadline = f"admin-{secrets.token_hex(4)}", time.monotonic() + SECONDS
    while not step(worker) and time.monotonic() < deadline:
        pass


def _read_rate(value: str) -> int:
    """Return the rate in messages per second, 0 for no limit. Invalid input must not mean no limit."""
    if not value:
        return 0
    if not (value.isdecimal() and len(value) < 10 and 0 < int(value) <= MAX_RATE):
        raise InvalidFilter(_("A rate is a number from 1 to %(most)s.") % {"most": text.number(MAX_RATE)})
    return int(value)


#: Messages that a question shows, which are searched for up to this many seconds.
SAMPLES, SEARCH = 5, 0.4

#: Their columns: name, time and data.
SHOWN = ("name", "at", "published", "data_code")

#: The fields of a filter: only dead letters have an error.
FIELDS = ("name", "key", "data", "from", "to")
FIELDS_OF_DEAD = (*filter_form.FIELDS, filter_form.OF_NAME, filter_form.OF_ERROR)


@needs(VIEW, OPERATE)
def act_on_all(page: Page, name: str, state: str, what: str) -> HttpResponse:
    """Begin a job on all messages of a place that match."""
    where = partition_for(state)
    action = one_of(what, ACTIONS[where])
    return _delete_all(page, name=name, state=where) if action == DELETE else _act(page, name, where, action)


@needs(VIEW, OPERATE, PURGE)
def _delete_all(page: Page, name: str, state: ActionableState) -> HttpResponse:
    return _act(page, name, state, "delete")


@needs(VIEW)
def old_purge(page: Page, name: str, state: str) -> HttpResponse:
    """Go from the old address of a purge to its question."""
    return HttpResponseRedirect(page.url("act_on_all", name, partition_for(state), DELETE) + page.query)


def _act(page: Page, name: str, state: ActionableState, what: What) -> HttpResponse:
    fields = FIELDS_OF_DEAD if state == "dead" else FIELDS
    filter_form.refuse_others(page, *fields, "until", "rate", *([job_pages.TARGET] if what == MOVE else []))
    criteria, until = filter_form.criteria(page), filter_form.given(page, "until") or ""
    if not page.is_confirmed:
        return _ask(page, name, state, what, criteria, until)
    rate = _read_rate(filter_form.given(page, "rate") or "")
    if state != "dead" and not until:
        raise InvalidFilter(_("The time of the preview is missing."))
    target = chosen_target(page, name) if what == MOVE else ""
    # The history has the number that the user was asked about.
    found = jobs.count_matching(name, state, criteria, until=until)
    who = escape(page.username)
    begun = jobs.begin(name, what, state, who=who, criteria=criteria, until=until, rate=rate, target=target)
    if begun.word == "nothing":
        return _nothing(page, name, state, what)
    if begun.word == "busy":
        return page.leave(
            page.url("job", name, state), _("Another job is running. Wait until it finishes, or cancel it.")
        )
    page.log(name, _begun(page, state, what, found, target, rate) + f"{job_pages.BEGUN}{begun.token}")
    if target:
        names = {view.name for view in list_messages(name, state, criteria, limit=SAMPLES, with_log=False).rows}
        if unknown := dead_letters.without_handler(target, names):
            warn_of_handlers(page, target, unknown)
    if begun.total <= AT_ONCE and not rate:
        _work_at_once(lambda worker: work_here(name, worker, state))
    return HttpResponseRedirect(page.url("job", name, state))


def _begun(page: Page, state: ActionableState, what: What, found: Matching, target: str, rate: int) -> str:
    """Return what a job does, for the history."""
    description, most = filter_form.describe(page, log=True), f", at most {rate}/s" if rate else ""
    which, where = f" where {description}" if description else "", f" to {target}" if target else ""
    named = "dead letters" if state == "dead" else f"{state} messages"
    # The history is in one language.
    with override("en"):
        count = job_pages.how_many(found)
    return f"{job_pages.verb_of(state, what).capitalize()} {count} {named}{where}{which}{most}"


def _ask(page: Page, name: str, state: ActionableState, what: What, criteria: Filter, until: str) -> HttpResponse:
    found = jobs.count_matching(name, state, criteria, until=until)
    if not found.count and not found.is_more:
        if not criteria:
            return _nothing(page, name, state, what)
        list_url = page.url("messages", name, state) + filter_form.query(page)
        return page.leave(list_url, _("No message matches the filter."), messages.INFO)
    more = []
    if state != "dead":
        more.append(_("Pending messages stay."))
    if state == "ready" and GROUP_SEPARATOR in name:
        more.append(_("Messages in the log of the topic stay: move the group to skip them."))
    return confirm_act(
        page,
        name,
        state,
        what,
        found,
        act_url=page.url("act_on_all", name, state, what),
        fields=[("until", found.until), *filter_form.asked(page).items()],
        more=[*more, _("The job runs in the background. You can follow its progress and cancel it.")],
        inputs=[_rate_input()],
        samples={
            "chips": filter_form.chips(criteria, can_see_data=True),
            **_samples(page, name, state, criteria, found),
        },
    )


def _nothing(page: Page, name: str, state: ActionableState, what: What) -> HttpResponse:
    sentences = {"dead": _("There are no dead letters."), "ready": _("There is nothing to purge.")}
    sentence = sentences.get(state) or _("There is nothing to cancel.")
    if what == MOVE and state != "dead":
        sentence = _("There is nothing to move.")
    return page.leave(page.url("messages", name, state), sentence, messages.INFO)


def _samples(page: Page, name: str, state: ActionableState, criteria: Filter, found: Matching) -> dict[str, Any]:
    """Return the context of the table of some messages that match, as on their list."""
    rows: list[dict[str, Any]] = []
    now_ms, deadline = clock.now_ms(), time.monotonic() + SEARCH
    for part in get_config().queue(name).each_part:
        after: str | None = ""
        while after is not None and len(rows) < SAMPLES and time.monotonic() < deadline:
            read = list_messages(part.name, state, criteria, after=after, limit=SAMPLES - len(rows), with_log=False)
            rows += [row_of(page, part.name, view, {}, now_ms=now_ms) for view in read.rows]
            after = read.after or None
    shown = table(page, [column for column in COLUMNS[state] if column.cell in SHOWN], rows)
    counted = {"shown": text.number(len(rows)), "count": job_pages.how_many(found)}
    return {**shown, "samples": _("Examples: %(shown)s of %(count)s") % counted}


# What is done with the selected messages of a list.

#: The most names without a handler that a sentence has.
MAX_NAMES = 5


@needs(VIEW, OPERATE)
def act_on_chosen(page: Page, name: str, state: MessageState) -> HttpResponse:
    """Move the selected messages, cancel those that are not ready, or redrive or delete dead letters, when confirmed.

    Handled ones are published again, or exported.
    """
    what = page.request.POST.get("action", "")
    if what not in OF_CHOSEN.get(state, ()):
        return HttpResponseBadRequest()
    if state == "handled":
        return _of_handled(page, name=name, what=what)
    refs, query = chosen(page), filter_form.query(page)
    list_url = page.url("messages", name, state) + query
    if not refs:
        return page.leave(list_url, _("Select dead letters first.") if state == "dead" else _("Select messages first."))
    entries = [ref_of(filter_form.named(page, ref)) for ref in refs]
    labels = (
        dead_letters.labels(name, entries[:MAX_LISTED])
        if state == "dead"
        else [_label(page, name, state, ref) for ref in refs[:MAX_LISTED]]
    )
    if not page.is_confirmed:
        return confirm_act(
            page,
            name,
            state,
            what,
            Matching(len(refs), is_more=False),
            act_url=page.url("chosen", name, state) + query,
            fields=[("action", what), *((CHOSEN, ref) for ref in refs)],
            listed=[text.visible(label, limit=200) for label in labels],
        )
    if what == CANCEL:
        _cancel(page, name, state, entries, labels)
    elif what == MOVE:
        target = chosen_target(page, name)
        outcome = jobs.move(name, partition_for(state), target, entries)
        _report(page, name, what, outcome, labels, target=target, is_dead=state == "dead")
    else:
        outcome = (dead_letters.redrive if what == REDRIVE else dead_letters.delete)(name, entries)
        _report(page, name, what, outcome, labels)
    return HttpResponseRedirect(list_url)


def _label(page: Page, name: str, state: MessageState, ref: str) -> str:
    """Return the id of a message for a confirmation or the log: the reference of a delivery does not have it."""
    is_entry = state in ("ready", "pending")
    view = get_message(name, state, ref_of(filter_form.named(page, ref))) if is_entry else None
    return filter_form.label(ref) if view is None else view.id


def _cancel(page: Page, name: str, state: MessageState, refs: Sequence[str], labels: Sequence[str]) -> None:
    if state != "pending":
        _report(page, name, CANCEL, actions.cancel(name, refs), labels)
        return
    views = [get_message(name, state, ref) for ref in refs]
    outcome = actions.cancel(name, [view.id for view in views if view is not None], running=True)
    outcome.missing += views.count(None)
    if outcome.asked:
        said = ngettext(
            "The consumer of %(count)s message was asked to cancel it. It is told within a second.",
            "The consumers of %(count)s messages were asked to cancel them. They are told within a second.",
            outcome.asked,
        )
        page.say(messages.SUCCESS, said % {"count": text.number(outcome.asked)})
        page.log(name, truncate(f"Asked to cancel {outcome.asked} running messages: {', '.join(labels)}", 1000))
    _report(page, name, CANCEL, outcome, labels)


@needs(VIEW, OPERATE, SEE_DATA)
def _of_handled(page: Page, name: str, what: str) -> HttpResponse:
    """Publish the selected messages again, when confirmed, or export them."""
    list_url, refs = page.url("messages", name, "handled") + filter_form.query(page), chosen(page)
    found = [get_message(name, "handled", ref_of(filter_form.named(page, ref))) for ref in refs]
    views = [view for view in found if view is not None and view.has_data]
    ids = ", ".join(view.id for view in views)
    if not views:
        return page.leave(list_url, _("Select messages whose data was kept."))
    if what == EXPORT:
        page.log(name, truncate(f"Exported {len(views)} handled messages: {ids}", 1000))
        return _exported(name, views)
    if not page.is_confirmed:
        count = len(views)
        title = ngettext("Publish %(count)s message again?", "Publish %(count)s messages again?", count)
        return confirm(
            page,
            name,
            title % {"count": text.number(count)},
            _("A new message is published for each, with the same name, data, key, headers and priority."),
            _("Yes, publish it") if count == 1 else _("Yes, publish them"),
            tab="handled",
            back_url=list_url,
            fields=[("action", what), *((CHOSEN, ref) for ref in refs)],
            listed=[text.visible(f"{view.name} {view.id}", limit=200) for view in views],
        )
    outcome = _publish_again(name, views)
    outcome.missing += len(found) - len(views)
    done = ngettext("%(count)s message was published.", "%(count)s messages were published.", outcome.done)
    refused = ngettext(
        "%(count)s has secrets, which are not shown here, or cannot be published any more.",
        "%(count)s have secrets, which are not shown here, or cannot be published any more.",
        outcome.refused,
    )
    logged = f"Published {outcome.done} messages again: {ids}"
    report(page, name, outcome, done=done % {"count": text.number(outcome.done)}, logged=logged, refused=refused)
    return HttpResponseRedirect(list_url)


def _exported(name: str, views: Sequence[MessageView]) -> HttpResponse:
    lines = "".join(f"{json.dumps(exported(view))}\n" for view in views)
    file = f"{name.replace(GROUP_SEPARATOR, '-')}-handled.jsonl"
    return HttpResponse(lines, content_type="application/x-ndjson", headers=attachment(file))


@recorded("publish", effect=lambda given, made: effect_of(given, made)._replace(about=made.examples))
def _publish_again(name: str, views: Sequence[MessageView]) -> Outcome:
    """Publish messages with the names, data, keys, headers and priorities of others."""
    outcome, queue = Outcome(), queues[public_name(name)]
    for view in views:
        if has_secrets(view):
            outcome.refused += 1
            continue
        options: Any = {"key": view.key, "headers": dict(view.headers), "priority": view.priority}
        try:
            outcome.examples.append(queue.publish(view.name, view.data, on_commit=False, **options))
            outcome.done += 1
        except (StoreError, QueueFull) as error:
            outcome.error = error
            break
        except MQError:
            outcome.refused += 1
    return outcome


def _done(number: int) -> Mapping[str, tuple[str, str]]:
    """Return what was done with so many messages, as a sentence, and as a verb for the history."""
    return {
        CANCEL: (
            ngettext("%(count)s message was cancelled.", "%(count)s messages were cancelled.", number),
            "Cancelled",
        ),
        REDRIVE: (
            ngettext("%(count)s dead letter was redriven.", "%(count)s dead letters were redriven.", number),
            "Redrove",
        ),
        MOVE: (
            ngettext(
                "%(count)s dead letter was moved to %(target)s.",
                "%(count)s dead letters were moved to %(target)s.",
                number,
            ),
            "Moved",
        ),
        f"{MOVE} live": (
            ngettext(
                "%(count)s message was moved to %(target)s.", "%(count)s messages were moved to %(target)s.", number
            ),
            "Moved",
        ),
        DELETE: (
            ngettext("%(count)s dead letter was deleted.", "%(count)s dead letters were deleted.", number),
            "Deleted",
        ),
    }


def _report(
    page: Page,
    name: str,
    what: str,
    outcome: Outcome,
    labels: Sequence[str],
    *,
    target: str = "",
    is_dead: bool = True,
) -> None:
    number = outcome.done
    done, verb = _done(number)[what if is_dead else f"{what} live"]
    refused = ngettext(
        "%(count)s stays here: it is not a valid message, is a step of a workflow, is too long for the other queue, or"
        " that has its id or its unique key.",
        "%(count)s stay here: they are not valid messages, are steps of workflows, are too long for the other queue, or"
        " it has their ids or their unique keys.",
        outcome.refused,
    )
    # The log is in English.
    kind = ("message" if what == CANCEL or not is_dead else "dead letter") + "s" * (number != 1)
    count = text.number(number)
    where = f" to {target}" if target else ""
    report(
        page,
        name,
        outcome,
        done=done % {"count": count, "target": target},
        logged=f"{verb} {count} {kind}{where}: {', '.join(labels)}",
        refused=refused if what == MOVE else "",
    )
    if outcome.without_handler:
        warn_of_handlers(page, target, outcome.without_handler)


def warn_of_handlers(page: Page, target: str, names: Sequence[str]) -> None:
    """Say that a queue has no handlers for messages that are moved to it or published there."""
    shown = ", ".join(escape(name)[:100] for name in names[:MAX_NAMES]) + (", …" if len(names) > MAX_NAMES else "")
    sentence = _("No handler of queue %(queue)s is registered here for %(names)s: such messages wait until one is.")
    page.say(messages.WARNING, sentence % {"queue": target, "names": shown})
