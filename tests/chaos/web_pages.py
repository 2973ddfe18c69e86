"""The pages of the web server of a run: `/insert` writes an order, and `/publish` also publishes through the outbox."""

import random
from uuid import uuid4

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path

from mq_django import queues
from tests.chaos.orders import Orders
from tests.chaos.settings import KEYS, ORDERS

_orders = Orders()


def insert(_: HttpRequest) -> HttpResponse:
    """Write an order."""
    with transaction.atomic():
        _orders.insert(str(uuid4()), random.choice(KEYS), 0)
    return HttpResponse("inserted")


def publish(_: HttpRequest) -> HttpResponse:
    """Write an order, and publish it."""
    order, key = str(uuid4()), random.choice(KEYS)
    with transaction.atomic():
        _orders.insert(order, key, 1)
        queues[ORDERS].publish("order", {"id": order}, key=key, message_id=order)
    return HttpResponse("published")


urlpatterns = [path("insert", insert), path("publish", publish)]
