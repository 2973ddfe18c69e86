"""What the departments have written, in Django's admin."""

from django.contrib import admin

from example_project.office.models import Invoice, Report, Sale, StockMove


@admin.register(StockMove, Sale, Invoice)
class WrittenAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Written by subscribers, newest first."""

    list_display = ["__str__", "order_id"]
    ordering = ["-pk"]


admin.site.register(Report)
