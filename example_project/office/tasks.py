"""What the office does by the clock, and what takes long."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Count, F, Sum
from django.utils import timezone

from example_project.office.models import PriceList, Report, Sale
from example_project.office.pricing import apply_line
from example_project.office.workflows import start_import
from mq_django import progress, resumable, task


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


@task(schedule=settings.IMPORT_SCHEDULE)
def start_nightly_import() -> str:
    """Start the import of the price lists that are new."""
    new = PriceList.objects.filter(imported=None)
    return start_import(new).id if new else ""


@task
def import_prices(price_list: int) -> str:
    """Apply the lines of a price list, which may take longer than the shop goes without a deploy.

    After a deploy it goes on behind the last line. After a kill the lines of the last second are applied again, which
    sets the same prices.
    """
    found = PriceList.objects.get(pk=price_list)
    total = found.lines.count()
    done = found.lines.filter(applied__gt=0).count()
    for line in resumable(found.lines.all()):
        apply_line(line)
        done += 1
        progress(done, total, note=line.product)
    found.imported = timezone.now()
    found.save()
    return f"{total} lines"
