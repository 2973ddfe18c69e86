"""The page of all queues."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django import inspector
from mq_django.admin import queue_table, topic_pages
from mq_django.admin.job_pages import running_jobs
from mq_django.admin.queue_page import goes_on, paused_for, reason_input, stays
from mq_django.admin.queue_table import QueueFilter
from mq_django.admin.ui import problems, text
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
from mq_django.errors import NotSupported, StoreError, UnknownQueue
from mq_django.inspector import actions
from mq_django.inspector.actions import PausedQueues, Switched
from mq_django.inspector.problem_list import problems_among
from mq_django.inspector.problem_sentences import pause_details
from mq_django.inspector.queues import star, starred

PARTS = ("jobs", "problems", "listed")

#: Running jobs that are listed: the table begins on the first screen.
MAX_JOBS = 3
#: In the address of polls: the user has stars.
STARS = "stars"


@needs(VIEW)
def overview(page: Page) -> HttpResponse:
    """Show all queues, problems first."""
    chosen, stars = QueueFilter.of_page(page), _stars(page)
    context = _context(page, chosen, stars)
    polled = chosen.query(p=str(chosen.number) if chosen.number > 1 else "", **{STARS: "1" if stars else ""})
    live = _live(page, context).context()
    return page.render("overview", _("Queues"), live_url=page.url("stats") + polled, live=live, **context)


@needs(VIEW)
def stats(page: Page) -> HttpResponse:
    """Return the live parts of the page."""
    # Users without stars, who are most, share an answer.
    of = STARS in page.request.GET

    def compute() -> LiveParts:
        return _live(page, _context(page, QueueFilter.of_page(page), _stars(page) if of else ()))

    return page.shared(f"overview of {_user(page)}" if of else "overview", compute).response(page.request)


def _live(page: Page, context: dict[str, Any]) -> LiveParts:
    rows = {"rows": LiveRows.of("row", context["rows"], "url")}
    if context["shows_topics"]:
        rows["topics"] = LiveRows.of("topic_row", context["topics"], "url")
    return page.live(PARTS, context, rows)


def _context(page: Page, chosen: QueueFilter, stars: Collection[str]) -> dict[str, Any]:
    found = queue_table.read(chosen, stars)
    groups = [view.name for view in found.views if topic_pages.is_group(view.name) and chosen.matches(view)]
    rows, of_topics = topic_pages.overview(
        page,
        found.views,
        groups,
        lambda name: not chosen.of and chosen.names(name),
        reads_all=not found.is_part,
    )
    read = [view.name for view in found.views]
    known = problems_among(found.views, read if found.is_part else ()) if read or not found.is_part else []
    jobs = [job for view in found.views for part in view.each_part for job in running_jobs(page, part.name, part.jobs)]
    listed = problems.listed(page, [*of_topics, *known], most=problems.TOP)
    if found.is_part:
        # The others were not read.
        listed["summary"] = _("Among the queues on this page: %(summary)s") % {"summary": listed["summary"]}
    return {
        **listed,
        **queue_table.table(page, chosen, found, known, stars),
        "tabs": sections(page, "queues"),
        "heads": queue_table.heads(chosen),
        "all": text.number(found.total),
        "filter": chosen.fields(),
        "is_filtered": chosen.is_narrower,
        "grouped_url": replace(chosen, by_prefix=not chosen.by_prefix, prefix="").query() or "?",
        "star_url": page.url("star") + chosen.query(p=str(chosen.number) if chosen.number > 1 else ""),
        # Also without rows: a filter may find some later.
        "shows_queues": found.total > 0,
        "shows_topics": bool(get_config().topics),
        "topics": rows,
        "jobs": jobs[:MAX_JOBS],
        "more_jobs": text.number(len(jobs) - MAX_JOBS) if len(jobs) > MAX_JOBS else "",
        "pause_all_url": page.url("pause_all"),
        "resume_all_url": page.url("resume_all"),
    }


# Stars: the queues that a user wants to see first.


def _user(page: Page) -> str:
    return str(page.request.user.pk)


def _stars(page: Page) -> Sequence[str]:
    # Without them the page is of use, too.
    with suppress(StoreError):
        return starred(_user(page))
    return ()


@needs(VIEW)
def set_star(page: Page) -> HttpResponse:
    """Star a queue for the user, or take the star away."""
    given, back = page.request.POST, page.url("changelist") + page.query
    name = given.get("star") or given.get("unstar", "")
    try:
        star(_user(page), name, is_starred="star" in given)
    except UnknownQueue:
        return page.leave(back, _("There is no queue “%(name)s” in the settings.") % {"name": escape(name)[:160]})
    except NotSupported:
        return page.leave(back, _("You have starred 50 queues: take one star away first."))
    return HttpResponseRedirect(back)


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
