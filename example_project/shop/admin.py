"""The shop in Django's admin, beside the queues."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from example_project.shop.models import Cart, CartLine, NotificationStep, Order, OrderLine, Product
from example_project.shop.ordering import request_receipt


class OrderLineInline(admin.TabularInline):  # type: ignore[type-arg]
    """What was bought."""

    model = OrderLine
    extra = 0
    can_delete = False
    readonly_fields = ["product", "quantity", "price"]

    def has_add_permission(self, request: HttpRequest, obj: Order | None = None) -> bool:
        return False


class CartLineInline(admin.TabularInline):  # type: ignore[type-arg]
    """What is in a cart."""

    model = CartLine
    extra = 0


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """What the shop sells."""

    list_display = ["name", "price"]
    prepopulated_fields = {"slug": ["name"]}


@admin.register(Cart)
class CartAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Carts, ordered or not."""

    list_display = ["__str__", "email", "updated_at", "reminded_at"]
    inlines = [CartLineInline]


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Orders: a wrong address is fixed here, then the dead letter is redriven."""

    list_display = ["__str__", "name", "email", "total", "placed_at", "notified_by", "receipt_sent_at"]
    list_select_related = ["notification"]
    search_fields = ["name", "email"]
    readonly_fields = ["cart", "total", "placed_at", "receipt_sent_at"]
    inlines = [OrderLineInline]
    actions = ["send_receipts"]

    @admin.display(description="notified by")
    def notified_by(self, order: Order) -> str:
        """Return the channel that reached the buyer."""
        step = NotificationStep.objects.filter(
            notification__order=order, outcome=NotificationStep.Outcome.DELIVERED
        ).first()
        return step.get_channel_display() if step else "-"

    @admin.action(description="Mail receipts that were not sent yet")
    def send_receipts(self, request: HttpRequest, orders: QuerySet[Order]) -> None:
        """Enqueue the receipts of the chosen orders."""
        waiting = orders.filter(receipt_sent_at=None)
        for order in waiting:
            request_receipt(order.pk)
        self.message_user(request, f"{len(waiting)} receipts will be mailed.")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False
