"""Who leaves a cart alone gets one reminder, an hour after its last change."""

import pytest
from django.core.mail import EmailMessage
from django.db import transaction
from django.test import Client

from example_project.ledger.models import Handled
from example_project.shop.models import Cart, Order, Product
from example_project.shop.triggers import remind
from example_project.tests.conftest import PlaceOrder
from mq_django.testing import MQ

pytestmark = pytest.mark.django_db

Mails = list[EmailMessage]


@pytest.fixture
def visitor(mq: MQ, client: Client, mug: Product) -> Client:
    """A visitor with a mug in the cart who has left an address."""
    client.post("/products/mug/add/", {"quantity": 1})
    client.post("/cart/keep/", {"email": "ada@example.org"})
    mq.commit()
    return client


def test_a_forgotten_cart_is_reminded_of_after_an_hour(mq: MQ, visitor: Client, mailoutbox: Mails) -> None:
    mq.advance(minutes=59)
    assert mq.run("emails") == []

    mq.advance(minutes=1)
    mq.run()

    (mail,) = mailoutbox
    assert mail.to == ["ada@example.org"]
    assert "1 x Enamel mug" in mail.body


def test_a_cart_without_an_address_has_no_reminder(mq: MQ, client: Client, mug: Product) -> None:
    client.post("/products/mug/add/", {"quantity": 1})
    mq.commit()
    mq.assert_nothing_published()


def test_a_cart_with_an_address_has_one_reminder(mq: MQ, visitor: Client) -> None:
    mq.assert_published("emails", task=remind, unique=f"cart:{Cart.objects.get().pk}")
    assert len(mq.delayed) == 1


def test_a_change_of_the_cart_starts_the_hour_anew(mq: MQ, visitor: Client, mailoutbox: Mails) -> None:
    mq.advance(minutes=50)
    visitor.post("/products/mug/add/", {"quantity": 1})
    mq.commit()
    assert len(mq.delayed) == 1

    mq.advance(minutes=50)
    assert mq.run("emails") == []
    mq.advance(minutes=10)
    mq.run()
    assert len(mailoutbox) == 1


def test_an_order_cancels_the_reminder(mq: MQ, visitor: Client) -> None:
    visitor.post("/checkout/", {"name": "Ada", "email": "ada@example.org"})
    mq.commit()
    assert Order.objects.exists()
    assert mq.delayed == []


def test_emptying_the_cart_cancels_the_reminder(mq: MQ, visitor: Client) -> None:
    visitor.post("/cart/empty/")
    mq.commit()
    assert mq.delayed == []


def test_a_cart_that_was_rolled_back_gets_no_reminder(mq: MQ) -> None:
    with transaction.atomic():
        Cart.objects.create(email="ada@example.org")
        transaction.set_rollback(True)
    mq.commit()
    mq.assert_nothing_published()


def test_a_cart_is_reminded_of_once(mq: MQ, cart: Cart, mailoutbox: Mails) -> None:
    for _ in range(2):
        remind.enqueue(cart.pk)
    mq.commit()
    mq.run()
    assert len(mailoutbox) == 1


def test_an_ordered_cart_is_not_reminded_of(mq: MQ, cart: Cart, save_order: PlaceOrder, mailoutbox: Mails) -> None:
    save_order(cart)
    remind.enqueue(cart.pk)
    mq.commit()
    mq.run()
    assert mailoutbox == []


def test_a_cart_without_an_address_and_one_that_is_gone_need_no_mail(mq: MQ, mailoutbox: Mails) -> None:
    remind.enqueue(Cart.objects.create().pk)
    remind.enqueue(4711)
    mq.commit()
    mq.run()
    assert mailoutbox == []
    assert Handled.objects.count() == 2
