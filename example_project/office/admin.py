"""What the departments have written, in Django's admin."""

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from example_project.office.import_page import ImportPage
from example_project.office.models import Invoice, Price, PriceLine, PriceList, Report, Sale, StockMove
from example_project.office.tasks import import_prices


@admin.register(StockMove, Sale, Invoice)
class WrittenAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Written by subscribers, newest first."""

    list_display = ["__str__", "order_id"]
    ordering = ["-pk"]


class PriceLineInline(admin.TabularInline):  # type: ignore[type-arg]
    """The lines of a list."""

    model = PriceLine
    readonly_fields = ["applied"]


@admin.register(PriceList)
class PriceListAdmin(ImportPage):
    """Price lists. One is imported by a task, whose progress is on the page of the consumers; all by a workflow."""

    list_display = ["__str__", "imported"]
    inlines = [PriceLineInline]
    actions = ["import_lists"]

    @admin.action(description="Import the selected lists")
    def import_lists(self, request: HttpRequest, queryset: "QuerySet[PriceList]") -> None:
        """Enqueue the import of each list."""
        for found in queryset:
            import_prices.enqueue(found.pk)
        self.message_user(request, "They are being imported.", messages.SUCCESS)


admin.site.register([Price, Report])
