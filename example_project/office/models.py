"""What each department keeps. None of them knows the shop's tables: all they know is in the messages."""

from django.db import models


class StockMove(models.Model):
    """Pieces of one product that left the shelves for an order."""

    order_id = models.PositiveBigIntegerField()
    product = models.CharField(max_length=80)
    pieces = models.PositiveIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["order_id", "product"], name="one_move_a_product")]

    def __str__(self) -> str:
        return f"{self.pieces} x {self.product} for order {self.order_id}"


class Sale(models.Model):
    """An order as the statistics count it."""

    order_id = models.PositiveBigIntegerField(unique=True)
    pieces = models.PositiveIntegerField()
    total = models.DecimalField(max_digits=10, decimal_places=2)

    def __str__(self) -> str:
        return f"Sale of order {self.order_id}"


class Report(models.Model):
    """What was sold until the end of a day, or until the report was written."""

    day = models.DateField(unique=True)
    orders = models.PositiveIntegerField()
    total = models.DecimalField(max_digits=12, decimal_places=2)
    #: How often it was written.
    edition = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"Report of {self.day}: {self.orders} orders, {self.total} EUR, edition {self.edition}"


class PriceList(models.Model):
    """The prices of a supplier, as they were uploaded."""

    supplier = models.CharField(max_length=80)
    #: When all lines were applied.
    imported = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"Price list {self.pk} of {self.supplier}"


class PriceLine(models.Model):
    """One product and its price."""

    price_list = models.ForeignKey(PriceList, on_delete=models.CASCADE, related_name="lines")
    product = models.CharField(max_length=80)
    price = models.DecimalField(max_digits=10, decimal_places=2)
    #: How often it was applied: once, or twice if a process was killed.
    applied = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.product}: {self.price} EUR"


class Price(models.Model):
    """What a product costs now."""

    product = models.CharField(max_length=80, unique=True)
    price = models.DecimalField(max_digits=10, decimal_places=2)

    def __str__(self) -> str:
        return f"{self.product}: {self.price} EUR"


class PriceImport(models.Model):
    """An import of price lists: which run of the workflow it is. How far it is, the run itself knows."""

    run = models.CharField(max_length=60, unique=True)
    started = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"Import {self.run}"


class Invoice(models.Model):
    """What bookkeeping wrote for an order; its number is its own.

    Nothing here prevents a second invoice for an order: the handler does.
    """

    order_id = models.PositiveBigIntegerField(db_index=True)
    name = models.CharField(max_length=80)
    total = models.DecimalField(max_digits=10, decimal_places=2)

    def __str__(self) -> str:
        return f"Invoice {self.pk} for order {self.order_id}"
