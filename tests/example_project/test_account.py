from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
import redis
from django.db import transaction
from django.utils import timezone

from example_project.demo import account, watch
from example_project.demo.outage import Away
from example_project.ledger import book
from example_project.office.models import Invoice, Sale
from example_project.office.suppliers import upload_list
from example_project.office.workflows import mail_summary, start_import
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


def test_it_tells_how_far_imports_are_and_that_there_was_no_outage() -> None:
    report = account.report(account.settle())
    assert "\nImports     none; prices: 0\n" in report
    assert "\nOutage      none: Redis was not stopped\n" in report
    start_import([upload_list()])
    assert "\nImports     running after 0 of 1 steps; prices: 0\n" in account.report(account.settle())


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


def test_an_order_with_two_invoices_is_told() -> None:
    for _ in range(2):
        Invoice.objects.create(order_id=7, name="Ada", total=Decimal("8.50"))
    report = account.report(account.settle())
    assert "\nDoubled     1\n  2 invoices for order 7\n" in report


def test_orders_that_were_placed_while_redis_was_away_are_counted_with_their_invoices() -> None:
    before, during, billed = (order(number) for number in range(3))
    since = timezone.now()
    Order.objects.filter(pk=before.pk).update(placed_at=since - timedelta(seconds=1))
    Order.objects.exclude(pk=before.pk).update(placed_at=since + timedelta(seconds=1))
    for each in (before, billed):
        Invoice.objects.create(order_id=each.pk, name="Ada", total=each.total)

    found = account.settle(Away(since=since, until=since + timedelta(seconds=3), failures=0))

    assert (found.placed_meanwhile, found.billed_once) == (2, 1)
    line = "Outage      Redis was away for 3.0 s; orders placed meanwhile: 2, of which billed once: 1; failed visits: 0"
    assert line in account.report(found)
    assert during.pk != billed.pk


def test_a_message_handled_twice_is_counted_once_and_told() -> None:
    message_id = publish("default")
    handle(message_id)
    handle(message_id, attempt=2)
    found = account.settle()
    assert (found.handled, found.repeated) == (1, 1)


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


def test_leaving_a_shared_redis_takes_the_keys_along(redis_client: redis.Redis, namespace: str) -> None:
    publish("default")
    publish("emails", delay=60)
    redis_client.set(f"{namespace}2:other", "1")
    watch.forget_all()
    try:
        assert list(redis_client.scan_iter(match=f"{namespace}*")) == [f"{namespace}2:other".encode()]
    finally:
        redis_client.delete(f"{namespace}2:other")
