"""Subscribers: each group gets every order, handles it when it can, and can be replayed on its own.

All of them may get an order twice: because a process died, or because somebody replays the topic after fixing a bug.
Stock and statistics write what the order says, and do not add to what is there. Bookkeeping numbers its invoices and
publishes, so it handles each order exactly once.
"""

from decimal import Decimal

from example_project.office.models import Invoice, Sale, StockMove
from example_project.shop.ordering import request_receipt
from mq_django import Message, exactly_once, subscriber


@subscriber("orders", group="stock", name="order.placed")
def take_from_shelves(message: Message) -> None:
    """Note what left the shelves."""
    for line in message.data["lines"]:
        StockMove.objects.update_or_create(
            order_id=message.data["order_id"], product=line["product"], defaults={"pieces": line["pieces"]}
        )


@subscriber("orders", group="statistics", name="order.placed", batch=500, linger=0.2)
def count_sales(messages: list[Message]) -> None:
    """Count the pieces and the money of many orders with one query."""
    # By order, because one query cannot write an order twice.
    orders = {message.data["order_id"]: message.data for message in messages}
    sales = [
        Sale(order_id=order_id, pieces=sum(line["pieces"] for line in order["lines"]), total=Decimal(order["total"]))
        for order_id, order in orders.items()
    ]
    Sale.objects.bulk_create(
        sales, update_conflicts=True, unique_fields=["order_id"], update_fields=["pieces", "total"]
    )


@subscriber("orders", group="bookkeeping", name="order.placed")
@exactly_once
def write_invoice(message: Message) -> None:
    """Write the invoice, and have the receipt mailed.

    The invoice, the row of the receipt in the outbox, and the row of the inbox that names this message are one
    transaction. So nothing here looks whether there is an invoice, and the table does not refuse a second one.
    """
    order = message.data
    Invoice.objects.create(order_id=order["order_id"], name=order["name"], total=Decimal(order["total"]))
    request_receipt(order["order_id"])
