"""The handlers of orders: each books an order and publishes on, and a handler of batches enters what was booked."""

from collections.abc import Sequence

from mq_django import exactly_once, handler, queues
from mq_django.core.messages import Message
from tests.chaos import points
from tests.chaos.orders import Orders
from tests.chaos.settings import LEDGER, ORDERS

_orders = Orders()


@handler(ORDERS, "order")
@exactly_once
def book(message: Message) -> None:
    """Book an order, and publish that."""
    order = message.data["id"]
    _orders.book(order)
    queues[LEDGER].publish("entry", {"id": order}, message_id=order)
    points.reached("booked")


@handler(LEDGER, "entry", batch=50)
@exactly_once
def enter(messages: Sequence[Message]) -> None:
    """Enter what was booked, all in one transaction."""
    _orders.enter([message.data["id"] for message in messages])
    points.reached("entered")
