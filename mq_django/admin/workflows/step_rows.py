"""The rows of a table of steps."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from django.utils.translation import gettext as _

from mq_django.admin.ui import text
from mq_django.admin.ui.page import OPERATE, SEE_DATA, Page
from mq_django.admin.ui.progress_bar import bar
from mq_django.admin.workflows.run_graph import NodeLink, step_kind, step_word
from mq_django.conf import get_config
from mq_django.core.flow_graph import ranges
from mq_django.inspector import run_steps
from mq_django.inspector.progress_views import progress_of
from mq_django.inspector.run_steps import StepLine
from mq_django.inspector.workflow_runs import RunView


def links_of(page: Page, steps: Sequence[StepLine]) -> Mapping[int, NodeLink]:
    """Return where steps lead to: a failed one to its dead letter, another one to the search for its message."""
    dead, find = run_steps.dead_letters_of(steps), page.url("find")
    found: dict[int, NodeLink] = {}
    for step in steps:
        if step.number in dead:
            found[step.number] = NodeLink(page.url("dead_letter", step.queue, dead[step.number]), _("Dead letter"))
        elif step.message_id:
            found[step.number] = NodeLink(f"{find}?{urlencode({'id': step.message_id})}", _("Find its message"))
    return found


def step_rows(
    page: Page,
    view: RunView,
    steps: Sequence[StepLine],
    links: Mapping[int, NodeLink],
    before: Mapping[int, Sequence[int]] | None = None,
) -> list[dict[str, Any]]:
    """Return what the template `step_table.html` shows of steps; `before` has the steps that each waits for."""
    bars = _bars(page, steps)
    return [
        _row(page, view, step, links.get(step.number), (before or {}).get(step.number, ()))
        | {"progress": bars.get(step.number)}
        for step in steps
    ]


def _bars(page: Page, steps: Sequence[StepLine]) -> Mapping[int, dict[str, Any] | None]:
    """Return the progress of the steps that run, as far as they report it."""
    started = [step for step in steps if step.state == "started" and step.message_id]
    found = progress_of([(step.queue, step.message_id) for step in started])
    sees = page.can(SEE_DATA)
    return {step.number: bar(one, can_see_data=sees) for step, one in zip(started, found, strict=True)}


def _row(page: Page, view: RunView, step: StepLine, link: NodeLink | None, before: Sequence[int]) -> dict[str, Any]:
    can_skip = step.state == "failed" and page.can(OPERATE)
    return {
        "number": text.number(step.number),
        "task": text.visible(step.task, limit=120) if step.task else "",
        "queue": text.visible(step.queue, limit=80) if step.queue else "",
        "queue_url": page.queue_url(step.queue) if step.queue in get_config().queues else "",
        "state": step_word(step.state),
        "kind": step_kind(step.state),
        "before": text.visible(ranges(before).replace(",", ", "), limit=60),
        "started": text.moment(step.began_ms),
        "took": text.seconds(step.took),
        "url": link.url if link else "",
        "what": link.what if link else "",
        "skip_url": page.url("workflow_skip", view.id, str(step.number)) if can_skip else "",
    }
