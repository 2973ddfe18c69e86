"""The import of price lists in the admin: a button, and how far the latest run is."""

from typing import Any

from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.urls import path, reverse
from django.urls.resolvers import URLPattern
from django.views.decorators.http import require_POST

from example_project.office.models import PriceImport, PriceList
from example_project.office.workflows import start_import
from mq_django.errors import StoreError, UnknownRun
from mq_django.workflows import get_run

START, STATE = "office_pricelist_import", "office_pricelist_import_state"


def latest() -> dict[str, Any] | None:
    """Return the state of the latest run; None if none is known."""
    found = PriceImport.objects.last()
    if found is None:
        return None
    run = get_run(found.run)
    try:
        steps, state = run.progress, run.state
    except UnknownRun:
        return None
    except StoreError as error:
        return {"state": f"unknown: {error}", "done": 0, "total": 0, "failed": 0, "url": "", "is_running": True}
    return {
        "state": state,
        "done": steps.done,
        "total": steps.total,
        "failed": steps.failed,
        "url": reverse("admin:mq_django_queue_workflow_run", args=[run.id]),
        "is_running": state in ("building", "running"),
    }


class ImportPage(ModelAdmin):  # type: ignore[type-arg]
    """A list of price lists with a button that imports them all, and the progress of the latest import."""

    change_list_template = "office/price_lists.html"

    def get_urls(self) -> list[URLPattern]:
        """See ModelAdmin.get_urls()."""
        view = self.admin_site.admin_view
        return [
            path("import/", view(require_POST(self.start_import)), name=START),
            path("import.json", view(self.import_state), name=STATE),
            *super().get_urls(),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the latest import above the list."""
        more = {"latest": latest(), "can_import": self.has_change_permission(request)}
        return super().changelist_view(request, {**(extra_context or {}), **more})

    def start_import(self, request: HttpRequest) -> HttpResponse:
        """Start an import of all lists, unless one runs."""
        if not self.has_change_permission(request):
            raise PermissionDenied
        lists = PriceList.objects.all()
        if lists:
            start_import(lists)
            self.message_user(request, "The price lists are being imported.", messages.SUCCESS)
        else:
            self.message_user(request, "There is no price list.", messages.WARNING)
        return HttpResponseRedirect(reverse("admin:office_pricelist_changelist"))

    def import_state(self, request: HttpRequest) -> HttpResponse:
        """Return the state of the latest import."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return JsonResponse(latest() or {})
