"""The list of all runs of workflows."""

from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.admin.ui import text
from mq_django.admin.ui.filter_form import MAX_TEXT
from mq_django.admin.ui.live import LiveParts, LiveRows
from mq_django.admin.ui.page import VIEW, Page, needs
from mq_django.admin.ui.progress_bar import share_bar
from mq_django.admin.ui.tabs import sections
from mq_django.core.visible import escape
from mq_django.inspector import workflow_runs
from mq_django.inspector.workflow_runs import RUN_STATES, RunView

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
    live = _live(page, context)
    return page.render("workflows", _("Workflows"), live=live.context(), live_url=_live_url(page), **context)


@needs(VIEW)
def stats(page: Page) -> HttpResponse:
    """Return the live parts of the page."""
    return page.shared("workflows", lambda: _live(page, _context(page))).response(page.request)


def _live(page: Page, context: dict[str, Any]) -> LiveParts:
    return page.live((), context, {"runs": LiveRows.of("run_row", context["rows"], "id")})


def _live_url(page: Page) -> str:
    query = page.request.GET.urlencode()
    return page.url("workflows_stats") + (f"?{query}" if query else "")


def _context(page: Page) -> dict[str, Any]:
    asked = page.request.GET
    state, name = asked.get("state", ""), asked.get("name", "").strip()[:MAX_TEXT]
    state = state if state in RUN_STATES else ""
    terms = {key: value for key, value in (("state", state), ("name", name)) if value}
    found = workflow_runs.look_at_runs(state=state, name=name, after=asked.get("after", ""), limit=PER_PAGE)
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
        "progress": progress_of(view),
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


def progress_of(view: RunView) -> dict[str, Any]:
    """Return what the template `progress.html` shows of a run."""
    said = ngettext("%(done)s of %(total)s step", "%(done)s of %(total)s steps", view.total)
    numbers = {"done": text.number(view.done), "total": text.number(view.total)}
    return share_bar(view.done / view.total if view.total else None, said % numbers)
