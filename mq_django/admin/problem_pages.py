"""The page of problems: all of them by severity and kind, with what to do, and what is muted."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import groupby
from typing import Any, get_args
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse
from django.utils.translation import gettext as _

from mq_django import inspector
from mq_django.admin import topic_pages
from mq_django.admin.ui import text
from mq_django.admin.ui.page import OPERATE, VIEW, Page, confirm, needs, problem_summary, sections, shown_problem
from mq_django.conf import get_config
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.project import Problem, Severity
from mq_django.errors import StoreError
from mq_django.inspector.actions import MAX_REASON
from mq_django.inspector.problem_list import QueueProblem, get_mutes, mute, problems_among, unmute
from mq_django.inspector.problem_sentences import period, title
from mq_django.stores.preferences import Mute

PARTS = ("problem_groups",)

#: The most problems of one kind that are listed.
MAX_OF_KIND = 100

#: For how long a problem may be muted.
SPANS = (timedelta(hours=1), timedelta(hours=4), timedelta(days=1), timedelta(days=7), timedelta(days=30))


@needs(VIEW)
def show(page: Page) -> HttpResponse:
    """Show all problems, the worst first."""
    context = _context(page)
    live = page.live(PARTS, context).context()
    return page.render("problems", _("Problems"), live_url=page.url("problems_stats"), live=live, **context)


@needs(VIEW)
def stats(page: Page) -> HttpResponse:
    """Return the live parts of the page."""
    return page.shared("problems", lambda: page.live(PARTS, _context(page))).response(page.request)


def _found() -> list[QueueProblem]:
    return [*topic_pages.unread(inspector.topics.topics()), *problems_among(inspector.overview(), ())]


def _found_of(queue: str) -> list[QueueProblem]:
    """Return the problems of a queue or topic, without reading all other queues."""
    if queue in get_config().queues:
        return problems_among(inspector.overview([queue]), ())
    return [problem for problem in _found() if problem.queue == queue]


def _context(page: Page) -> dict[str, Any]:
    found, mutes = _found(), dict[tuple[str, str], Mute]()
    # Their server may be the problem: the page is needed then.
    with suppress(StoreError):
        mutes |= get_mutes()
    unmuted = [problem for problem in found if problem.mute is None]
    titles: dict[Severity, str] = {"critical": _("Critical"), "warning": _("Warnings"), "notice": _("Notices")}
    severities = [
        {"name": severity, "title": title, "kinds": kinds}
        for severity, title in titles.items()
        if (kinds := list(_kinds(page, [problem for problem in unmuted if problem.severity == severity])))
    ]
    return {
        "tabs": sections(page, "problems"),
        "summary": problem_summary(len(unmuted)),
        "severities": severities,
        "muted": [_mute_row(page, *name, mute, found) for name, mute in sorted(mutes.items())],
    }


def _kinds(page: Page, found: Sequence[QueueProblem]) -> Iterator[dict[str, Any]]:
    order = get_args(Problem)
    for kind, group in groupby(sorted(found, key=lambda each: order.index(each.kind)), key=lambda each: each.kind):
        same = list(group)
        yield {
            "kind": kind,
            "title": title(kind),
            "count": text.number(len(same)),
            "advice": advice(kind),
            "rows": [_row(page, problem) for problem in same[:MAX_OF_KIND]],
            "more": text.beyond(len(same), MAX_OF_KIND),
        }


def _row(page: Page, problem: QueueProblem) -> dict[str, Any]:
    return {
        **shown_problem(page, problem),
        "since": text.moment(problem.since_ms),
        "actions": list(_actions(page, problem)),
        "mute_url": _mute_url(page, "problem_mute", problem.queue, problem.kind),
    }


def _mute_row(page: Page, queue: str, kind: str, mute: Mute, found: Sequence[QueueProblem]) -> dict[str, Any]:
    """Return a mute as a row, with the problems that it leaves out now: it lasts also while there are none."""
    return {
        "queue": text.visible(queue, limit=160),
        "sentence": " ".join(_sentences(found, queue, kind)) or kind,
        "until": text.moment(mute.until_ms, exact=True),
        "who": text.visible(mute.who, limit=80) if mute.who else "",
        "reason": text.visible(mute.reason, limit=MAX_REASON) if mute.reason else "",
        "mute_url": _mute_url(page, "problem_unmute", queue, kind),
    }


def _mute_url(page: Page, route: str, queue: str, kind: str) -> str:
    return f"{page.url(route)}?{urlencode({'queue': queue, 'kind': kind})}"


def _sentences(found: Sequence[QueueProblem], queue: str, kind: str) -> list[str]:
    return [problem.words for problem in found if (problem.queue, problem.kind) == (queue, kind)]


def _actions(page: Page, problem: QueueProblem) -> Iterator[tuple[str, str]]:
    """Yield what helps against a problem: labels and addresses of pages."""
    queue = problem.queue
    match problem.kind:
        case "unconsumed" | "stalled" | "starved" | "late" | "growing":
            yield _("Consumers"), page.url("consumers")
        case "unhandled":
            yield _("Unhandled"), page.url("messages", queue, "unhandled")
        case "buried" | "dead":
            yield _("Group by error"), page.url("dead_groups", queue)
            if page.can(OPERATE):
                yield _("Redrive all…"), page.url("act_on_all", queue, "dead", "redrive")
        case "paused" if page.can(OPERATE):
            yield _("Resume the queue…"), page.url("resume", queue)
        case "held":
            yield _("Dead letters"), page.url("messages", queue, "dead")
        case "lost" | "retention" if page.can(OPERATE) and GROUP_SEPARATOR in queue:
            yield _("Move…"), page.url("seek", queue)
        case "outbox":
            yield _("Outbox"), page.url("outbox")
        case "stuck":
            yield _("Workflows"), page.url("workflows")


def advice(kind: Problem) -> str:
    """Return what to do about a kind of problem."""
    slow = _("Start more consumers, or find the handler that is slow on the page of the queue.")
    sentences: dict[Problem, str] = {
        "unreadable": _("Look at Redis or the database, and at other programs that write to it."),
        "unconsumed": _("Start runconsumer, or see with which queues it was started."),
        "unattended": _("Start runconsumer with --housekeeping for this queue."),
        "outbox": _("See whether runconsumer or mq outbox --relay runs, and what was set aside."),
        "stalled": _("Look at the log of the consumers: they live, and do not fetch."),
        "lost": _("Start more consumers, or make RETENTION longer. Move the group to confirm the loss."),
        "retention": _("Start more consumers, or make RETENTION longer, before messages are lost."),
        "held": _("Redrive, edit or delete the dead letter, or skip it on the page of its key."),
        "breaker": _("See whether what its handlers need is up. It closes by itself when a probe is handled."),
        "starved": _("Start more threads or processes, or a runconsumer only for this queue."),
        "unhandled": _("Deploy the handler, or delete these messages."),
        "schedule": _("Correct the schedule on the page of the queue, or start runconsumer."),
        "stuck": _("Look at the run: its queue is full, or not in the settings."),
        "growing": slow,
        "buried": _("Read the errors, repair the cause, and redrive."),
        "late": slow,
        "paused": _("Resume the queue when its reason is over."),
        "hold": _("Release them when the reason is over."),
        "ready": slow,
        "dead": _("Redrive the dead letters, or delete them."),
    }
    return sentences[kind]


@needs(VIEW, OPERATE)
def silence(page: Page) -> HttpResponse:
    """Mute a kind of problem of a queue, after a confirmation that asks for how long and why."""
    asked, back = _asked(page), page.url("problems")
    same = [problem for problem in _found_of(asked[0]) if (problem.queue, problem.kind) == asked]
    if not same:
        return page.leave(back, _("This problem is over."), messages.INFO)
    problem, spans = same[0], {period(span): span for span in SPANS}
    chosen = page.request.POST.get("span", "")
    span = spans.get(chosen)
    if not page.is_confirmed or span is None:
        help_text = _("Pages, mq status --check and signals do not tell of it until then.")
        until = {"name": "span", "label": _("For"), "value": "", "choices": list(spans), "help": help_text}
        why = {"name": "reason", "label": _("Reason"), "value": "", "maxlength": str(MAX_REASON), "help": ""}
        return confirm(
            page,
            "",
            _("Mute this problem?"),
            " ".join(each.sentence for each in same),
            _("Yes, mute it"),
            tab="problems",
            act_url=page.request.get_full_path(),
            back_url=back,
            inputs=[until, why],
        )
    reason = page.request.POST.get("reason", "")
    mute(problem.queue, problem.kind, seconds=span.total_seconds(), who=page.username, reason=reason)
    because = f": {reason.strip()[:MAX_REASON]}" if reason.strip() else ""
    page.log(problem.queue, f"Muted {problem.kind} for {chosen}{because}")
    return page.leave(back, _("The problem is muted."), messages.SUCCESS)


@needs(VIEW, OPERATE)
def speak(page: Page) -> HttpResponse:
    """Unmute a kind of problem of a queue, after a confirmation."""
    (queue, kind), back = _asked(page), page.url("problems")
    name = next((each for each in get_mutes() if each == (queue, kind)), None)
    if name is not None and not page.is_confirmed:
        title, button, url = _("Unmute this problem?"), _("Yes, unmute it"), page.request.get_full_path()
        said = " ".join([queue, *(_sentences(_found_of(queue), queue, kind) or [kind])])
        return confirm(page, "", title, said, button, tab="problems", act_url=url, back_url=back)
    if name is not None and unmute(*name):
        page.log(queue, f"Unmuted {kind}")
    return page.leave(back, _("The problem is no longer muted."), messages.SUCCESS)


def _asked(page: Page) -> tuple[str, str]:
    """Return the queue and the kind of problem that the address names."""
    return page.request.GET.get("queue", ""), page.request.GET.get("kind", "")
