from decimal import Decimal
from pathlib import Path
from smtplib import SMTPRecipientsRefused
from types import SimpleNamespace

import pytest

from example_project.ledger.models import Handled
from example_project.shop.models import Cart, Notification, Order, OrderLine, Product
from example_project.shop.tasks import send_receipt
from example_project.shop.triggers import remind

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("shop")]

#: What a task is told about its attempt.
CONTEXT = SimpleNamespace(task_result=SimpleNamespace(id="m-1"), attempt=1)


@pytest.fixture
def cart() -> Cart:
    cart = Cart.objects.create(email="ada@example.org")
    cart.add(Product.objects.create(name="Enamel mug", slug="mug", price=Decimal("12.50")), 2)
    return cart


def order(cart: Cart, email: str = "ada@example.org") -> Order:
    placed = Order.objects.create(cart=cart, name="Ada", email=email, total=cart.total())
    Notification.objects.create(order=placed)
    for line in cart.lines.all():
        OrderLine.objects.create(order=placed, product=line.product, quantity=line.quantity, price=line.product.price)
    return placed


def mails(folder: Path) -> list[str]:
    return [mail.read_text() for mail in folder.iterdir()]


def test_a_receipt_says_what_was_bought(mail_folder: Path, cart: Cart) -> None:
    placed = order(cart)
    send_receipt.func(CONTEXT, placed.pk)

    (mail,) = mails(mail_folder)
    assert f"Subject: Receipt for order {placed.pk}" in mail
    assert "2 x Enamel mug at 12.50 EUR" in mail
    assert "Total: 25.00 EUR" in mail
    placed.refresh_from_db()
    assert placed.receipt_sent_at is not None


def test_a_receipt_that_comes_twice_is_mailed_once(mail_folder: Path, cart: Cart) -> None:
    placed = order(cart)
    send_receipt.func(CONTEXT, placed.pk)
    send_receipt.func(CONTEXT, placed.pk)
    assert len(mails(mail_folder)) == 1
    assert Handled.objects.filter(message_id="m-1").count() == 2


def test_a_receipt_that_is_refused_is_not_handled(mail_folder: Path, cart: Cart) -> None:
    placed = order(cart, "ada@nowhere.invalid")
    with pytest.raises(SMTPRecipientsRefused):
        send_receipt.func(CONTEXT, placed.pk)
    placed.refresh_from_db()
    assert placed.receipt_sent_at is None
    assert not Handled.objects.exists()
    assert mails(mail_folder) == []


def test_a_forgotten_cart_is_reminded_of_once(mail_folder: Path, cart: Cart) -> None:
    remind.func(CONTEXT, cart.pk)
    remind.func(CONTEXT, cart.pk)
    (mail,) = mails(mail_folder)
    assert "To: ada@example.org" in mail
    assert "2 x Enamel mug" in mail


def test_an_ordered_cart_is_not_reminded_of(mail_folder: Path, cart: Cart) -> None:
    order(cart)
    remind.func(CONTEXT, cart.pk)
    assert mails(mail_folder) == []


def test_a_cart_without_an_address_and_one_that_is_gone_need_no_mail(mail_folder: Path) -> None:
    remind.func(CONTEXT, Cart.objects.create().pk)
    remind.func(CONTEXT, 4711)
    assert mails(mail_folder) == []
    assert Handled.objects.count() == 2
