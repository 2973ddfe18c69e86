from typing import Any

import pytest
import redis
from django.db import transaction

from example_project.demo import account, watch
from example_project.ledger import book
from example_project.shop.models import Cart
from mq_django import Message, queues

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("shop")]


def publish(queue: str, **options: Any) -> str:
    """Publish a message as the shop does: with a line in the ledger."""
    with transaction.atomic():
        message_id = queues[queue].publish("test", {"n": 1}, **options)
        book.accept(message_id, queue=queue, name="test")
    return message_id


def handle(message_id: str, *, attempt: int = 1) -> None:
    book.handle(Message(id=message_id, name="test", data=None, queue="default", attempt=attempt))


def test_what_is_handled_or_in_a_queue_is_not_lost() -> None:
    handle(publish("default"))
    publish("emails")
    publish("notifications", delay=3600)

    found = account.settle()

    assert (found.accepted, found.handled, found.remaining, found.lost) == (3, 1, {"ready": 1, "delayed": 1}, [])


def test_what_is_nowhere_is_lost(redis_client: redis.Redis, namespace: str) -> None:
    message_id = publish("emails")
    redis_client.delete(*redis_client.scan_iter(match=f"{namespace}:*"))
    assert account.settle().lost == [f"emails/test {message_id}"]


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
    redis_client.delete(*redis_client.scan_iter(match=f"{namespace}:*"))
    assert account.settle().lost == [f"reminder of cart {cart.pk}"]


def test_the_report_names_what_was_lost(redis_client: redis.Redis, namespace: str) -> None:
    message_id = publish("emails")
    redis_client.delete(*redis_client.scan_iter(match=f"{namespace}:*"))
    report = account.report(account.settle())
    assert "Lost        1\n" in report
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
