"""Begin a background job on all messages of a state that match: count them, show some, ask, and start it.

Operators redrive or delete dead letters, purge ready messages, cancel messages that wait, and move all of these.
"""

import secrets
import time
from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import override

from mq_django.admin import job_pages
from mq_django.admin.chosen_messages import warn_of_handlers
from mq_django.admin.message_lists import COLUMNS, row_of, table
from mq_django.admin.ui import filter_form, text
from mq_django.admin.ui.page import OPERATE, PURGE, VIEW, Page, needs
from mq_django.conf import get_config
from mq_django.consumers.supervisor.job_runner import work_here
from mq_django.core import clock
from mq_django.core.filters import Filter
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.texts import escape
from mq_django.errors import InvalidFilter
from mq_django.inspector import dead_letters, jobs
from mq_django.inspector.jobs import ACTIONS, ActionableState, Matching, What
from mq_django.inspector.message_lists import messages as list_messages

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
    where = job_pages.partition_for(state)
    for action in ACTIONS[where]:
        if action == what:
            return (
                _delete_all(page, name=name, state=where)
                if what == job_pages.DELETE
                else _act(page, name, where, action)
            )
    raise Http404


@needs(VIEW, OPERATE, PURGE)
def _delete_all(page: Page, name: str, state: ActionableState) -> HttpResponse:
    return _act(page, name, state, "delete")


@needs(VIEW)
def old_purge(page: Page, name: str, state: str) -> HttpResponse:
    """Go from the old address of a purge to its question."""
    return HttpResponseRedirect(
        page.url("act_on_all", name, job_pages.partition_for(state), job_pages.DELETE) + page.query
    )


def _act(page: Page, name: str, state: ActionableState, what: What) -> HttpResponse:
    fields = FIELDS_OF_DEAD if state == "dead" else FIELDS
    filter_form.refuse_others(page, *fields, "until", "rate", *([job_pages.TARGET] if what == job_pages.MOVE else []))
    criteria, until = filter_form.criteria(page), filter_form.given(page, "until") or ""
    if not page.is_confirmed:
        return _ask(page, name, state, what, criteria, until)
    rate = _read_rate(filter_form.given(page, "rate") or "")
    if state != "dead" and not until:
        raise InvalidFilter(_("The time of the preview is missing."))
    target = job_pages.chosen_target(page, name) if what == job_pages.MOVE else ""
    # The history has the number that the user was asked about.
    found = jobs.count_matching(name, state, criteria, until=until)
    who = escape(page.request.user.get_username())
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
    return job_pages.confirm_act(
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
    if what == job_pages.MOVE and state != "dead":
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
