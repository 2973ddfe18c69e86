"""Turn a cart into an order, with all that has to follow."""

from django.db import transaction

from example_project.ledger import book
from example_project.shop import cascade
from example_project.shop.models import Cart, Notification, Order, OrderLine
from example_project.shop.tasks import send_receipt


def place_order(order: Order, cart: Cart) -> Order:
    """Save the order of a cart and publish its confirmation and its receipt.

    All in one transaction: either there is an order and its messages go out, or there is neither.

    Raises:
        StoreError: the order is placed, and Redis did not take its messages.
    """
    with transaction.atomic():
        order.cart = cart
        order.total = cart.total()
        order.save()
        OrderLine.objects.bulk_create(
            OrderLine(order=order, product=line.product, quantity=line.quantity, price=line.product.price)
            for line in cart.lines.select_related("product")
        )
        cascade.start(Notification.objects.create(order=order))
        request_receipt(order)
    return order


def request_receipt(order: Order) -> None:
    """Have the receipt of an order mailed, unless it was before."""
    with transaction.atomic():
        result = send_receipt.enqueue(order.pk)
        book.accept(result.id, queue="emails", name=send_receipt.func.__name__)
