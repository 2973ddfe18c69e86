"""The page of a run of a workflow, and the lists of its steps."""

from collections.abc import Mapping, Sequence
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
from mq_django.admin.ui.page import OPERATE, SEE_DATA, VIEW, Page, needs
from mq_django.admin.ui.references import HIDDEN
from mq_django.admin.ui.tabs import sections
from mq_django.admin.workflows.run_graph import NodeLink, graph, step_kind, step_word
from mq_django.admin.workflows.run_list import kind_of, progress_of, state_word, took_text
from mq_django.conf import get_config
from mq_django.core.flow_graph import ranges
from mq_django.core.numbers import whole
from mq_django.core.step_ids import is_run_id
from mq_django.core.visible import escape
from mq_django.inspector import run_steps, workflow_runs
from mq_django.inspector.run_steps import STEP_STATES, StepLine
from mq_django.inspector.workflow_runs import ENDED_STATES, RunView

#: Steps per page of a list, and of each state on the page of a run with many steps.
PER_PAGE, EXAMPLES = 100, 10
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
    if not steps:
        context |= _folded(page, view)
        names: tuple[str, ...] = ("run_state",)
    else:
        context |= _drawn(page, view, steps)
        names = ("run_state", "run_graph", "run_steps")
    return page.render(
        "workflow_run",
        title_of(view),
        live=page.live(names, context).context(),
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
    context, steps = _context(page, view), run_steps.graph_steps(view)
    if not steps:
        return page.live(("run_state",), context)
    return page.live(("run_state", "run_graph", "run_steps"), {**context, **_drawn(page, view, steps)})


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
        rows=_rows(page, view, found.rows),
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


def _links(page: Page, steps: Sequence[StepLine]) -> Mapping[int, NodeLink]:
    """Return where steps lead to: a failed one to its dead letter, another one to the search for its message."""
    dead, find = run_steps.dead_letters_of(steps), page.url("find")
    found: dict[int, NodeLink] = {}
    for step in steps:
        if step.number in dead:
            found[step.number] = NodeLink(page.url("dead_letter", step.queue, dead[step.number]), _("Dead letter"))
        elif step.message_id:
            found[step.number] = NodeLink(f"{find}?{urlencode({'id': step.message_id})}", _("Find its message"))
    return found


def _drawn(page: Page, view: RunView, steps: Sequence[StepLine]) -> dict[str, Any]:
    links, before = _links(page, steps), run_steps.names_before(steps)
    return {
        "graph": graph(steps, links),
        "rows": [_row(page, view, step, links, before) for step in steps if not step.is_join],
        "with_before": True,
        "caption": _("Steps"),
    }


def _folded(page: Page, view: RunView) -> dict[str, Any]:
    found, url = run_steps.count_steps(view, examples=EXAMPLES), page.url("workflow_steps", view.id)
    links = _links(page, [step for group in found.first.values() for step in group])
    return {
        "groups": [
            {
                "state": step_word(state),
                "kind": step_kind(state),
                "count": text.number(count),
                "caption": _("Steps: %(state)s") % {"state": step_word(state)},
                "rows": [_row(page, view, step, links, {}) for step in found.first[state]],
                "more_url": f"{url}?{urlencode({'state': state})}" if count > EXAMPLES else "",
                "is_open": state in ("failed", "started"),
            }
            for state, count in found.counts.items()
        ],
        "looked": text.number(found.looked) if found.looked < view.last else "",
    }


def _rows(page: Page, view: RunView, steps: Sequence[StepLine]) -> list[dict[str, Any]]:
    links = _links(page, steps)
    return [_row(page, view, step, links, {}) for step in steps]


def _row(
    page: Page, view: RunView, step: StepLine, links: Mapping[int, NodeLink], before: Mapping[int, Sequence[int]]
) -> dict[str, Any]:
    link = links.get(step.number)
    can_skip = step.state == "failed" and page.can(OPERATE)
    return {
        "number": text.number(step.number),
        "task": text.visible(step.task, limit=120) if step.task else "",
        "queue": text.visible(step.queue, limit=80) if step.queue else "",
        "queue_url": page.queue_url(step.queue) if step.queue in get_config().queues else "",
        "state": step_word(step.state),
        "kind": step_kind(step.state),
        "before": text.visible(ranges(before.get(step.number, ())).replace(",", ", "), limit=60),
        "started": text.moment(step.began_ms),
        "took": text.seconds(step.took),
        "url": link.url if link else "",
        "what": link.what if link else "",
        "skip_url": page.url("workflow_skip", view.id, str(step.number)) if can_skip else "",
    }
