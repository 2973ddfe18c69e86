"""The list of all runs of workflows."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.admin.utils import quote
from django.http import Http404, HttpResponse, JsonResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.consumer_pages import stack_anchor
from mq_django.admin.message_lists import shown_error
from mq_django.admin.run_graph import NodeLink, graph, parts_of, step_kind, step_word, time_line
from mq_django.admin.ui import text
from mq_django.admin.ui.filter_form import HIDDEN, MAX_TEXT, message_url
from mq_django.admin.ui.live import LiveParts, LiveRows
from mq_django.admin.ui.page import OPERATE, SEE_DATA, VIEW, Page, confirm, interrupted, needs, sections, sentence_of
from mq_django.admin.ui.text import bar, share_bar
from mq_django.conf import get_config
from mq_django.core.flow_graph import MAX_ARGUMENT, ranges
from mq_django.core.ids import is_run_id
from mq_django.core.jsontext import whole
from mq_django.core.texts import escape
from mq_django.errors import StoreError
from mq_django.inspector import actions, workflow_runs
from mq_django.inspector.message_views import progress_of
from mq_django.inspector.open_steps import OpenStep, StepTimes, explain_steps, times_of
from mq_django.inspector.workflow_runs import ENDED_STATES, RUN_STATES, STEP_STATES, RunView, StepLine
from mq_django.producers import workflow_run
from mq_django.transport.sessions import within

#: Runs per page.
PER_PAGE = 50


def state_word(state: str) -> str:
    """Return the state of a run as a word for people."""
    words = {
        "building": _("being defined"),
        "running": _("running"),
        "succeeded": _("succeeded"),
        "failed": _("failed"),
        "cancelled": _("cancelled"),
        "expired": _("expired"),
    }
    return words.get(state) or escape(state)[:40]


@needs(VIEW)
def runs(page: Page) -> HttpResponse:
    """Show a page of runs, the latest first."""
    context = _context(page)
    live, live_url = _live(page, context).context(), page.url("workflows_stats") + page.query
    return page.render("workflows", _("Workflows"), live=live, live_url=live_url, **context)


@needs(VIEW)
def stats(page: Page) -> HttpResponse:
    """Return the live parts of the page."""
    return page.shared("workflows", lambda: _live(page, _context(page))).response(page.request)


def _live(page: Page, context: dict[str, Any]) -> LiveParts:
    return page.live((), context, {"runs": LiveRows.of("run_row", context["rows"], "id")})


def _context(page: Page) -> dict[str, Any]:
    asked = page.request.GET
    state, name = asked.get("state", ""), asked.get("name", "").strip()[:MAX_TEXT]
    state = state if state in RUN_STATES else ""
    terms = {key: value for key, value in (("state", state), ("name", name)) if value}
    found = workflow_runs.list_runs(state=state, name=name, after=asked.get("after", ""), limit=PER_PAGE)
    return {
        "tabs": sections(page, "workflows"),
        "summary": _summary(),
        "rows": [_row(page, view) for view in found.rows],
        "states": [
            {"value": one, "label": state_word(one), "is_chosen": one == state}
            for one in RUN_STATES
            if one != "building"
        ],
        "name": name,
        "is_filtered": bool(terms),
        "is_later": bool(asked.get("after")),
        "go_on": "?" + urlencode({**terms, "after": found.after}) if found.after else "",
        "back": "?" + urlencode(terms),
        "looked": text.number(found.scanned),
    }


def _summary() -> str:
    count = workflow_runs.count_alive()
    if not count:
        return _("No run is running.")
    return ngettext("%(count)s run is running.", "%(count)s runs are running.", count) % {"count": text.number(count)}


def _row(page: Page, view: RunView) -> dict[str, Any]:
    return {
        "id": view.id,
        "name": text.visible(view.name, limit=80),
        "url": page.url("workflow_run", view.id),
        "state": state_word(view.state),
        "kind": kind_of(view.state),
        "is_bad": view.state in ("failed", "expired"),
        "progress": run_progress(view),
        "failed": text.number(view.failed),
        "has_failed": view.failed > 0,
        "started": text.moment(view.started_ms),
        "took": took_text(view),
    }


def kind_of(state: str) -> str:
    """Return the state of a run as part of a CSS class."""
    return state if state in RUN_STATES else "other"


def took_text(view: RunView) -> str:
    """Return how long a run took; "" until it has ended."""
    if view.started_ms is None or view.finished_ms is None:
        return ""
    return text.seconds(max(0, view.finished_ms - view.started_ms) / 1000)


def run_progress(view: RunView) -> dict[str, Any]:
    """Return what the template `progress.html` shows of a run."""
    said = ngettext("%(done)s of %(total)s step", "%(done)s of %(total)s steps", view.total)
    numbers = {"done": text.number(view.done), "total": text.number(view.total)}
    return share_bar(view.done / view.total if view.total else None, said % numbers)


# The rows of a table of steps.


class ShownSteps(NamedTuple):
    """Some steps of a run, and by number where they lead to, why they are open, and when they ran."""

    view: RunView
    steps: Sequence[StepLine]
    links: Mapping[int, NodeLink]
    reasons: Mapping[int, OpenStep]
    times: Mapping[int, StepTimes]
    #: The steps that each waits for.
    before: Mapping[int, Sequence[int]]


def shown_steps(
    page: Page, view: RunView, steps: Sequence[StepLine], before: Mapping[int, Sequence[int]] | None = None
) -> ShownSteps:
    """Return what the pages show of steps of a run."""
    dead = workflow_runs.dead_letters_of(steps)
    reasons = explain_steps(view, steps, before=before, dead=dead)
    links = _links(page, steps, dead, reasons)
    return ShownSteps(view, steps, links, reasons, times_of(steps), before or {})


def _links(
    page: Page, steps: Sequence[StepLine], dead: Mapping[int, str], reasons: Mapping[int, OpenStep]
) -> Mapping[int, NodeLink]:
    """Return where steps lead to: to the message or dead letter, else to the search for the message."""
    find = page.url("find")
    found: dict[int, NodeLink] = {}
    for step in steps:
        reason = reasons.get(step.number)
        if step.number in dead:
            found[step.number] = NodeLink(page.url("message", step.queue, "dead", dead[step.number]), _("Dead letter"))
        elif reason is not None and reason.message is not None:
            found[step.number] = NodeLink(message_url(page, reason.queue, reason.message), _("Message"))
        elif step.message_id:
            found[step.number] = NodeLink(f"{find}?{urlencode({'id': step.message_id})}", _("Find its message"))
    return found


def step_rows(page: Page, shown: ShownSteps) -> list[dict[str, Any]]:
    """Return what the template `step_table.html` shows of steps that are no joins."""
    bars = _bars(page, shown.steps)
    return [
        _step_row(page, shown, step) | {"progress": bars.get(step.number)} for step in shown.steps if not step.is_join
    ]


def _bars(page: Page, steps: Sequence[StepLine]) -> Mapping[int, dict[str, Any] | None]:
    """Return the progress of the steps that run, as far as they report it."""
    started = [step for step in steps if step.state == "started" and step.message_id]
    found = progress_of([(step.queue, step.message_id) for step in started])
    sees = page.can(SEE_DATA)
    return {step.number: bar(one, can_see_data=sees) for step, one in zip(started, found, strict=True)}


def _step_row(page: Page, shown: ShownSteps, step: StepLine) -> dict[str, Any]:
    link, reason = shown.links.get(step.number), shown.reasons.get(step.number)
    parts = parts_of(step, shown.times.get(step.number))
    return {
        "number": text.number(step.number),
        "task": text.visible(step.task, limit=120) if step.task else "",
        "argument": text.visible(step.argument, limit=MAX_ARGUMENT) if step.argument and page.can(SEE_DATA) else "",
        "queue": text.visible(step.queue, limit=80) if step.queue else "",
        "queue_url": page.queue_url(step.queue) if step.queue in get_config().queues else "",
        "state": step_word(step.state),
        "kind": step_kind(step.state),
        "why": reason.why if reason else "",
        "before": text.visible(ranges(shown.before.get(step.number, ())).replace(",", ", "), limit=60),
        "started": text.moment(step.began_ms),
        "waited": text.seconds(parts.waited),
        "ran": text.seconds(parts.ran),
        "took": text.seconds(step.took),
        "url": link.url if link else "",
        "what": link.what if link else "",
        "actions": _actions(page, shown.view, step, reason),
    }


def _actions(page: Page, view: RunView, step: StepLine, reason: OpenStep | None) -> list[dict[str, str]]:
    """Return the buttons of a step: label, address, and what the button does to whom, for screen readers."""
    at, found = str(step.number), dict[str, tuple[str, str, str]]()
    words = {"number": text.number(step.number)}
    if reason is not None and reason.runs_on:
        stacks = page.url("stacks", text.to_url(reason.runs_on.encode(errors="replace")))
        url = f"{stacks}#{stack_anchor(step.message_id)}"
        found["stack"] = (_("Stack"), url, _("Stack of step %(number)s") % words)
    if page.can(OPERATE) and step.state == "failed":
        url = page.url("workflow_retry_step", view.id, at)
        found["retry"] = (_("Retry…"), url, _("Retry step %(number)s") % words)
        url = page.url("workflow_skip", view.id, at)
        found["skip"] = (_("Skip…"), url, _("Skip step %(number)s") % words)
    if page.can(OPERATE) and step.state == "started" and step.queue in get_config().queues:
        url = page.url("workflow_cancel_step", view.id, at)
        found["cancel"] = (_("Cancel…"), url, _("Cancel step %(number)s") % words)
    return [{"label": label, "url": url, "what": what} for label, url, what in found.values()]


# The page of a run of a workflow, and the lists of its steps.

#: Steps per page of a list, and of each state on the page of a run with many steps.
STEPS_PER_PAGE, EXAMPLES = 100, 10
#: The most steps that are renewed while the page is open.
LIVE_STEPS = 40
#: The name of a run's object in the admin's log, in front of its id. No queue has a space in its name.
LOGGED = "run "


def title_of(view: RunView) -> str:
    """Return the title of a run's pages."""
    return _("Run of %(name)s") % {"name": escape(view.name)[:100] or view.id}


def logged_run(name: str) -> str | None:
    """Return the id of the run that an entry of the admin's log is about; None if it is about something else."""
    run = name.removeprefix(LOGGED)
    return run if name.startswith(LOGGED) and is_run_id(run) else None


def gone(page: Page, run: str) -> HttpResponse:
    """Return to the list of runs, and say that there is no such run."""
    said = _("There is no run “%(run)s”: it ended more than a week ago.") % {"run": escape(run)[:100]}
    return page.leave(page.url("workflows"), said)


@needs(VIEW)
def show(page: Page, run: str) -> HttpResponse:
    """Show a run: a graph of up to 200 steps, or else the first steps of each state."""
    view = workflow_runs.run(run)
    if view is None:
        return gone(page, run)
    context = _run_context(page, view)
    steps = workflow_runs.graph_steps(view)
    context |= _drawn(page, view, steps) if steps else _folded(page, view)
    return page.render(
        "workflow_run",
        title_of(view),
        live=page.live(_live_parts(steps), context).context(),
        live_url=page.url("workflow_run_stats", view.id),
        **context,
    )


@needs(VIEW)
def run_stats(page: Page, run: str) -> HttpResponse:
    """Return the live parts of the page of a run."""
    if workflow_runs.run(run) is None:
        return JsonResponse({"error": _("This run does not exist any more.")}, status=404)
    return page.shared(f"run {run}", lambda: _live_run(page, run)).response(page.request)


def _live_run(page: Page, run: str) -> LiveParts:
    view = workflow_runs.run(run)
    if view is None:
        raise Http404
    context = _run_context(page, view)
    steps = workflow_runs.graph_steps(view) if view.total <= LIVE_STEPS else None
    names = _live_parts(steps)
    return page.live(names, {**context, **_drawn(page, view, steps)} if steps and len(names) > 1 else context)


def _live_parts(steps: Sequence[StepLine] | None) -> tuple[str, ...]:
    """Return the parts of the page that are renewed. Those of many steps would be hundreds of kilobytes each time."""
    is_small = steps and sum(not step.is_join for step in steps) <= LIVE_STEPS
    return ("run_state", "run_graph", "run_time_line", "run_steps") if is_small else ("run_state",)


@needs(VIEW)
def steps(page: Page, run: str) -> HttpResponse:
    """Show a page of the steps of a run, all or those in one state."""
    view, asked = workflow_runs.run(run), page.request.GET
    if view is None:
        return gone(page, run)
    state = asked.get("state", "") if asked.get("state") in STEP_STATES.values() else ""
    found = workflow_runs.list_steps(view, state=state, after=asked.get("after", ""), limit=STEPS_PER_PAGE)
    terms = {"state": state} if state else {}
    url = page.url("workflow_run", view.id)
    return page.render(
        "workflow_steps",
        title_of(view),
        tabs=sections(page, "workflows"),
        run_url=url,
        state=step_word(state) if state else "",
        rows=step_rows(page, shown_steps(page, view, found.rows)),
        go_on="?" + urlencode({**terms, "after": found.after}) if found.after else "",
        back="?" + urlencode(terms),
        looked=text.number(found.scanned),
    )


def _run_context(page: Page, view: RunView) -> dict[str, Any]:
    can_retry = view.state in ENDED_STATES - {"succeeded"} or (view.state == "running" and view.failed > 0)
    return {
        "tabs": sections(page, "workflows"),
        "summary": _run_summary(view.state),
        "facts": [(label, value) for label, value in _facts(page, view) if value],
        "progress": run_progress(view),
        "state": state_word(view.state),
        "kind": kind_of(view.state),
        "cancel_url": page.url("workflow_cancel", view.id) if view.state == "running" else "",
        "retry_url": page.url("workflow_retry", view.id) if can_retry else "",
        "history_url": page.url("history", quote(LOGGED + view.id)),
        "steps_url": page.url("workflow_steps", view.id),
    }


def _run_summary(state: str) -> str:
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
        (_("Started"), text.moment(view.started_ms, exact=True)),
        (_("Ended"), text.moment(view.finished_ms, exact=True)),
        (_("Took"), took_text(view)),
        (_("Expires"), "" if view.state in ENDED_STATES else text.moment(view.expires_ms, exact=True)),
        (_("Unique key"), (text.visible(view.unique, limit=400) if sees else HIDDEN) if view.unique else ""),
        (_("Steps"), _counts(view)),
        (_("Latest failure"), _failure(failed, can_see_data=sees) if failed else ""),
    ]


def _counts(view: RunView) -> str:
    counts = {state: getattr(view, state) for state in ("done", "started", "failed", "skipped", "waiting")}
    return ", ".join(f"{text.number(count)} {step_word(state)}" for state, count in counts.items() if count)


def _failure(failed: tuple[int, str], *, can_see_data: bool) -> SafeString:
    number, reason = failed
    said = shown_error(reason, can_see_data=can_see_data, limit=400)
    return format_html("{}: {}", _("Step %(number)s") % {"number": text.number(number)}, said)


def _drawn(page: Page, view: RunView, steps: Sequence[StepLine]) -> dict[str, Any]:
    shown = shown_steps(page, view, steps, workflow_runs.names_before(steps))
    return {
        "graph": graph(steps, shown.links),
        "time_line": time_line(steps, shown.times, view, now_ms=text.now_ms()),
        "rows": step_rows(page, shown),
        "with_before": True,
        "caption": _("Steps"),
    }


def _folded(page: Page, view: RunView) -> dict[str, Any]:
    found, url = workflow_runs.count_steps(view, examples=EXAMPLES), page.url("workflow_steps", view.id)
    shown = [step for group in found.first.values() for step in group]
    rows = dict(zip([step.number for step in shown], step_rows(page, shown_steps(page, view, shown)), strict=True))
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


# Cancel and retry runs of workflows, and skip their failed steps, after confirmation.

#: Seconds that an action may wait for Redis in all, and after which a retry begins no further batch of steps.
SECONDS, RETRYING = 0.7, 0.4


def _ask(page: Page, view: RunView, title: str, sentence: str, button: str, *, dangerous: bool = False) -> HttpResponse:
    return confirm(
        page,
        "",
        title,
        sentence,
        button,
        tab="workflows",
        back_url=page.url("workflow_run", view.id),
        listed=[text.visible(f"{view.name} {view.id}", limit=200)],
        dangerous=dangerous,
    )


def _back(page: Page, run: str, level: int, said: str, logged: str = "") -> HttpResponse:
    """Return to the run, say what was done, and log it."""
    if logged:
        page.log(LOGGED + run, logged)
    return page.leave(page.url("workflow_run", run), said, level)


@needs(VIEW, OPERATE)
def cancel(page: Page, run: str) -> HttpResponse:
    """End a run."""
    view = workflow_runs.run(run)
    if view is None:
        return gone(page, run)
    if not page.is_confirmed:
        sentence = _(
            "No further step starts. Steps whose messages are being handled finish; messages that are still in a queue "
            "are dropped without running. The run can be retried for a week."
        )
        return _ask(page, view, _("Cancel this run?"), sentence, _("Yes, cancel it"), dangerous=True)
    with within(SECONDS):
        is_done = workflow_run.cancel(run)
    if is_done:
        return _back(page, run, messages.SUCCESS, _("The run was cancelled."), "Cancelled the run")
    said = _("The run had ended: it is %(state)s.") % {"state": state_word(view.state)}
    return _back(page, run, messages.WARNING, said)


@needs(VIEW, OPERATE)
def retry(page: Page, run: str) -> HttpResponse:
    """Let a run continue, with its failed steps."""
    view = workflow_runs.run(run)
    if view is None:
        return gone(page, run)
    if not page.is_confirmed:
        count = ngettext("%(count)s step has failed.", "%(count)s steps have failed.", view.failed)
        sentence = _(
            "The run continues. Dead letters of its failed steps are redriven, and failed steps without a dead letter "
            "get a new message. When it ends, its callbacks are published again."
        )
        question = f"{count % {'count': text.number(view.failed)}} {sentence}"
        return _ask(page, view, _("Retry this run?"), question, _("Yes, retry it"))
    try:
        with within(SECONDS):
            done = workflow_run.retry(run, seconds=RETRYING)
    except StoreError as error:
        doubt = "Retried the run (interrupted; some failed steps may have been started)"
        return _back(page, run, messages.ERROR, interrupted(error), doubt)
    if done.refused:
        refused = ngettext("%(count)s step cannot run", "%(count)s steps cannot run", done.refused)
        why = _("the queue is not in the settings, or another program has changed the step.")
        page.say(messages.WARNING, f"{refused % {'count': text.number(done.refused)}}: {why}")
    if done.is_left:
        page.say(messages.WARNING, _("There was no time for all failed steps: retry again for the others."))
    said = ngettext(
        "The run continues. %(count)s failed step runs again.",
        "The run continues. %(count)s failed steps run again.",
        done.steps,
    )
    logged = f"Retried the run: {done.steps} failed steps run again"
    return _back(page, run, messages.SUCCESS, said % {"count": text.number(done.steps)}, logged)


def _step(page: Page, run: str, step: str, state: str, refused: str) -> tuple[RunView, StepLine] | HttpResponse:
    """Return a run and its step with a number, if that is in a state, else the way back to the run."""
    view, number = workflow_runs.run(run), whole(step, 10**9)
    if view is None:
        return gone(page, run)
    found = None if number is None else workflow_runs.step(run, number)
    if found is None or found.state != state:
        return _back(page, run, messages.WARNING, refused)
    return view, found


@needs(VIEW, OPERATE)
def retry_step(page: Page, run: str, step: str) -> HttpResponse:
    """Let one failed step of a run run again; the run continues with it."""
    refused = _("This step has not failed: it cannot be retried.")
    found = _step(page, run, step, "failed", refused)
    if isinstance(found, HttpResponse):
        return found
    view, chosen = found
    words = {"number": text.number(chosen.number)}
    if not page.is_confirmed:
        sentence = _(
            "Its dead letter is redriven; without one it gets a new message. The run continues, and its other failed "
            "steps stay failed. When the run ends, its callbacks are published again."
        )
        title = _("Retry step %(number)s?") % words
        return _ask(page, view, title, sentence, _("Yes, retry it"))
    try:
        with within(SECONDS):
            done = workflow_run.retry(run, step=chosen.number)
    except StoreError as error:
        doubt = f"Retried step {chosen.number} (interrupted; it may have been started)"
        return _back(page, run, messages.ERROR, interrupted(error), doubt)
    if done.refused:
        said = _("The step cannot run: its queue is not in the settings, or another program has changed it.")
        return _back(page, run, messages.ERROR, said)
    if not done.steps:
        return _back(page, run, messages.WARNING, refused)
    return _back(page, run, messages.SUCCESS, _("Step %(number)s runs again.") % words, f"Retried step {chosen.number}")


@needs(VIEW, OPERATE)
def cancel_step(page: Page, run: str, step: str) -> HttpResponse:
    """Cancel the message of a started step, wherever it is, after confirmation."""
    refused = _("This step has no message that could be cancelled.")
    found = _step(page, run, step, "started", refused)
    if isinstance(found, HttpResponse):
        return found
    view, chosen = found
    if chosen.queue not in get_config().queues or not actions.can_cancel_running(chosen.queue):
        return _back(page, run, messages.WARNING, refused)
    words = {"number": text.number(chosen.number)}
    if not page.is_confirmed:
        sentence = _(
            "Its message is cancelled. If its handler runs, it is interrupted where it is: its transaction is rolled "
            "back, and what it has done outside of it stays. The step then has failed, and can be retried."
        )
        title = _("Cancel step %(number)s?") % words
        return _ask(page, view, title, sentence, _("Yes, cancel it"), dangerous=True)
    with within(SECONDS):
        outcome = actions.cancel(chosen.queue, [chosen.message_id], running=True)
    if outcome.error is not None:
        return _back(page, run, messages.ERROR, sentence_of(outcome.error))
    said = (
        _("Its consumer was asked to cancel the message. It is told within a second.")
        if outcome.asked
        else _("The message of step %(number)s was cancelled.") % words
    )
    return _back(page, run, messages.SUCCESS, said, f"Cancelled step {chosen.number}")


@needs(VIEW, OPERATE)
def skip(page: Page, run: str, step: str) -> HttpResponse:
    """Let a run continue as if a failed step had succeeded."""
    found = _step(page, run, step, "failed", _("This step has not failed: it cannot be skipped."))
    if isinstance(found, HttpResponse):
        return found
    view, number = found[0], found[1].number
    if not page.is_confirmed:
        sentence = _(
            "The run continues as if step %(number)s had succeeded. It has no value: a step that takes that fails. "
            "A dead letter of the step stays."
        )
        question = sentence % {"number": text.number(number)}
        return _ask(page, view, _("Skip this step?"), question, _("Yes, skip it"), dangerous=True)
    with within(SECONDS):
        is_done = workflow_run.skip(run, number)
    if not is_done:
        return _back(page, run, messages.WARNING, _("This step has not failed: it cannot be skipped."))
    said = _("Step %(number)s was skipped.") % {"number": text.number(number)}
    return _back(page, run, messages.SUCCESS, said, f"Skipped step {number}")
