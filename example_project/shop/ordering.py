"""Turn a cart into an order, with all that has to follow."""

from django.db import transaction

from example_project.ledger import book
from example_project.shop import cascade
from example_project.shop.models import Cart, Notification, Order, OrderLine
from example_project.shop.tasks import send_receipt
from mq_django import topics


def place_order(order: Order, cart: Cart) -> Order:
    """Save the order of a cart and publish its confirmation and the news of it.

    All in one transaction: either there is an order and its messages go out, or there is neither. The messages are
    rows of the outbox, so an order can be placed while Redis is away. Bookkeeping sends the receipt.
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
        announce(order)
    return order


def announce(order: Order) -> None:
    """Tell all readers of the topic `orders`, with all they may need to know; told again, it adds nothing."""
    topics["orders"].publish(
        "order.placed",
        {
            "order_id": order.pk,
            "name": order.name,
            "total": str(order.total),
            "lines": [
                {"product": line.product.slug, "pieces": line.quantity}
                for line in order.lines.select_related("product")
            ],
        },
        key=f"order:{order.pk}",
        message_id=f"order-{order.reference}",
    )


def request_receipt(order_id: int) -> None:
    """Have the receipt of an order mailed, unless it was before."""
    with transaction.atomic():
        result = send_receipt.enqueue(order_id)
        book.accept(result.id, queue="emails", name=send_receipt.func.__name__)
