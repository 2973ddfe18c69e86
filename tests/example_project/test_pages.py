from decimal import Decimal

import pytest
import redis
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from example_project.ledger.models import Accepted
from example_project.shop import ordering
from example_project.shop.models import Cart, Notification, NotificationStep, Order, Product
from tests.conftest import MQSettings
from tests.example_project.conftest import Ready

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("shop")]

BUYER = {"name": "Ada", "email": "ada@example.org", "phone": "+49151", "device": "telephone-1"}


@pytest.fixture
def mug() -> Product:
    return Product.objects.create(name="Enamel mug", slug="mug", price=Decimal("12.50"), picture="mug")


def add(client: Client, product: Product, quantity: object = 2) -> int:
    return client.post(reverse("shop:add", args=[product.slug]), {"quantity": quantity}).status_code


def test_the_catalogue_shows_what_is_for_sale(client: Client, mug: Product) -> None:
    page = client.get("/").content.decode()
    assert "Enamel mug" in page
    assert "12.50 EUR" in page
    assert "Enamel mug" in client.get("/products/mug/").content.decode()


def test_what_is_added_is_in_the_cart_of_that_visitor_alone(client: Client, mug: Product) -> None:
    assert add(client, mug, 2) == 302
    assert add(client, mug, 1) == 302
    page = client.get("/cart/").content.decode()
    assert "37.50" in page
    assert '<span class="count">3</span>' in page
    assert "It is empty" in Client().get("/cart/").content.decode()


@pytest.mark.parametrize("quantity", ["0", "-1", "100", "many", ""])
def test_a_quantity_that_cannot_be_is_said_so(client: Client, mug: Product, quantity: str) -> None:
    assert add(client, mug, quantity) == 422
    assert not Cart.objects.exists()


def test_an_emptied_cart_is_gone(client: Client, mug: Product) -> None:
    add(client, mug)
    client.post("/cart/empty/")
    assert not Cart.objects.exists()
    assert "It is empty" in client.get("/cart/").content.decode()


def test_pages_that_change_something_refuse_get(client: Client, mug: Product) -> None:
    for path in ("/products/mug/add/", "/cart/keep/", "/cart/empty/"):
        assert client.get(path).status_code == 405


def test_a_form_from_elsewhere_is_refused(mug: Product) -> None:
    client = Client(enforce_csrf_checks=True)
    assert add(client, mug) == 403
    assert not Cart.objects.exists()


def test_checking_out_without_a_cart_leads_to_the_cart(client: Client) -> None:
    response = client.post("/checkout/", BUYER)
    assert response.headers["Location"] == "/cart/"
    assert not Order.objects.exists()


def test_an_order_is_in_the_database_and_its_messages_in_their_queues(
    client: Client, mug: Product, ready: Ready
) -> None:
    add(client, mug)
    response = client.post("/checkout/", BUYER)

    order = Order.objects.get()
    assert response.headers["Location"] == order.get_absolute_url()
    assert order.total == Decimal("25.00")
    (push,) = ready("notifications")
    assert (push.name, push.data) == ("push", {"notification": order.notification.pk})
    (receipt,) = ready("emails")
    assert receipt.data["args"] == [order.pk]
    assert set(Accepted.objects.values_list("message_id", flat=True)) == {push.id, receipt.id}


def test_an_order_that_fails_leaves_neither_rows_nor_messages(
    client: Client, mug: Product, ready: Ready, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(order: Order) -> None:
        raise RuntimeError("the printer is on fire")

    add(client, mug)
    monkeypatch.setattr(ordering, "request_receipt", fail)
    with pytest.raises(RuntimeError):
        client.post("/checkout/", BUYER)

    assert not Order.objects.exists()
    assert not Accepted.objects.exists()
    assert ready("notifications") == ready("emails") == []


def test_a_cart_is_ordered_once(client: Client, mug: Product) -> None:
    add(client, mug)
    client.post("/checkout/", BUYER)
    response = client.post("/checkout/", BUYER)
    assert response.headers["Location"] == "/cart/"
    assert Order.objects.count() == 1


def test_an_order_with_a_wrong_address_is_not_placed(client: Client, mug: Product) -> None:
    add(client, mug)
    assert client.post("/checkout/", {**BUYER, "email": "nobody"}).status_code == 422
    assert not Order.objects.exists()


def test_an_order_is_placed_also_while_redis_is_away(
    client: Client, mug: Product, mq_settings: MQSettings, caplog: pytest.LogCaptureFixture
) -> None:
    add(client, mug)
    mq_settings(
        CONNECTION="unix:///nonexistent/redis", QUEUES={"emails": {}, "notifications": {}}, TOPICS={"orders": {}}
    )
    page = client.post("/checkout/", BUYER, follow=True).content.decode()
    assert "its confirmation may be late" in page
    assert Order.objects.count() == 1
    assert "published nothing" in caplog.text


def test_the_order_page_shows_how_its_buyer_was_told(client: Client, mug: Product) -> None:
    cart = Cart.objects.create()
    order = Order.objects.create(cart=cart, name="Ada", email="ada@example.org", total=1)
    notification = Notification.objects.create(order=order)
    NotificationStep.objects.create(
        notification=notification, channel="push", outcome="refused", detail="410 <gone>", attempt=1
    )
    page = client.get(order.get_absolute_url()).content.decode()
    assert "refused for good" in page
    assert "410 &lt;gone&gt;" in page
    assert "on its way" in page


def test_the_admin_shows_orders_and_mails_missing_receipts(
    admin_client: Client, ready: Ready, settings: Settings
) -> None:
    order = Order.objects.create(cart=Cart.objects.create(), name="Ada", email="ada@example.org", total=1)
    Notification.objects.create(order=order)
    assert "ada@example.org" in admin_client.get("/admin/shop/order/").content.decode()

    admin_client.post("/admin/shop/order/", {"action": "send_receipts", "_selected_action": [order.pk]})

    (receipt,) = ready("emails")
    assert receipt.data["args"] == [order.pk]


def test_nothing_is_left_in_redis_by_looking(
    client: Client, mug: Product, redis_client: redis.Redis, namespace: str
) -> None:
    for path in ("/", "/products/mug/", "/cart/", "/checkout/"):
        client.get(path)
    assert list(redis_client.scan_iter(match=f"{namespace}:*")) == []
