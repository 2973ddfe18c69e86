"""The page of all queues."""

from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django import inspector
from mq_django.admin import topic_pages
from mq_django.admin.job_pages import running_jobs
from mq_django.admin.queue_page import goes_on, paused_for, reason_input, stays
from mq_django.admin.ui import charts, problems, text
from mq_django.admin.ui.filter_form import MAX_TEXT
from mq_django.admin.ui.live import LiveParts, LiveRows
from mq_django.admin.ui.page import (
    MAX_LISTED,
    OPERATE,
    VIEW,
    Page,
    confirm,
    needs,
    sections,
    sentence_of,
)
from mq_django.conf import get_config
from mq_django.core.texts import escape
from mq_django.inspector import actions
from mq_django.inspector.actions import PausedQueues, Switched
from mq_django.inspector.problem_list import problems_among
from mq_django.inspector.problem_sentences import pause_details
from mq_django.inspector.queue_view import QueueView

PARTS = ("jobs", "problems", "listed")


@needs(VIEW)
def overview(page: Page) -> HttpResponse:
    """Show all queues, problems first."""
    context = _context(page)
    live_url = page.url("stats") + _filter(page).query()
    return page.render("overview", _("Queues"), live_url=live_url, live=_live(page, context).context(), **context)


@needs(VIEW)
def stats(page: Page) -> HttpResponse:
    """Return the live parts of the page."""
    return page.shared("overview", lambda: _live(page, _context(page))).response(page.request)


def _live(page: Page, context: dict[str, Any]) -> LiveParts:
    rows = {"rows": LiveRows.of("row", context["rows"], "url")}
    if context["shows_topics"]:
        rows["topics"] = LiveRows.of("topic_row", context["topics"], "url")
    return page.live(PARTS, context, rows)


class QueueFilter(NamedTuple):
    """Which queues the page lists."""

    #: Text that their names contain, in any case.
    text: str = ""
    #: Only those with messages, recent activity or problems.
    hides_idle: bool = False
    #: A consumer or supervisor: only its queues.
    of: str = ""

    def matches(self, view: QueueView) -> bool:
        """Return whether a queue is listed."""
        if self.text.casefold() not in view.name.casefold():
            return False
        if self.of and not any(self.of in (found.id, found.supervisor) for found in view.consumers):
            return False
        return not (self.hides_idle and view.is_idle)

    def matches_topic(self, name: str) -> bool:
        """Return whether a topic is listed also if none of its groups is."""
        return not self.of and self.text.casefold() in name.casefold()

    def fields(self) -> dict[str, str]:
        """Return the parameters of the page that are set."""
        found = {"q": self.text, "hide": "idle" if self.hides_idle else "", "of": self.of}
        return {field: value for field, value in found.items() if value}

    def query(self) -> str:
        """Return the query of a URL, "" without a filter."""
        return f"?{urlencode(self.fields())}" if any(self) else ""


def _filter(page: Page) -> QueueFilter:
    given = page.request.GET
    text, of = given.get("q", "").strip()[:MAX_TEXT], given.get("of", "")[:MAX_TEXT]
    return QueueFilter(text, given.get("hide") == "idle", of)


def _context(page: Page) -> dict[str, Any]:
    views = inspector.overview()
    chosen = _filter(page)
    listed = {view.name for view in views if chosen.matches(view)}
    rows, of_topics = topic_pages.overview(page, views, listed, chosen.matches_topic)
    found = [*of_topics, *problems_among(views, ())]
    troubled = {problem.queue for problem in found if problem.mute is None}
    total = sum(not topic_pages.is_group(view) for view in views)
    return {
        **problems.listed(page, found, most=problems.TOP),
        "tabs": sections(page, "queues"),
        "rows": [
            _row(page, view, troubled=view.name in troubled)
            for view in views
            if view.name in listed and not topic_pages.is_group(view)
        ],
        "all": text.number(total),
        "filter": chosen.fields(),
        "is_filtered": any(chosen),
        # Also without rows: a filter may find some later.
        "shows_queues": total > 0,
        "shows_topics": bool(get_config().topics),
        "topics": rows,
        "jobs": [job for view in views for part in view.each_part for job in running_jobs(page, part.name, part.jobs)],
        "find_url": page.url("find"),
        "message_id": "",
        "pause_all_url": page.url("pause_all"),
        "resume_all_url": page.url("resume_all"),
    }


def _row(page: Page, view: QueueView, *, troubled: bool) -> dict[str, Any]:
    return {
        **charts.queue_cells(page, view, troubled=troubled),
        "parts": len(view.parts),
        "external": view.external,
        "published": text.rate(view.activity.per_minute("published")),
        "errors": text.percent(view.error_share),
        "has_errors": view.fails_often,
        "chart": charts.sparkline(view.activity.handled, label=_("Handled in the last %(minutes)s minutes: %(count)s")),
    }


# Pause all queues, and resume what one such action has paused, or single queues, after confirmation.

#: The form fields of the actions and of the queues to resume.
ACTION, QUEUE = "action", "queue"


@needs(VIEW, OPERATE)
def pause_all(page: Page) -> HttpResponse:
    """Pause all queues and groups of topics."""
    if not page.is_confirmed:
        return _ask_to_pause(page)
    given = page.request.POST
    reason, name = given.get("reason", ""), given.get("name", "").strip() or actions.offered_name()
    found = actions.pause_all(who=page.request.user.get_username(), reason=reason, name=name)
    count = len(found.changed)
    done = ngettext("%(count)s queue was paused.", "%(count)s queues were paused.", count)
    if found.unchanged:
        before = ngettext(
            "%(count)s queue was paused before.", "%(count)s queues were paused before.", len(found.unchanged)
        )
        page.say(messages.INFO, before % {"count": text.number(len(found.unchanged))})
    return _done(page, found, done, f"{paused_for(reason)} ({name[: actions.MAX_NAME]})")


@needs(VIEW, OPERATE)
def resume_all(page: Page) -> HttpResponse:
    """Resume the queues of actions that have paused several, and others that were selected."""
    if not page.is_confirmed:
        return _ask_to_resume(page)
    names, queues = page.request.POST.getlist(ACTION), page.request.POST.getlist(QUEUE)
    if not (names or queues):
        return page.leave(page.url("resume_all"), _("Select what is resumed first."))
    each = [actions.resume_these(queues), *(actions.resume_all(name=name) for name in names)]
    found = Switched(
        list(dict.fromkeys(name for one in each for name in one.changed)),
        [],
        {name: error for one in each for name, error in one.errors.items()},
    )
    count = len(found.changed)
    done = ngettext("%(count)s queue was resumed.", "%(count)s queues were resumed.", count)
    return _done(page, found, done, "Resumed the queue")


def _ask_to_pause(page: Page) -> HttpResponse:
    running = [view for view in inspector.overview() if not view.paused]
    if not running:
        return page.leave(page.url("changelist"), _("All queues are paused."), messages.INFO)
    title = ngettext("Pause %(count)s queue?", "Pause all %(count)s queues?", len(running))
    name_input = {"name": "name", "label": _("Name"), "value": actions.offered_name()}
    return confirm(
        page,
        "",
        title % {"count": text.number(len(running))},
        stays(running),
        _("Yes, pause all"),
        listed=[text.visible(view.name, limit=200) for view in running[:MAX_LISTED]],
        unlisted=max(0, len(running) - MAX_LISTED),
        inputs=[
            {
                **name_input,
                "maxlength": str(actions.MAX_NAME),
                "help": _("By this name exactly these queues are resumed."),
            },
            reason_input(),
        ],
    )


def _ask_to_resume(page: Page) -> HttpResponse:
    found = actions.pauses(inspector.overview())
    if not found:
        return page.leave(page.url("changelist"), _("No queue is paused."), messages.INFO)
    named = [one for one in found if one.pause.name]
    who = escape(page.request.user.get_username())[: actions.MAX_WHO]
    # The actions of colleagues may not be over.
    own = [one for one in named if one.pause.who == who] if len(named) > 1 else named
    return confirm(
        page,
        "",
        _("Resume paused queues?"),
        _("Only what is selected is resumed. Other queues stay paused."),
        _("Yes, resume them"),
        inputs=[_resumable(number, one, is_selected=one in own) for number, one in enumerate(found)],
    )


def _resumable(number: int, found: PausedQueues, *, is_selected: bool) -> dict[str, Any]:
    """Return the checkbox of an action that has paused several queues, or of a queue that was paused by itself."""
    name, count = found.pause.name, len(found.queues)
    more = [_("and %(count)s more") % {"count": text.number(count - MAX_LISTED)}] if count > MAX_LISTED else []
    listed = f"{', '.join([*map(escape, found.queues[:MAX_LISTED]), *more])}." if name else ""
    label = ngettext("%(name)s: %(count)s queue", "%(name)s: %(count)s queues", count) if name else "%(name)s"
    shown = {"name": escape(name or found.queues[0])[:200], "count": text.number(count)}
    return {
        "is_box": True,
        "is_selected": is_selected,
        "name": ACTION if name else QUEUE,
        "id": f"resumed_{number}",
        "value": name or found.queues[0],
        "label": label % shown,
        "help": " ".join(filter(None, [listed, goes_on(found.ready), pause_details(found.pause)])),
    }


def _done(page: Page, found: Switched, done: str, logged: str) -> HttpResponse:
    count = len(found.changed)
    page.say(messages.SUCCESS if count else messages.INFO, done % {"count": text.number(count)})
    for name in found.changed:
        page.log(name, logged)
    for name, error in found.errors.items():
        page.say(messages.ERROR, f"{name}: {sentence_of(error)}")
    return HttpResponseRedirect(page.url("changelist"))
