"""What is awaited at a screen goes first, newsletters go last, and a code that is too old is not mailed."""

import re

import pytest
from django.core.mail import EmailMessage
from django.test import Client

from example_project.ledger import book
from example_project.shop import letters
from example_project.shop.ordering import request_receipt
from example_project.shop.tasks import send_newsletter, send_password_mail
from example_project.tests.conftest import PlaceOrder
from mq_django.testing import MQ

pytestmark = pytest.mark.django_db

Mails = list[EmailMessage]


def test_what_somebody_waits_for_goes_first_and_newsletters_go_last(
    mq: MQ, client: Client, admin_user: object, save_order: PlaceOrder
) -> None:
    save_order(is_mailed=True)
    letters.publish_newsletters(["ada@example.org"])
    request_receipt(save_order(email="bela@example.org").pk)
    client.post("/orders/find/", {"email": "ada@example.org"})
    client.post("/admin/password/", {"email": "admin@example.com"})
    mq.commit()

    names = [handled.message.name.rpartition(".")[2] for handled in mq.run() if handled.message]

    assert names == ["code", "send_password_mail", "send_receipt", "newsletter"]


def test_a_code_shows_the_orders_of_its_address_once(
    mq: MQ, client: Client, save_order: PlaceOrder, mailoutbox: Mails
) -> None:
    mine, _ = save_order(), save_order(email="bela@example.org")
    client.post("/orders/find/", {"email": "ada@example.org"})
    assert "Order" not in client.get("/orders/").content.decode().partition("<h1>")[2].partition("code")[0]

    mq.commit()
    mq.run()

    found = re.search(r"Your code is (\d{6})", str(mailoutbox[0].body))
    assert found
    wrong = f"{(int(found[1]) + 1) % 10**6:06}"
    assert client.post("/orders/", {"code": wrong}).status_code == 422
    page = client.post("/orders/", {"code": found[1]}, follow=True).content.decode()
    assert str(mine) in page
    assert page.count("<li><a") == 1
    assert client.post("/orders/", {"code": found[1]}).status_code == 422


def test_a_code_that_is_too_old_is_not_mailed(mq: MQ, mailoutbox: Mails) -> None:
    letters.request_code("ada@example.org")
    mq.commit()

    mq.advance(letters.CODE_LIFE)
    mq.run("emails")

    assert mq.messages("emails") == []
    assert mailoutbox == []


def test_the_admin_does_not_show_a_code(mq: MQ, admin_client: Client) -> None:
    code = letters.request_code("ada@example.org")
    mq.commit()
    page = admin_client.get("/admin/mq_django/queue/emails/ready/").content.decode()
    assert "ada@example.org" in page
    assert code not in page


def test_a_forgotten_password_is_mailed_with_a_link_that_works(
    mq: MQ, client: Client, admin_user: object, mailoutbox: Mails
) -> None:
    assert "/admin/password/" in client.get("/admin/login/").content.decode()
    client.post("/admin/password/", {"email": "admin@example.com"})
    mq.commit()
    (message,) = mq.published(task=send_password_mail)
    assert message.args == ["admin@example.com", "testserver"]

    mq.run()

    found = re.search(r"http://testserver(/admin/password/\S+)", str(mailoutbox[0].body))
    assert found
    assert "Enter new password" in client.get(found[1], follow=True).content.decode()
    assert book.balance().by_name == {"send_password_mail": 1}


def test_a_newsletter_goes_once_to_each_mailbox_that_exists(mq: MQ, save_order: PlaceOrder, mailoutbox: Mails) -> None:
    for address in ("ada@example.org", "ada@example.org", "bela@example.org"):
        save_order(email=address, is_mailed=True)
    save_order(email="nobody@nowhere.invalid")
    send_newsletter.enqueue()
    mq.commit()

    mq.run()

    assert sorted(mail.to[0] for mail in mailoutbox) == ["ada@example.org", "bela@example.org"]
