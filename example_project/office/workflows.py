"""The import of all price lists that suppliers have uploaded, in parts that many consumers apply at a time.

`tasks.py`, which starts it each night, imports this module: so consumers know the tasks here.
"""

from collections.abc import Iterable
from datetime import timedelta

from django.core.mail import send_mail
from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from example_project.office.models import PriceImport, PriceLine, PriceList
from example_project.office.pricing import apply_line
from example_project.shop.mail import MAIL_PATIENCE
from mq_django import RetryPolicy, progress, task
from mq_django.workflows import Flow, Run, current_flow, workflow

#: Lines that a step applies.
CHUNK = 12
OFFICE = "office@localhost"


@task
def fetch(price_lists: list[int]) -> int:
    """Read the lists, and add the steps of the import: their number is known only now."""
    lines = list(PriceLine.objects.filter(price_list__in=price_lists).order_by("pk").values_list("pk", flat=True))
    flow = current_flow()
    chunks = [lines[first : first + CHUNK] for first in range(0, len(lines), CHUNK)]
    parts = flow.map(apply_lines.using(queue_name="imports"), chunks)
    summary = flow.add(merge, price_lists, parts)
    flow.add(mail_summary, summary)
    return len(lines)


@task(retry=RetryPolicy(max_attempts=5, delay=timedelta(seconds=5)), timeout=60)
def apply_lines(lines: list[int]) -> dict[str, int]:
    """Apply a part of the lines. A step may run twice: this sets the same prices again."""
    changed = 0
    for done, line in enumerate(PriceLine.objects.filter(pk__in=lines).order_by("pk"), 1):
        changed += apply_line(line)
        progress(done, len(lines), note=line.product)
    return {"lines": len(lines), "changed": changed}


@task
def merge(price_lists: list[int], parts: list[dict[str, int]]) -> dict[str, int]:
    """Note that the lists are imported, and return the sums of all parts."""
    PriceList.objects.filter(pk__in=price_lists).update(imported=timezone.now())
    return {name: sum(part[name] for part in parts) for name in ("lines", "changed")}


@task(queue_name="emails", retry=MAIL_PATIENCE, timeout=30)
def mail_summary(summary: dict[str, int]) -> None:
    """Mail the office what has changed."""
    send_mail("Prices are imported", "{lines} lines, {changed} new prices.".format(**summary), None, [OFFICE])


@task(queue_name="emails", retry=MAIL_PATIENCE, timeout=30)
def mail_failure(run_id: str) -> None:
    """Mail the office where to look."""
    page = reverse("admin:mq_django_queue_workflow_run", args=[run_id])
    send_mail("The import of prices has failed", f"Its steps, which can be retried: {page}", None, [OFFICE])


@workflow(on_failure=mail_failure, expires=timedelta(hours=12))
def import_price_lists(flow: Flow, price_lists: list[int]) -> None:
    """Fetch, apply in parts, merge, mail. The first step adds the others."""
    flow.add(fetch, price_lists)


def start_import(price_lists: Iterable[PriceList]) -> Run:
    """Start an import, unless one runs, and return the run: the new one, or the one that runs."""
    run = import_price_lists.start([found.pk for found in price_lists], unique="prices")
    # After the start, which is a hook of the same transaction: by then it is known which run it is.
    transaction.on_commit(lambda: PriceImport.objects.get_or_create(run=run.id))
    return run
