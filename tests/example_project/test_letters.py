"""What is awaited at a screen goes first, newsletters go last, and a code that is too old is not mailed."""

import re
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
import redis
from django.test import Client
from django.utils import timezone

from example_project.demo import account
from example_project.ledger import book
from example_project.shop import letters
from example_project.shop.models import Cart, Notification, Order
from example_project.shop.ordering import request_receipt
from example_project.shop.tasks import send_newsletter
from mq_django.core.keys import QueueKeys
from mq_django.core.redaction import is_secret
from tests.example_project.conftest import Ready
from tests.working import work

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("shop")]


def order(email: str, *, mailed: bool = True) -> Order:
    placed = Order.objects.create(cart=Cart.objects.create(), name="Ada", email=email, total=Decimal("25.00"))
    Notification.objects.create(order=placed)
    if mailed:
        Order.objects.filter(pk=placed.pk).update(receipt_sent_at=timezone.now())
    return placed


def mails(folder: Path) -> list[str]:
    return [mail.read_text() for mail in folder.iterdir()]


def test_what_somebody_waits_for_goes_first_and_newsletters_go_last(client: Client, admin_user: object) -> None:
    order("ada@example.org")
    send_newsletter.func()
    request_receipt(order("bela@example.org", mailed=False))
    client.post("/orders/find/", {"email": "ada@example.org"})
    client.post("/admin/password/", {"email": "admin@example.com"})
    names = [message.name.rpartition(".")[2] for message in work("emails")]
    assert names == ["code", "send_password_mail", "send_receipt", "newsletter"]


def test_a_code_shows_the_orders_of_its_address_once(client: Client, mail_folder: Path) -> None:
    mine, _ = order("ada@example.org"), order("bela@example.org")
    client.post("/orders/find/", {"email": "ada@example.org"})
    assert "Order" not in client.get("/orders/").content.decode().partition("<h1>")[2].partition("code")[0]
    work("emails")
    (mail,) = mails(mail_folder)
    found = re.search(r"Your code is (\d{6})", mail)
    assert found
    wrong = f"{(int(found[1]) + 1) % 10**6:06}"
    assert client.post("/orders/", {"code": wrong}).status_code == 422
    page = client.post("/orders/", {"code": found[1]}, follow=True).content.decode()
    assert str(mine) in page
    assert page.count("<li><a") == 1
    assert client.post("/orders/", {"code": found[1]}).status_code == 422


def test_a_code_that_is_too_old_is_neither_mailed_nor_lost(
    monkeypatch: pytest.MonkeyPatch, mail_folder: Path, redis_client: redis.Redis, namespace: str
) -> None:
    monkeypatch.setattr(letters, "CODE_LIFE", timedelta(seconds=-1))
    letters.request_code("ada@example.org")
    assert redis_client.xlen(QueueKeys(namespace, "emails").ready) == 1
    work("emails")
    assert mails(mail_folder) == []
    assert redis_client.xlen(QueueKeys(namespace, "emails").ready) == 0
    found = account.settle()
    assert (found.expired, found.handled, found.lost) == (1, 0, [])
    assert "Expired     1" in account.report(found)


def test_a_code_good_until_later_that_is_nowhere_is_lost(redis_client: redis.Redis, namespace: str) -> None:
    letters.request_code("ada@example.org")
    redis_client.delete(*redis_client.scan_iter(match=f"{namespace}:*"))
    assert len(account.settle().lost) == 1


def test_the_admin_does_not_show_a_code(ready: Ready) -> None:
    letters.request_code("ada@example.org")
    (message,) = ready("emails")
    assert [name for name in message.data if is_secret(name)] == ["otp"]


def test_a_forgotten_password_is_mailed_with_a_link_that_works(
    client: Client, mail_folder: Path, admin_user: object, ready: Ready
) -> None:
    assert "/admin/password/" in client.get("/admin/login/").content.decode()
    client.post("/admin/password/", {"email": "admin@example.com"})
    (message,) = ready("emails")
    assert message.data["args"] == ["admin@example.com", "testserver"]
    work("emails")
    (mail,) = mails(mail_folder)
    found = re.search(r"http://testserver(/admin/password/\S+)", mail)
    assert found
    assert "Enter new password" in client.get(found[1], follow=True).content.decode()
    assert book.balance().by_name == {"send_password_mail": 1}


def test_a_newsletter_goes_once_to_each_mailbox_that_exists(mail_folder: Path) -> None:
    for address in ("ada@example.org", "ada@example.org", "bela@example.org"):
        order(address)
    order("nobody@nowhere.invalid", mailed=False)
    assert send_newsletter.func() == 2
    work("emails")
    assert sorted(re.findall(r"^To: (.*)$", "\n".join(mails(mail_folder)), re.MULTILINE)) == [
        "ada@example.org",
        "bela@example.org",
    ]
