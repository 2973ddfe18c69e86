"""The admin of queues: one entry in the index, with its own pages."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, register_converter
from django.urls.converters import StringConverter
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from mq_django.admin import (
    activity_pages,
    bulk_pages,
    consumer_pages,
    find_page,
    hold_pages,
    job_pages,
    limit_pages,
    message_lists,
    message_pages,
    metrics_pages,
    outbox_page,
    overview,
    problem_pages,
    publish_page,
    queue_page,
    run_pages,
    schedule_pages,
    schedule_rows,
    topic_log,
    topic_pages,
)
from mq_django.admin.message_lists import TITLES
from mq_django.admin.queue_page import offered
from mq_django.admin.ui.page import OPERATE, VIEW, Page, View, answer
from mq_django.conf import get_config
from mq_django.errors import ConfigurationError, StoreError, UnknownQueue
from mq_django.inspector.queues import require_queue
from mq_django.models import Queue

_get_or_post = require_http_methods(["GET", "HEAD", "POST"])


class StateConverter(StringConverter):
    """The state of the messages that a list has, in a path."""

    regex = "|".join(TITLES)


register_converter(StateConverter, "mq_state")

#: Path, view, methods, name. Paths contain names of queues, not positions, so that links stay valid.
ROUTES: list[tuple[str, View, Callable[..., Any], str]] = [
    ("stats.json", overview.stats, require_GET, "stats"),
    ("problems/", problem_pages.show, require_GET, "problems"),
    ("problems.json", problem_pages.stats, require_GET, "problems_stats"),
    ("problems/mute/", problem_pages.silence, _get_or_post, "problem_mute"),
    ("problems/unmute/", problem_pages.speak, _get_or_post, "problem_unmute"),
    ("metrics/", metrics_pages.show, require_GET, "metrics"),
    ("metrics/figures/", metrics_pages.figures, require_GET, "metrics_figures"),
    ("metrics/export/all.json", metrics_pages.as_json, require_GET, "metrics_json_export"),
    ("metrics/export/steps.csv", metrics_pages.as_csv, require_GET, "metrics_csv_export"),
    ("metrics/export/rows.csv", metrics_pages.rows_as_csv, require_GET, "metrics_rows_export"),
    ("activity/", activity_pages.show, require_GET, "activity"),
    ("activity/export/", activity_pages.export, require_GET, "activity_export"),
    ("star/", overview.set_star, require_POST, "star"),
    ("find/", find_page.find, require_GET, "find"),
    ("find.json", find_page.more, require_GET, "find_stats"),
    ("pause/", overview.pause_all, _get_or_post, "pause_all"),
    ("resume/", overview.resume_all, _get_or_post, "resume_all"),
    ("consumers/", consumer_pages.consumers, require_GET, "consumers"),
    ("consumers.json", consumer_pages.stats, require_GET, "consumers_stats"),
    ("consumers/<str:who>/quiet/", consumer_pages.quiet, _get_or_post, "quiet"),
    ("consumers/<str:who>/stop/", consumer_pages.stop, _get_or_post, "stop"),
    ("consumers/<str:who>/stacks/", consumer_pages.stacks, require_GET, "stacks"),
    ("consumers/<str:who>/stacks.json", consumer_pages.stack_stats, require_GET, "stacks_stats"),
    ("outbox/", outbox_page.outbox, require_GET, "outbox"),
    ("outbox.json", outbox_page.stats, require_GET, "outbox_stats"),
    ("outbox/rows/<str:database>/<str:row>/", outbox_page.row, require_GET, "outbox_row"),
    ("outbox/rows/act/", outbox_page.act, require_POST, "outbox_act"),
    ("schedules/", schedule_rows.all_schedules, require_GET, "schedules"),
    ("workflows/", run_pages.runs, require_GET, "workflows"),
    ("workflows.json", run_pages.stats, require_GET, "workflows_stats"),
    # With a part that no page of a queue has, which may be called "workflows".
    ("workflows/run/<str:run>/", run_pages.show, require_GET, "workflow_run"),
    ("workflows/run/<str:run>/stats.json", run_pages.run_stats, require_GET, "workflow_run_stats"),
    ("workflows/run/<str:run>/steps/", run_pages.steps, require_GET, "workflow_steps"),
    ("workflows/run/<str:run>/cancel/", run_pages.cancel, _get_or_post, "workflow_cancel"),
    ("workflows/run/<str:run>/retry/", run_pages.retry, _get_or_post, "workflow_retry"),
    ("workflows/run/<str:run>/retry/<str:step>/", run_pages.retry_step, _get_or_post, "workflow_retry_step"),
    ("workflows/run/<str:run>/cancel/<str:step>/", run_pages.cancel_step, _get_or_post, "workflow_cancel_step"),
    ("workflows/run/<str:run>/skip/<str:step>/", run_pages.skip, _get_or_post, "workflow_skip"),
    ("<str:name>/stats.json", queue_page.stats, require_GET, "queue_stats"),
    ("<str:name>/figures/", queue_page.figures, require_GET, "figures"),
    ("<str:name>/publish/", publish_page.show, _get_or_post, "publish"),
    ("<str:name>/pause/", queue_page.pause, require_POST, "pause"),
    ("<str:name>/resume/", queue_page.resume, _get_or_post, "resume"),
    ("<str:name>/hold/", hold_pages.hold, _get_or_post, "hold"),
    ("<str:name>/limits/", limit_pages.change, _get_or_post, "limits"),
    ("<str:name>/holds/<str:score>/release/", hold_pages.release, _get_or_post, "end_hold"),
    ("<str:name>/purge/<str:state>/", bulk_pages.old_purge, _get_or_post, "old_purge"),
    ("<str:name>/<str:state>/all/<str:what>/", bulk_pages.act_on_all, _get_or_post, "act_on_all"),
    ("<str:name>/<str:state>/job/", job_pages.show, require_GET, "job"),
    ("<str:name>/<str:state>/job/stats.json", job_pages.stats, require_GET, "job_stats"),
    ("<str:name>/<str:state>/job/cancel/", job_pages.cancel, _get_or_post, "job_cancel"),
    ("<str:name>/job/", job_pages.latest, require_GET, "old_job"),
    ("<str:name>/job/cancel/", job_pages.latest, _get_or_post, "old_job_cancel"),
    ("<str:name>/dead/groups/", message_pages.groups, require_GET, "dead_groups"),
    ("<str:name>/dead/export/", message_pages.export, require_GET, "dead_export"),
    ("<str:name>/dead/<str:entry>/edit/", message_pages.edit, _get_or_post, "dead_edit"),
    ("<str:name>/<mq_state:state>/", message_lists.listing, require_GET, "messages"),
    ("<str:name>/<mq_state:state>/chosen/", bulk_pages.act_on_chosen, require_POST, "chosen"),
    ("<str:name>/message/<str:state>/<str:ref>/", message_pages.message, require_GET, "message"),
    (
        "<str:name>/message/<mq_state:state>/<str:message>/stream.json",
        message_pages.stats,
        require_GET,
        "message_stats",
    ),
    ("<str:name>/message/<str:state>/<str:ref>/cancel/", message_pages.cancel, _get_or_post, "cancel"),
    ("<str:name>/waiting/<str:state>/", message_pages.old, require_GET, "old_list"),
    ("<str:name>/waiting/<str:state>/<str:member>/", message_pages.old, require_GET, "old_waiting"),
    ("<str:name>/entry/<str:source>/<str:entry>/", message_pages.old, require_GET, "old_entry"),
    ("<str:name>/handled/<str:entry>/<str:member>/", message_pages.old, require_GET, "old_handled"),
    ("<str:name>/dead/<str:entry>/", message_pages.old, require_GET, "old_dead"),
    ("<str:name>/line/<str:line>/", limit_pages.show, require_GET, "line"),
    ("<str:name>/line/<str:line>/stats.json", limit_pages.stats, require_GET, "line_stats"),
    ("<str:name>/line/<str:line>/skip/", limit_pages.skip, require_POST, "line_skip"),
    ("<str:name>/line/<str:line>/redrive/", limit_pages.redrive, require_POST, "line_redrive"),
    ("<str:name>/schedule/", schedule_rows.show, require_GET, "schedule"),
    ("<str:name>/schedule/override/", schedule_pages.override, _get_or_post, "schedule_override"),
    ("<str:name>/schedule/restore/", schedule_pages.restore, require_POST, "schedule_restore"),
    ("<str:name>/schedule/add/", schedule_pages.add, _get_or_post, "schedule_add"),
    ("<str:name>/schedule/change/", schedule_pages.change, _get_or_post, "schedule_change"),
    ("<str:name>/schedule/undo/", schedule_pages.undo, require_POST, "schedule_undo"),
    ("<str:name>/schedule/delete/", schedule_pages.delete, require_POST, "schedule_delete"),
    ("<str:name>/schedule/pause/", schedule_pages.pause, require_POST, "schedule_pause"),
    ("<str:name>/schedule/resume/", schedule_pages.resume, require_POST, "schedule_resume"),
    ("<str:name>/schedule/fire/", schedule_pages.fire, require_POST, "schedule_fire"),
    ("<str:name>/schedule/skip/", schedule_pages.skip, require_POST, "schedule_skip"),
    ("<str:name>/schedule/unskip/", schedule_pages.unskip, require_POST, "schedule_unskip"),
    ("<str:name>/schedule/forget/", schedule_pages.forget, require_POST, "schedule_forget"),
    ("<str:name>/seek/", topic_log.seek, _get_or_post, "seek"),
    ("<str:name>/unsubscribe/", topic_log.unsubscribe, require_POST, "unsubscribe"),
    ("<str:topic>/topic.json", topic_pages.stats, require_GET, "topic_stats"),
    ("<str:topic>/published/", topic_pages.figures, require_GET, "topic_figures"),
    ("<str:topic>/log/", topic_log.log, require_GET, "log"),
    ("<str:topic>/log/<str:entry>/", topic_log.message, require_GET, "log_entry"),
]


class QueueAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # a generic class only for type checkers
    """Queues of `settings.MQ_DJANGO`; register it with a custom admin site like any other ModelAdmin."""

    def get_urls(self) -> list[URLPattern]:
        ours = [
            path(where, self._mounted(offered(name, view), methods), name=f"mq_django_queue_{name}")
            for where, view, methods, name in ROUTES
        ]
        # First, because the patterns of ModelAdmin match all other paths.
        return [*ours, *super().get_urls()]

    def _mounted(self, show: View, methods: Callable[..., Any]) -> Callable[..., HttpResponse]:
        def mounted(request: HttpRequest, **kwargs: str) -> HttpResponse:
            return answer(show, Page(self, request), **kwargs)

        view: Callable[..., HttpResponse] = self.admin_site.admin_view(methods(mounted))
        return view

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show all queues."""
        return answer(overview.overview, Page(self, request))

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show one queue or topic. Their names are distinct."""
        name = unquote(object_id)
        if (run := run_pages.logged_run(name)) is not None:
            return HttpResponseRedirect(Page(self, request).url("workflow_run", run))
        if _is_topic(name):
            return answer(topic_pages.topic, Page(self, request), topic=name)
        return answer(queue_page.queue, Page(self, request), name=name)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show what was done to a queue, with the results of its jobs that have ended."""
        response = super().history_view(request, object_id, extra_context)
        # A topic has no jobs.
        with suppress(UnknownQueue, ConfigurationError, StoreError):
            job_pages.add_results(
                unquote(object_id), (getattr(response, "context_data", None) or {}).get("action_list", ())
            )
        return response

    def get_queryset(self, request: HttpRequest) -> QuerySet[Queue]:
        # There is no table, so the admin gets no rows.
        return Queue.objects.none()

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Queue | None:
        """Return the queue or topic with that name if it is configured, or a run. Used by the admin's history page."""
        try:
            if _is_topic(object_id) or run_pages.logged_run(object_id) is not None:
                return Queue(name=object_id)
            require_queue(object_id)
            return Queue(name=object_id)
        except (UnknownQueue, ConfigurationError, StoreError):
            return None

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Queue | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Queue | None = None) -> bool:
        return Page(self, request).can(VIEW, OPERATE)


def _is_topic(name: str) -> bool:
    try:
        get_config().topic(name)
    except (ConfigurationError, UnknownQueue):
        return False
    return True
