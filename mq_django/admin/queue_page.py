"""The page of one queue."""

from collections.abc import Sequence
from functools import wraps
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse, JsonResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django import inspector
from mq_django.admin import hold_pages, limit_pages, outbox_page, schedule_rows, topic_pages
from mq_django.admin.job_pages import running_jobs
from mq_django.admin.ui import charts, filter_form, text
from mq_django.admin.ui.page import (
    OPERATE,
    PURGE,
    VIEW,
    Page,
    View,
    because,
    confirm,
    listed_problems,
    needs,
    reason_input,
    state_labels,
    tabs,
)
from mq_django.admin.ui.text import settings_of
from mq_django.conf import get_config
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.inspector import actions
from mq_django.inspector.action_log import to_undo
from mq_django.inspector.consumers import ConsumerView
from mq_django.inspector.problem_list import problems_among
from mq_django.inspector.problem_sentences import pause_details
from mq_django.inspector.queue_view import RECENT, Activity, QueueView
from mq_django.inspector.queues import quick_stats

PARTS = (
    "tabs",
    "jobs",
    "problems",
    "holds",
    "tiles",
    "position",
    "partitions",
    "charts",
    "names",
    "limits",
    "keys",
    "schedules",
    "consumers",
)

#: Consumers that are listed, live ones first. Other programs may have written any number.
MAX_CONSUMERS = 500

#: Parts that only some queues have.
NOT_ALWAYS = ("position", "partitions", "limits", "keys", "schedules")


@needs(VIEW)
def queue(page: Page, name: str) -> HttpResponse:
    """Show a queue or a group of a topic: message counts, activity, limits, schedules and consumers."""
    live_url = page.url("queue_stats", name) + charts.query(charts.span_of(page), charts.name_of(page))
    return page.render("queue", name, live_url=live_url, settings=settings_of(name), **_context(page, name))


@needs(VIEW)
def stats(page: Page, name: str) -> HttpResponse:
    """Return the live parts of the page."""
    context = _context(page, name)
    return page.parts([part for part in PARTS if part not in NOT_ALWAYS or part in context], context)


@needs(VIEW)
def figures(page: Page, name: str) -> HttpResponse:
    """Show the charts of a queue as a table."""
    view, activity = _read(page, name)
    return page.render(
        "figures",
        _("Figures"),
        queue=name,
        tabs=tabs(page, name, "queue", view),
        figures=charts.figures(activity),
        said=charts.summary(activity),
        states=[state_labels()[state] for state in activity.depth],
        **charts.frame(page, ""),
    )


def _read(page: Page, name: str) -> tuple[QueueView, Activity]:
    span, of = charts.span_of(page), charts.name_of(page)
    if span not in charts.HOURS:
        # Problems and rates are for all messages, whatever their name.
        view = inspector.queue(name)
        return view, inspector.queue(name, of=of).activity if of else view.activity
    view = quick_stats(name, minutes=RECENT + 1)
    return view, view.activity if view.error else inspector.activity(name, hours=charts.HOURS[span], of=of)


def _context(page: Page, name: str) -> dict[str, Any]:
    view, activity = _read(page, name)
    context = {
        "queue": name,
        **listed_problems(page, problems_among([view], [name]), own=name),
        "tabs": tabs(page, name, "queue", view),
        "tiles": _tiles(page, view),
        **hold_pages.section(page, view),
        "jobs": [job for part in view.each_part for job in running_jobs(page, part.name, part.jobs)],
        "paused": view.paused,
        "switch_url": page.url("resume" if view.paused else "pause", name),
        # Some of its partitions are paused, others are not.
        "resume_url": page.url("resume", name) if view.paused_parts and not view.paused else "",
        "purge_url": page.url("act_on_all", name, "ready", "delete"),
        "publish_url": "" if GROUP_SEPARATOR in name else page.url("publish", name),
        "consumers": [_consumer(view, found) for found in view.consumers[:MAX_CONSUMERS]],
        "unlisted_consumers": text.beyond(len(view.consumers), MAX_CONSUMERS),
        "external": view.external,
        "housekeepers": [text.visible(found.host or found.id, limit=80) for found in view.housekeepers],
        **charts.frame(page, page.url("figures", name)),
        **charts.queue_charts(activity, str(charts.SPANS[charts.span_of(page)])),
        **charts.names(page, activity),
    }
    if view.parts:
        context["partitions"] = [charts.queue_cells(page, part, troubled=bool(part.problems())) for part in view.parts]
    if not view.error:
        section = topic_pages.section(page, name) if GROUP_SEPARATOR in name else {}
        context |= {**section, **limit_pages.section(page, name), **schedule_rows.section(page, name)}
    return context


def _tiles(page: Page, view: QueueView) -> list[dict[str, Any]]:
    def tile(state: str, label: str, note: str = "", *, bad: bool = False) -> dict[str, Any]:
        count, url = getattr(view, state), page.url("messages", view.name, state)
        return {"label": label, "count": text.number(count), "note": note, "url": url, "bad": bad and count > 0}

    oldest = "" if view.oldest_ms is None else _("oldest: %(time)s") % {"time": text.duration(view.oldest_ms)}
    due = ""
    if view.next_due_ms is not None:
        in_time = _("next: in %(time)s") % {"time": text.duration(view.next_due_ms)}
        due = in_time if view.next_due_ms else _("next: now")
    rates = {what: text.rate(view.activity.per_minute(what)) for what in ("published", "handled")}
    unhandled = _("no consumer has a handler") if view.unhandled else ""
    return [
        tile("ready", _("Ready"), oldest or (rates["published"] and _("published: %s") % rates["published"])),
        tile("pending", _("Pending"), _fetched(view) or (rates["handled"] and _("handled: %s") % rates["handled"])),
        tile("delayed", _("Delayed"), due),
        tile("unhandled", _("Unhandled"), unhandled, bad=True),
        # Without limits of keys and without holds there are no parked messages.
        *([tile("parked", _("Parked"), _parked(view))] if view.parked else []),
        tile("dead", _("Dead letters"), bad=True),
        {"label": _("Running consumers"), "count": text.number(view.alive), "note": _slots(view)},
        # Rows of a group or a partition belong to the topic or to the whole queue.
        *(outbox_page.tile(page, view.name) if view.name in get_config().queues else []),
    ]


def _parked(view: QueueView) -> str:
    """Return for what the parked messages wait."""
    if not view.holds:
        return _("in the lines of their keys")
    is_limited = get_config().queue(view.name).limits.of_keys
    return _("held, or in the lines of their keys") if is_limited else _("held")


def _fetched(view: QueueView) -> str:
    """Return how many of the pending messages have not started, and for how long the oldest of them has waited."""
    if not view.fetched:
        return ""
    words = {"count": text.number(view.fetched)}
    if view.fetched_ms is None:
        return _("not started: %(count)s") % words
    return _("not started: %(count)s, oldest: %(time)s") % {**words, "time": text.duration(view.fetched_ms)}


def _slots(view: QueueView) -> str:
    if not view.alive or view.threads is None:
        return ""
    return _("threads busy: %(slots)s") % {"slots": text.slots(*view.threads)}


def _consumer(view: QueueView, found: ConsumerView) -> dict[str, Any]:
    seen = found.seen_ms_ago
    return {
        "id": text.visible(found.id, limit=80),
        "host": text.visible(found.host, limit=80),
        "pid": "" if found.pid is None else str(found.pid),
        "version": text.visible(found.version, limit=40),
        "threads": text.slots(found.busy, found.threads),
        "since": text.moment(found.since_ms, now=view.now_ms),
        "seen": "" if seen is None else _("%(time)s ago") % {"time": text.duration(seen)},
        "alive": found.alive,
    }


# Pause and resume a queue, after confirmation.

#: The field with the entry of the activity that is undone.
ENTRY = "entry"


@needs(VIEW, OPERATE)
def pause(page: Page, name: str) -> HttpResponse:
    """Pause a queue."""
    if not page.is_confirmed:
        title, button, sentence = _("Pause the queue?"), _("Yes, pause it"), stays([quick_stats(name)])
        return confirm(page, name, title, sentence, button, inputs=[pause_input()])
    reason = page.request.POST.get("reason", "")
    changed = actions.pause(name, who=page.username, reason=reason)
    said = _("The queue is paused.") if changed else _("The queue was already paused.")
    return _done(page, name, said, paused_for(reason) if changed else "")


@needs(VIEW, OPERATE)
def resume(page: Page, name: str) -> HttpResponse:
    """Resume a queue; if an entry of the activity is named, only from the pause that it tells of."""
    entry = filter_form.given(page, ENTRY) or ""
    if entry and to_undo(entry) is None:
        return page.leave(page.queue_url(name), _("This pause is over, or the queue was paused anew since."))
    if not page.is_confirmed:
        view = quick_stats(name)
        # A colleague may have paused it, or one of its partitions, for a reason that holds.
        paused = [f"{part.name}: {pause_details(part.pause)}" for part in view.each_part if part.paused]
        return confirm(
            page,
            name,
            _("Resume the queue?"),
            goes_on(view.ready),
            _("Yes, resume it"),
            fields=[(ENTRY, entry)] if entry else [],
            listed=[text.visible(each, limit=1000) for each in paused],
        )
    changed = actions.resume(name)
    said = _("The queue was resumed.") if changed else _("The queue was not paused.")
    return _done(page, name, said, "Resumed the queue" if changed else "")


def stays(views: Sequence[QueueView]) -> str:
    """Return what a pause of queues does."""
    sentence = _(
        "No new handler starts, and running handlers finish. %(ready)s ready and %(pending)s pending "
        "messages stay in the queue. Publishing continues."
    )
    ready, pending = sum(view.ready for view in views), sum(view.pending for view in views)
    return sentence % {"ready": text.number(ready), "pending": text.number(pending)}


def goes_on(ready: int) -> str:
    """Return what happens to ready messages when their queues are resumed."""
    words = ngettext(
        "%(count)s message is ready and will be handled.", "%(count)s messages are ready and will be handled.", ready
    )
    return words % {"count": text.number(ready)}


def pause_input() -> dict[str, str]:
    """Return the field for the reason of a pause, for a confirmation page."""
    return reason_input(_("Optional. Shown with your name until the queue is resumed."))


def paused_for(reason: str) -> str:
    """Return the text about a pause for the admin's log."""
    return f"Paused the queue{because(reason)}"


def _done(page: Page, name: str, said: str, logged: str) -> HttpResponse:
    if logged:
        page.log(name, logged)
    return page.leave(page.queue_url(name), said, messages.SUCCESS if logged else messages.INFO)


# The page on which one of a queue's partitions is chosen, in the place of a page that only partitions have.

#: The pages that a queue with partitions has itself, by their names. On the others one of its partitions is chosen.
OF_WHOLE = frozenset(
    {
        *("act_on_all", "change", "dead_export", "dead_groups", "figures", "pause", "queue_stats", "resume"),
        *("hold", "end_hold", "limits"),
        *("job", "job_cancel", "job_stats", "old_job", "old_job_cancel", "old_purge", "seek", "unsubscribe"),
        *(f"schedule_{what}" for what in ("add", "change", "delete", "fire", "forget", "pause", "resume")),
        *("schedule", "schedule_skip", "schedule_unskip", "schedule_override", "schedule_restore"),
    }
)

#: The lists of messages, of which each partition has its own.
STATES = frozenset({"ready", "pending", "delayed", "unhandled", "parked", "dead"})

#: The parameters of pages that are not about one message, which is in one partition.
OF_LISTS = frozenset({"name", "state", "what"})


def offered(route: str, view: View) -> View:
    """Return a view that offers the partitions if the queue has some, and no such page itself."""
    if route in OF_WHOLE:
        return view

    @wraps(view)
    def shown(page: Page, **kwargs: str) -> HttpResponse:
        if "name" not in kwargs or not get_config().queue(kwargs["name"]).parts:
            return view(page, **kwargs)
        if not page.can(VIEW, *getattr(view, "permissions", ())):
            raise PermissionDenied
        return _choice(page, route, kwargs)

    return shown


def _choice(page: Page, route: str, kwargs: dict[str, str]) -> HttpResponse:
    name, found = kwargs["name"], page.request.resolver_match
    sentence = _("The queue “%(name)s” has partitions: choose one.") % {"name": name}
    if page.request.path.endswith(".json"):
        return JsonResponse({"error": sentence}, status=404)
    view, section = quick_stats(name), kwargs.get("state", route)
    parts = []
    for part in view.parts:
        url = page.queue_url(part.name)
        if found is not None and set(kwargs) <= OF_LISTS:
            url = (
                reverse(found.view_name, kwargs={**kwargs, "name": part.name}, current_app=found.namespace) + page.query
            )
        parts.append((part.name, url, text.number(getattr(part, section)) if section in STATES else ""))
    return page.render(
        "partitions",
        _("Partitions"),
        # Nothing was changed.
        status=200 if page.request.method in {"GET", "HEAD"} else 400,
        queue=name,
        tabs=tabs(page, name, section, view),
        sentence=sentence,
        listed=parts,
        actions=_actions(page, name) if section == "dead" and view.dead else [],
    )


def _actions(page: Page, name: str) -> list[tuple[str, str]]:
    """Return what can be done with the dead letters of all partitions."""
    found = [(_("Group by error"), page.url("dead_groups", name))]
    if page.can(OPERATE):
        found.append((_("Redrive all…"), page.url("act_on_all", name, "dead", "redrive")))
        found.append((_("Move all…"), page.url("act_on_all", name, "dead", "move")))
    if page.can(OPERATE, PURGE):
        found.append((_("Delete all…"), page.url("act_on_all", name, "dead", "delete")))
    return found
