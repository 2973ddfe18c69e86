"""Cancel and retry runs of workflows, and skip their failed steps, after confirmation."""

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.run_pages import LOGGED, gone, state_word
from mq_django.admin.ui import text
from mq_django.admin.ui.confirm import CONFIRMED, confirm
from mq_django.admin.ui.page import OPERATE, VIEW, Page, needs, sentence_of
from mq_django.core.numbers import whole
from mq_django.errors import StoreError
from mq_django.inspector import workflow_runs
from mq_django.inspector.workflow_runs import RunView
from mq_django.producers import workflow_run
from mq_django.transport.sessions import within

#: Total seconds for requests to Redis of an action, and those after which a retry starts no further batch of steps: the
#: page takes at most 2.
SECONDS, RETRYING = 0.7, 0.4


def _is_confirmed(page: Page) -> bool:
    return page.request.method == "POST" and CONFIRMED in page.request.POST


def _ask(page: Page, view: RunView, title: str, sentence: str, button: str, *, dangerous: bool = False) -> HttpResponse:
    return confirm(
        page,
        "",
        title,
        tab="workflows",
        sentence=sentence,
        button=button,
        act_url=page.request.path,
        back_url=page.url("workflow_run", view.id),
        listed=[text.visible(f"{view.name} {view.id}", limit=200)],
        dangerous=dangerous,
    )


def _back(page: Page, run: str, level: int, said: str, logged: str = "") -> HttpResponse:
    """Return to the run, say what was done, and log it."""
    page.say(level, said)
    if logged:
        page.log(LOGGED + run, logged)
    return HttpResponseRedirect(page.url("workflow_run", run))


@needs(VIEW, OPERATE)
def cancel(page: Page, run: str) -> HttpResponse:
    """End a run."""
    view = workflow_runs.run(run)
    if view is None:
        return gone(page, run)
    if not _is_confirmed(page):
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
    if not _is_confirmed(page):
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
        more = _("Changes made so far stay. You can safely try again.")
        doubt = "Retried the run (interrupted; some failed steps may have been started)"
        return _back(page, run, messages.ERROR, f"{sentence_of(error)} {more}", doubt)
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


@needs(VIEW, OPERATE)
def skip(page: Page, run: str, step: str) -> HttpResponse:
    """Let a run continue as if a failed step had succeeded."""
    view, number = workflow_runs.run(run), whole(step, 10**9)
    if view is None:
        return gone(page, run)
    found = None if number is None else workflow_runs.step(run, number)
    if number is None or found is None or found.state != "failed":
        return _back(page, run, messages.WARNING, _("This step has not failed: it cannot be skipped."))
    if not _is_confirmed(page):
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
