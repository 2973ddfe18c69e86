"""The pages of the shop, and what an order publishes."""

from collections.abc import Callable

import pytest
from django.core.mail import EmailMessage
from django.test import Client

from example_project.gateway.server import Gateway
from example_project.ledger.models import Accepted
from example_project.office.models import Invoice
from example_project.shop import ordering
from example_project.shop.models import Cart, NotificationStep, Order, Product
from example_project.tests.conftest import PlaceOrder
from mq_django.testing import MQ

pytestmark = pytest.mark.django_db

BUYER = {"name": "Ada", "email": "ada@example.org", "phone": "+49151", "device": "telephone-1"}

Add = Callable[..., int]


@pytest.fixture
def add(client: Client, mug: Product) -> Add:
    """Put mugs into the cart, and return the status of the response."""
    return lambda quantity=2: client.post("/products/mug/add/", {"quantity": quantity}).status_code


def test_the_catalogue_shows_what_is_for_sale(client: Client, mug: Product) -> None:
    page = client.get("/").content.decode()
    assert "Enamel mug" in page
    assert "12.50 EUR" in page
    assert "Enamel mug" in client.get("/products/mug/").content.decode()


def test_what_is_added_is_in_the_cart_of_that_visitor_alone(client: Client, add: Add) -> None:
    assert add(2) == 302
    assert add(1) == 302
    page = client.get("/cart/").content.decode()
    assert "37.50" in page
    assert '<span class="count">3</span>' in page
    assert "It is empty" in Client().get("/cart/").content.decode()


@pytest.mark.parametrize("quantity", ["0", "-1", "100", "many", ""])
def test_a_quantity_that_cannot_be_is_said_so(add: Add, quantity: str) -> None:
    assert add(quantity) == 422
    assert not Cart.objects.exists()


def test_an_emptied_cart_is_gone(client: Client, add: Add) -> None:
    add()
    client.post("/cart/empty/")
    assert not Cart.objects.exists()
    assert "It is empty" in client.get("/cart/").content.decode()


def test_pages_that_change_something_refuse_get(client: Client, mug: Product) -> None:
    for path in ("/products/mug/add/", "/cart/keep/", "/cart/empty/"):
        assert client.get(path).status_code == 405


def test_checking_out_without_a_cart_leads_to_the_cart(client: Client) -> None:
    response = client.post("/checkout/", BUYER)
    assert response.headers["Location"] == "/cart/"
    assert not Order.objects.exists()


def test_an_order_publishes_its_confirmation_and_the_news(mq: MQ, client: Client, add: Add) -> None:
    add()
    response = client.post("/checkout/", BUYER)
    order = Order.objects.get()
    assert response.headers["Location"] == order.get_absolute_url()
    assert str(order.total) == "25.00"

    mq.commit()
    (push,) = mq.published("notifications", "push", data={"notification": order.notification.pk})
    mq.assert_published("orders", "order.placed", key=f"order:{order.pk}", count=1)
    assert Accepted.objects.get().message_id == push.id


def test_a_buyer_is_notified_and_gets_a_receipt(
    mq: MQ, client: Client, add: Add, gateway: Gateway, mailoutbox: list[EmailMessage]
) -> None:
    add()
    page = client.post("/checkout/", BUYER).headers["Location"]
    assert "on its way" in client.get(page).content.decode()

    mq.commit()
    mq.run()

    assert gateway.outbox.summary() == {"push 202": 1}
    assert [mail.subject for mail in mailoutbox] == [f"Receipt for order {Order.objects.get().pk}"]
    assert "Push" in client.get(page).content.decode()


def test_an_order_that_fails_leaves_neither_rows_nor_messages(
    mq: MQ, client: Client, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(order: Order) -> None:
        raise RuntimeError("the printer is on fire")

    add()
    monkeypatch.setattr(ordering, "announce", fail)
    with pytest.raises(RuntimeError):
        client.post("/checkout/", BUYER)

    mq.commit()
    mq.assert_nothing_published()
    assert not Order.objects.exists()
    assert not Accepted.objects.exists()


def test_a_cart_is_ordered_once(client: Client, add: Add) -> None:
    add()
    client.post("/checkout/", BUYER)
    response = client.post("/checkout/", BUYER)
    assert response.headers["Location"] == "/cart/"
    assert Order.objects.count() == 1


def test_an_order_with_a_wrong_address_is_not_placed(client: Client, add: Add) -> None:
    add()
    assert client.post("/checkout/", {**BUYER, "email": "nobody"}).status_code == 422
    assert not Order.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_an_order_that_is_placed_while_redis_is_down_arrives_when_it_is_back(
    mq: MQ, client: Client, add: Add, gateway: Gateway, mailoutbox: list[EmailMessage]
) -> None:
    add()
    with mq.redis_down():
        page = client.post("/checkout/", BUYER)
        assert page.status_code == 302
    order = Order.objects.get()
    assert [message.name for message in mq.outbox] == ["push", "order.placed"]

    mq.run()

    assert gateway.outbox.summary() == {"push 202": 1}
    assert Invoice.objects.get().order_id == order.pk
    assert [mail.subject for mail in mailoutbox] == [f"Receipt for order {order.pk}"]


def test_pages_that_only_show_something_need_no_redis(mq: MQ, client: Client, mug: Product) -> None:
    with mq.redis_down():
        for path in ("/", "/products/mug/", "/cart/", "/checkout/"):
            assert client.get(path).status_code in (200, 302)


def test_the_order_page_shows_how_its_buyer_was_notified(client: Client, save_order: PlaceOrder) -> None:
    order = save_order()
    NotificationStep.objects.create(
        notification=order.notification, channel="push", outcome="refused", detail="410 <gone>", attempt=1
    )
    page = client.get(order.get_absolute_url()).content.decode()
    assert "refused for good" in page
    assert "410 &lt;gone&gt;" in page
    assert "on its way" in page
