"""A price list, so that an empty office has something to import."""

from decimal import Decimal

from example_project.office.models import PriceLine, PriceList

SUPPLIER = "Bone China Ltd"


def upload_list(lines: int = 240) -> PriceList:
    """Upload the price list of a supplier, if there is none."""
    found, is_new = PriceList.objects.get_or_create(supplier=SUPPLIER)
    if is_new:
        uploaded = [
            PriceLine(price_list=found, product=f"Cup no. {number}", price=Decimal(number % 40 + 5))
            for number in range(1, lines + 1)
        ]
        PriceLine.objects.bulk_create(uploaded)
    return found
