from decimal import Decimal
from typing import Any

import pytest
import redis
from django.db import transaction
from django.test import Client
from django.urls import reverse

from example_project.shop.models import Cart, Order, Product
from mq_django.core.keys import QueueKeys

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("shop")]

HOUR_MS = 3_600_000


@pytest.fixture
def mug() -> Product:
    return Product.objects.create(name="Enamel mug", slug="mug", price=Decimal("12.50"), picture="mug")


@pytest.fixture
def keys(namespace: str) -> QueueKeys:
    return QueueKeys(namespace, "emails")


def due(redis_client: redis.Redis, keys: QueueKeys) -> dict[bytes, float]:
    found: Any = redis_client.zrange(keys.due, 0, -1, withscores=True)
    return dict(found)


def now_ms(redis_client: redis.Redis) -> float:
    seconds, micros = redis_client.time()
    return float(seconds * 1000 + micros / 1000)


@pytest.fixture
def kept(client: Client, mug: Product) -> Client:
    """A visitor with a mug in the cart who left an address."""
    client.post(reverse("shop:add", args=["mug"]), {"quantity": 1})
    client.post(reverse("shop:keep"), {"email": "ada@example.org"})
    return client


def test_a_cart_with_an_address_gets_a_reminder_an_hour_later(
    client: Client, mug: Product, redis_client: redis.Redis, keys: QueueKeys
) -> None:
    client.post(reverse("shop:add", args=["mug"]), {"quantity": 1})
    assert due(redis_client, keys) == {}

    before = now_ms(redis_client)
    client.post(reverse("shop:keep"), {"email": "ada@example.org"})

    ((member, score),) = due(redis_client, keys).items()
    assert member == b"u:cart:%d" % Cart.objects.get().pk
    assert before + HOUR_MS - 1 <= score <= now_ms(redis_client) + HOUR_MS


def test_a_change_of_the_cart_starts_the_hour_anew_and_leaves_one_reminder(
    kept: Client, redis_client: redis.Redis, keys: QueueKeys
) -> None:
    (first,) = due(redis_client, keys).values()
    kept.post(reverse("shop:add", args=["mug"]), {"quantity": 1})
    (second,) = due(redis_client, keys).values()
    assert second > first
    assert redis_client.hlen(keys.waiting) == 1


def test_an_order_cancels_the_reminder(kept: Client, redis_client: redis.Redis, keys: QueueKeys) -> None:
    kept.post(reverse("shop:checkout"), {"name": "Ada", "email": "ada@example.org"})
    assert Order.objects.exists()
    assert due(redis_client, keys) == {}


def test_emptying_the_cart_cancels_the_reminder(kept: Client, redis_client: redis.Redis, keys: QueueKeys) -> None:
    kept.post(reverse("shop:empty"))
    assert due(redis_client, keys) == {}


def test_a_cart_that_was_rolled_back_gets_no_reminder(redis_client: redis.Redis, keys: QueueKeys) -> None:
    with transaction.atomic():
        Cart.objects.create(email="ada@example.org")
        transaction.set_rollback(True)
    assert due(redis_client, keys) == {}
