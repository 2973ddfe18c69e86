"""What the office does by the clock."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Count, F, Sum

from example_project.office.models import Report, Sale
from mq_django import task


@task(takes_context=True, schedule=settings.REPORT_SCHEDULE)
def write_report(context: Any) -> str:
    """Write the day's report. However many consumers there are, each tick is fired once."""
    sold = Sale.objects.aggregate(orders=Count("pk"), total=Sum("total"))
    day = datetime.date(context.task_result.enqueued_at)
    with transaction.atomic():
        report, _ = Report.objects.update_or_create(
            day=day, defaults={"orders": sold["orders"], "total": sold["total"] or Decimal()}
        )
        Report.objects.filter(pk=report.pk).update(edition=F("edition") + 1)
    report.refresh_from_db()
    return str(report)
