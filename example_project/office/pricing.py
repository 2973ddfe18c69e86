"""How a line of a price list changes a price."""

import time

from django.conf import settings
from django.db import transaction
from django.db.models import F

from example_project.office.models import Price, PriceLine


def apply_line(line: PriceLine) -> bool:
    """Set the price of a line, and return whether it is new."""
    # A supplier's lines are checked one by one, which takes its time.
    time.sleep(getattr(settings, "PRICE_LINE_SECONDS", 0))
    with transaction.atomic():
        before = Price.objects.filter(product=line.product).values_list("price", flat=True).first()
        Price.objects.update_or_create(product=line.product, defaults={"price": line.price})
        PriceLine.objects.filter(pk=line.pk).update(applied=F("applied") + 1)
    return before != line.price
