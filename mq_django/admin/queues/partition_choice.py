"""The page on which one of a queue's partitions is chosen, in the place of a page that only partitions have."""

from functools import wraps

from django.core.exceptions import PermissionDenied
from django.http import HttpResponse, JsonResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from mq_django.admin.ui import text
from mq_django.admin.ui.page import OPERATE, PURGE, VIEW, Page, View
from mq_django.admin.ui.tabs import tabs
from mq_django.conf import get_config
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import quick_stats

#: The pages that a queue with partitions has itself, by their names. On the others one of its partitions is chosen.
OF_WHOLE = frozenset(
    {
        "change",
        "dead_all",
        "dead_export",
        "dead_groups",
        "dead_job",
        "dead_job_cancel",
        "dead_job_stats",
        "figures",
        "message_job",
        "message_job_cancel",
        "message_job_stats",
        "pause",
        "purge",
        "queue_stats",
        "resume",
        "schedule_add",
        "schedule_change",
        "schedule_delete",
        "schedule_fire",
        "schedule_forget",
        "schedule_pause",
        "schedule_resume",
        "schedule_skip",
        "schedule_unskip",
        "seek",
        "unsubscribe",
    }
)

#: The lists of messages, of which each partition has its own.
PLACES = frozenset({"ready", "pending", "delayed", "unhandled", "parked", "dead"})

#: The parameters of pages that are not about one message, which is in one partition.
OF_LISTS = frozenset({"name", "place", "room", "what"})


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
    view, place = quick_stats(name), kwargs.get("room", route)
    query = f"?{page.request.GET.urlencode()}" if page.request.GET else ""
    parts = []
    for part in view.parts:
        url = page.queue_url(part.name)
        if found is not None and set(kwargs) <= OF_LISTS:
            url = reverse(found.view_name, kwargs={**kwargs, "name": part.name}, current_app=found.namespace) + query
        parts.append((part.name, url, _count(part, place)))
    return page.render(
        "partitions",
        _("Partitions"),
        # Nothing was changed.
        status=200 if page.request.method in {"GET", "HEAD"} else 400,
        queue=name,
        tabs=tabs(page, name, place, view),
        sentence=sentence,
        listed=parts,
        actions=_actions(page, name) if place == "dead" and view.dead else [],
    )


def _count(part: QueueView, place: str) -> str:
    return text.number(getattr(part, place)) if place in PLACES else ""


def _actions(page: Page, name: str) -> list[tuple[str, str]]:
    """Return what can be done with the dead letters of all partitions."""
    found = [(_("Group by error"), page.url("dead_groups", name))]
    if page.can(OPERATE):
        found.append((_("Redrive all…"), page.url("dead_all", name, "redrive")))
        found.append((_("Move all…"), page.url("dead_all", name, "move")))
    if page.can(OPERATE, PURGE):
        found.append((_("Delete all…"), page.url("dead_all", name, "delete")))
    return found
