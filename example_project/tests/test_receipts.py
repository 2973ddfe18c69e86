"""Each order gets one receipt."""

from pathlib import Path

import pytest
from django.core.mail import EmailMessage
from django.test import Client

from example_project.ledger.models import Handled
from example_project.shop.models import Cart
from example_project.shop.ordering import request_receipt
from example_project.shop.tasks import send_receipt
from example_project.tests.conftest import PlaceOrder
from mq_django import Bury
from mq_django.testing import MQ

pytestmark = pytest.mark.django_db


def test_a_receipt_says_what_was_bought(
    mq: MQ, save_order: PlaceOrder, cart: Cart, mailoutbox: list[EmailMessage]
) -> None:
    order = save_order(cart)
    request_receipt(order.pk)
    mq.commit()

    mq.run()

    (mail,) = mailoutbox
    assert mail.subject == f"Receipt for order {order.pk}"
    assert "2 x Enamel mug at 12.50 EUR" in mail.body
    assert "Total: 25.00 EUR" in mail.body
    order.refresh_from_db()
    assert order.receipt_sent_at is not None


def test_a_receipt_that_is_requested_twice_is_mailed_once(
    mq: MQ, save_order: PlaceOrder, mailoutbox: list[EmailMessage]
) -> None:
    order = save_order()
    for _ in range(2):
        request_receipt(order.pk)
    mq.commit()

    assert len(mq.run()) == 2

    assert len(mailoutbox) == 1
    assert Handled.objects.count() == 2


def test_a_receipt_that_is_refused_is_a_dead_letter(mq: MQ, save_order: PlaceOrder, mail_folder: Path) -> None:
    order = save_order(email="ada@nowhere.invalid")
    request_receipt(order.pk)
    mq.commit()

    (handled,) = mq.run(raise_errors=False)

    assert isinstance(handled.outcome, Bury)
    assert mq.dead[0].error.startswith("smtplib.SMTPRecipientsRefused")
    order.refresh_from_db()
    assert order.receipt_sent_at is None
    assert not Handled.objects.exists()
    assert list(mail_folder.iterdir()) == []


def test_the_admin_shows_orders_and_mails_missing_receipts(
    mq: MQ, admin_client: Client, save_order: PlaceOrder
) -> None:
    order = save_order()
    assert "ada@example.org" in admin_client.get("/admin/shop/order/").content.decode()

    admin_client.post("/admin/shop/order/", {"action": "send_receipts", "_selected_action": [order.pk]})

    mq.commit()
    (receipt,) = mq.published("emails", task=send_receipt)
    assert receipt.args == [order.pk]
