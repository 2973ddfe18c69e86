from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
import redis
from django.db import transaction

from example_project.demo import account, watch
from example_project.ledger import book
from example_project.office.models import Sale
from example_project.office.workflows import mail_summary
from example_project.shop import letters
from example_project.shop.models import Cart, Order, Product
from example_project.shop.ordering import place_order
from mq_django import Message, queues, topics
from mq_django.workflows import chain
from tests.example_project.conftest import relay_rows
from tests.working import work

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("shop")]


def publish(queue: str, **options: Any) -> str:
    """Publish a message as the shop does: with a line in the ledger."""
    with transaction.atomic():
        message_id = queues[queue].publish("test", {"n": 1}, **options)
        book.accept(message_id, queue=queue, name="test")
    relay_rows()
    return message_id


def order(number: int) -> Order:
    """Save an order that has published nothing."""
    return Order.objects.create(
        cart=Cart.objects.create(), name="Ada", email=f"ada.{number}@example.org", total=Decimal("8.50")
    )


def handle(message_id: str, *, attempt: int = 1) -> None:
    book.handle(Message(id=message_id, name="test", data=None, queue="default", attempt=attempt))


def test_a_step_of_a_workflow_is_not_taken_for_a_reminder(redis_client: redis.Redis, namespace: str) -> None:
    cart = Cart.objects.create(email="ada@example.org")
    relay_rows()
    redis_client.delete(*redis_client.scan_iter(match=f"{namespace}:*"))
    chain((mail_summary, {"lines": 1, "changed": 1})).start()
    assert account.settle().lost == [f"reminder of cart {cart.pk}"]


def test_what_is_handled_or_in_a_queue_is_not_lost() -> None:
    handle(publish("default"))
    publish("emails")
    publish("notifications", delay=3600)

    found = account.settle()

    assert (found.accepted, found.handled, found.remaining, found.lost) == (3, 1, {"ready": 1, "delayed": 1}, [])


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_what_is_in_the_outbox_is_not_lost() -> None:
    with transaction.atomic():
        message_id = queues["emails"].publish("test", None)
        book.accept(message_id, queue="emails", name="test")
    found = account.settle()
    assert (found.accepted, found.remaining, found.lost) == (1, {"in the outbox": 1}, [])
    assert watch.is_busy()


def test_a_forgotten_cart_without_a_reminder_is_lost(redis_client: redis.Redis, namespace: str) -> None:
    Cart.objects.create()
    cart = Cart.objects.create(email="ada@example.org")
    assert account.settle().lost == []
    relay_rows()
    assert account.settle().lost == []
    redis_client.delete(*redis_client.scan_iter(match=f"{namespace}:*"))
    assert account.settle().lost == [f"reminder of cart {cart.pk}"]


def test_a_code_that_is_too_old_is_neither_handled_nor_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "CODE_LIFE", timedelta(seconds=-1))
    letters.request_code("ada@example.org")
    relay_rows()
    work("emails")
    found = account.settle()
    assert (found.expired, found.handled, found.lost) == (1, 0, [])
    assert "Expired     1" in account.report(found)


def test_the_account_misses_what_a_department_lost() -> None:
    groups = ("stock", "statistics", "bookkeeping")
    for group in groups:
        topics["orders"].group(group).subscribe()
    cart = Cart.objects.create()
    cart.add(Product.objects.create(name="Cup", slug="cup", price=Decimal("8.50"), picture="cup"))
    placed = place_order(Order(name="Ada", email="ada@example.org"), cart)
    assert account.lost_orders() == []
    relay_rows()
    assert account.lost_orders() == []
    for group in groups:
        work(f"orders:{group}")
    Sale.objects.all().delete()
    assert account.lost_orders() == [f"order {placed.pk} for statistics"]
    assert f"order {placed.pk} for statistics" in account.settle().lost


def test_what_is_nowhere_is_lost_and_named(redis_client: redis.Redis, namespace: str) -> None:
    message_id = publish("emails")
    letters.request_code("ada@example.org")
    relay_rows()
    redis_client.delete(*redis_client.scan_iter(match=f"{namespace}:*"))
    found = account.settle()
    assert f"emails/test {message_id}" in found.lost
    assert len(found.lost) == 2
    report = account.report(found)
    assert "Lost        2\n" in report
    assert f"emails/test {message_id}" in report
