"""The problems of queues on pages: which are shown, the worst first, each with the page on which to act."""

from collections.abc import Sequence
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.ui import text
from mq_django.admin.ui.page import Page
from mq_django.inspector.problem_list import QueueProblem

#: The most problems that a page lists.
MAX_PROBLEMS = 50


def listed(page: Page, found: Sequence[QueueProblem], *, own: str = "") -> dict[str, Any]:
    """Return the context of a list of problems. Those of `own`, the queue or topic of the page, have no link to it."""
    return {
        "problems": [_shown(page, problem, own) for problem in found[:MAX_PROBLEMS]],
        "more_problems": text.number(more) if (more := len(found) - MAX_PROBLEMS) > 0 else "",
        "summary": summary(len(found)),
    }


def summary(count: int) -> str:
    """Return how many problems there are, as a sentence."""
    if not count:
        return _("No problems found.")
    return ngettext("%(count)s problem found.", "%(count)s problems found.", count) % {"count": text.number(count)}


def _shown(page: Page, problem: QueueProblem, own: str) -> dict[str, Any]:
    elsewhere = {"outbox": "outbox", "stuck": "workflows"}.get(problem.kind)
    url = page.url(elsewhere) if elsewhere else "" if problem.queue == own else page.queue_url(problem.queue)
    return {"queue": problem.queue, "url": url, "sentence": problem.words, "what": problem.kind}
