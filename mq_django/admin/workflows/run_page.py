"""The page of a run of a workflow, and the lists of its steps."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.admin.utils import quote
from django.http import Http404, HttpResponse, HttpResponseRedirect, JsonResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from mq_django.admin.messages.message_rows import shown_error
from mq_django.admin.ui import text
from mq_django.admin.ui.live import LiveParts
from mq_django.admin.ui.page import SEE_DATA, VIEW, Page, needs
from mq_django.admin.ui.references import HIDDEN
from mq_django.admin.ui.tabs import sections
from mq_django.admin.workflows.run_graph import graph, step_kind, step_word
from mq_django.admin.workflows.run_list import kind_of, progress_of, state_word, took_text
from mq_django.admin.workflows.step_rows import links_of, step_rows
from mq_django.core.numbers import whole
from mq_django.core.step_ids import is_run_id
from mq_django.core.visible import escape
from mq_django.inspector import run_steps, workflow_runs
from mq_django.inspector.run_steps import STEP_STATES, StepLine
from mq_django.inspector.workflow_runs import ENDED_STATES, RunView

#: Steps per page of a list, and of each state on the page of a run with many steps.
PER_PAGE, EXAMPLES = 100, 10
#: The most steps that are renewed while the page is open.
LIVE_STEPS = 40
#: What the object of a run is called in the admin's log, in front of its id. No queue has a space in its name.
LOGGED = "run "


def title_of(view: RunView) -> str:
    """Return the title of a run's pages."""
    return _("Run of %(name)s") % {"name": escape(view.name)[:100] or view.id}


def logged_run(name: str) -> str | None:
    """Return the id of the run that an object of the admin's log is; None if it is none."""
    run = name.removeprefix(LOGGED)
    return run if name.startswith(LOGGED) and is_run_id(run) else None


def gone(page: Page, run: str) -> HttpResponse:
    """Return to the list of runs, and say that there is no such run."""
    page.say(messages.WARNING, _("There is no run “%(run)s”: it ended a week ago.") % {"run": escape(run)[:100]})
    return HttpResponseRedirect(page.url("workflows"))


@needs(VIEW)
def show(page: Page, run: str) -> HttpResponse:
    """Show a run: a graph of up to 200 steps, or else the first steps of each state."""
    view = workflow_runs.run(run)
    if view is None:
        return gone(page, run)
    context = _context(page, view)
    steps = run_steps.graph_steps(view)
    context |= _drawn(page, view, steps) if steps else _folded(page, view)
    return page.render(
        "workflow_run",
        title_of(view),
        live=page.live(_live_parts(steps), context).context(),
        live_url=page.url("workflow_run_stats", view.id),
        **context,
    )


@needs(VIEW)
def stats(page: Page, run: str) -> HttpResponse:
    """Return the live parts of the page of a run."""
    if workflow_runs.run(run) is None:
        return JsonResponse({"error": _("This run does not exist any more.")}, status=404)
    return page.shared(f"run {run}", lambda: _live(page, run)).response(page.request)


def _live(page: Page, run: str) -> LiveParts:
    view = workflow_runs.run(run)
    if view is None:
        raise Http404
    context = _context(page, view)
    steps = run_steps.graph_steps(view) if view.total <= LIVE_STEPS else None
    names = _live_parts(steps)
    return page.live(names, {**context, **_drawn(page, view, steps)} if steps and len(names) > 1 else context)


def _live_parts(steps: Sequence[StepLine] | None) -> tuple[str, ...]:
    """Return the parts of the page that are renewed. Those of many steps would be hundreds of kilobytes each time."""
    is_small = steps and sum(not step.is_join for step in steps) <= LIVE_STEPS
    return ("run_state", "run_graph", "run_steps") if is_small else ("run_state",)


@needs(VIEW)
def steps(page: Page, run: str) -> HttpResponse:
    """Show a page of the steps of a run, all or those in one state."""
    view, asked = workflow_runs.run(run), page.request.GET
    if view is None:
        return gone(page, run)
    state = asked.get("state", "") if asked.get("state") in STEP_STATES.values() else ""
    found = run_steps.look_at_steps(view, state=state, after=whole(asked.get("after", "0"), 10**9) or 0, limit=PER_PAGE)
    terms = {"state": state} if state else {}
    url = page.url("workflow_run", view.id)
    return page.render(
        "workflow_steps",
        title_of(view),
        tabs=sections(page, "workflows"),
        run_url=url,
        state=step_word(state) if state else "",
        rows=step_rows(page, view, found.rows, links_of(page, found.rows)),
        go_on="?" + urlencode({**terms, "after": found.after}) if found.after else "",
        back="?" + urlencode(terms),
        looked=text.number(found.scanned),
    )


def _context(page: Page, view: RunView) -> dict[str, Any]:
    can_retry = view.state in ENDED_STATES - {"succeeded"} or (view.state == "running" and view.failed > 0)
    return {
        "tabs": sections(page, "workflows"),
        "summary": _summary(view.state),
        "facts": [(label, value) for label, value in _facts(page, view) if value],
        "progress": progress_of(view),
        "state": state_word(view.state),
        "kind": kind_of(view.state),
        "cancel_url": page.url("workflow_cancel", view.id) if view.state == "running" else "",
        "retry_url": page.url("workflow_retry", view.id) if can_retry else "",
        "history_url": page.url("history", quote(LOGGED + view.id)),
        "steps_url": page.url("workflow_steps", view.id),
    }


def _summary(state: str) -> str:
    sentences = {
        "succeeded": _("The run has succeeded."),
        "failed": _("The run has failed."),
        "cancelled": _("The run was cancelled."),
        "expired": _("The run has expired."),
    }
    return sentences.get(state) or _("The run is %(state)s.") % {"state": state_word(state)}


def _facts(page: Page, view: RunView) -> list[tuple[str, SafeString | str]]:
    sees = page.can(SEE_DATA)
    policies = {
        "stop": _("stop: after a failure no further step starts"),
        "continue": _("continue: after a failure all steps run that do not wait for it"),
    }
    failed = workflow_runs.failure(view.id) if view.failed else None
    return [
        (_("Workflow"), text.visible(view.name)),
        (_("Run"), view.id),
        (_("Policy"), policies.get(view.policy) or text.visible(view.policy, limit=40)),
        (_("Round"), text.number(view.round) if view.round > 1 else ""),
        (_("Started"), text.moment(view.started_ms)),
        (_("Ended"), text.moment(view.finished_ms)),
        (_("Took"), took_text(view)),
        (_("Expires"), "" if view.state in ENDED_STATES else text.moment(view.expires_ms)),
        (_("Unique key"), (text.visible(view.unique, limit=400) if sees else HIDDEN) if view.unique else ""),
        (_("Steps"), _counts(view)),
        (_("Latest failure"), _failure(failed, can_see_data=sees) if failed else ""),
    ]


def _counts(view: RunView) -> str:
    counts = {
        "done": view.done,
        "started": view.started,
        "failed": view.failed,
        "skipped": view.skipped,
        "waiting": view.waiting,
    }
    return ", ".join(f"{text.number(count)} {step_word(state)}" for state, count in counts.items() if count)


def _failure(failed: tuple[int, str], *, can_see_data: bool) -> SafeString:
    number, reason = failed
    said = shown_error(reason, can_see_data=can_see_data, limit=400)
    return format_html("{}: {}", _("Step %(number)s") % {"number": text.number(number)}, said)


def _drawn(page: Page, view: RunView, steps: Sequence[StepLine]) -> dict[str, Any]:
    links, tasks = links_of(page, steps), [step for step in steps if not step.is_join]
    return {
        "graph": graph(steps, links),
        "rows": step_rows(page, view, tasks, links, run_steps.names_before(steps)),
        "with_before": True,
        "caption": _("Steps"),
    }


def _folded(page: Page, view: RunView) -> dict[str, Any]:
    found, url = run_steps.count_steps(view, examples=EXAMPLES), page.url("workflow_steps", view.id)
    shown = [step for group in found.first.values() for step in group]
    rows = dict(zip([step.number for step in shown], step_rows(page, view, shown, links_of(page, shown)), strict=True))
    return {
        "groups": [
            {
                "state": step_word(state),
                "kind": step_kind(state),
                "count": text.number(count),
                "caption": _("Steps: %(state)s") % {"state": step_word(state)},
                "rows": [rows[step.number] for step in found.first[state]],
                "more_url": f"{url}?{urlencode({'state': state})}" if count > EXAMPLES else "",
                "is_open": state in ("failed", "started"),
            }
            for state, count in found.counts.items()
        ],
        "looked": text.number(found.looked) if found.looked < view.last else "",
    }
