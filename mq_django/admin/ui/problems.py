"""The problems of queues on pages: which are shown, the worst first, each with the page on which to act."""

from collections.abc import Sequence
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.ui import text
from mq_django.admin.ui.page import Page
from mq_django.inspector.problem_list import QueueProblem

#: The most problems that the page of a queue or topic lists, and that of all queues.
MAX_PROBLEMS, TOP = 50, 3


def listed(page: Page, found: Sequence[QueueProblem], *, own: str = "", most: int = MAX_PROBLEMS) -> dict[str, Any]:
    """Return the context of a list of problems without muted ones.

    Those of `own`, the queue or topic of the page, have no link to it.
    """
    unmuted = [problem for problem in found if problem.mute is None]
    return {
        "problems": [shown(page, problem, own=own) for problem in unmuted[:most]],
        "more_problems": text.number(more) if (more := len(unmuted) - most) > 0 else "",
        "muted_problems": text.number(muted) if (muted := len(found) - len(unmuted)) else "",
        "problems_url": page.url("problems"),
        "summary": summary(len(unmuted)),
    }


def summary(count: int) -> str:
    """Return how many problems there are, as a sentence."""
    if not count:
        return _("No problems found.")
    return ngettext("%(count)s problem found.", "%(count)s problems found.", count) % {"count": text.number(count)}


def shown(page: Page, problem: QueueProblem, *, own: str = "") -> dict[str, Any]:
    """Return a problem for a list: the queue with a link, and the sentence that follows its name."""
    elsewhere = {"outbox": "outbox", "stuck": "workflows"}.get(problem.kind)
    url = page.url(elsewhere) if elsewhere else "" if problem.queue == own else page.queue_url(problem.queue)
    return {
        "queue": problem.queue,
        "url": url,
        "sentence": problem.words,
        "what": problem.kind,
        "severity": problem.severity,
    }
