"""The SMS gateway takes so many a second: the queue keeps below, whatever is published, and nothing else waits."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from pytest_django import Settings

from example_project import settings as example_settings
from example_project.shop import cascade
from example_project.shop.models import Cart, Notification, Order
from mq_django.conf import get_config
from mq_django.stores import open_store
from mq_django.stores.line_store import LineStore
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session
from tests.example_project.conftest import StartGateway, relay_rows
from tests.example_project.test_gateway import call
from tests.working import work

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("shop")]


@pytest.fixture
def sms() -> Iterator[LineStore]:
    session = Session(get_client("consume"))
    found = open_store(get_config().queue("sms"), session)
    assert isinstance(found, LineStore)
    yield found
    session.release()


def notify(number: int) -> Notification:
    buyer = {"phone": f"+49151{number}", "email": "ada@example.org"}
    order = Order.objects.create(cart=Cart.objects.create(), name="Ada", total=Decimal("25.00"), **buyer)
    return Notification.objects.create(order=order)


def test_the_limit_is_below_what_the_gateway_takes() -> None:
    limits = get_config().queue("sms").limits
    assert limits.rate is not None
    assert limits.rate.count * 2 <= 20
    assert limits.rate.window == timedelta(seconds=1)
    assert set(example_settings.QUEUES) == {"default", "emails", "notifications", "sms", "imports"}


def test_a_rush_of_sms_never_makes_the_gateway_refuse_one(
    shop: Settings, start_gateway: StartGateway, sms: LineStore
) -> None:
    shop.GATEWAY_URL = url = start_gateway()
    shop.GATEWAY_TIMEOUT = timedelta(seconds=10)
    for number in range(12):
        cascade.start(notify(number))
    relay_rows()
    done: list[Any] = []
    while len(done) < 12:
        threading.Event().wait(sms.rest())
        done += work("sms")
    assert call(url, "GET", "/") == (200, {"sms 202": 12})
