"""What the tests share: goods, orders, a gateway that does as the test says, and mailboxes that do not exist."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from threading import Thread

import django
import pytest
from django.utils import timezone
from pytest_django import Settings

from example_project.gateway.manners import Manners
from example_project.gateway.server import Gateway
from example_project.settings import MAIL_BACKEND
from example_project.shop.models import Cart, Notification, Order, OrderLine, Product

PlaceOrder = Callable[..., Order]


@pytest.fixture(autouse=True)
def _weak_passwords(settings: Settings) -> None:
    """Hash passwords at once: the usual hash takes longer than most of the tests, as it is meant to."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def mug(db: None) -> Product:
    return Product.objects.create(name="Enamel mug", slug="mug", price=Decimal("12.50"), picture="mug")


@pytest.fixture
def cart(mug: Product) -> Cart:
    """A cart with two mugs, and the address of its owner."""
    cart = Cart.objects.create(email="ada@example.org")
    cart.add(mug, 2)
    return cart


@pytest.fixture
def save_order(db: None) -> PlaceOrder:
    """Save an order that has published nothing: `save_order(email=..., is_mailed=True)`."""

    def save(cart: Cart | None = None, *, is_mailed: bool = False, **fields: str) -> Order:
        cart = cart or Cart.objects.create()
        buyer = {"name": "Ada", "email": "ada@example.org", **fields}
        order = Order.objects.create(
            cart=cart, total=cart.total(), receipt_sent_at=timezone.now() if is_mailed else None, **buyer
        )
        Notification.objects.create(order=order)
        for line in cart.lines.all():
            OrderLine.objects.create(
                order=order, product=line.product, quantity=line.quantity, price=line.product.price
            )
        return order

    return save


@pytest.fixture
def gateway(settings: Settings) -> Iterator[Gateway]:
    """The gateway in a thread. It takes everything, until a test gives it other manners."""
    with Gateway(manners=Manners(failing=0, slow=0, gone=0, unknown=0)) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        settings.GATEWAY_URL, settings.GATEWAY_TIMEOUT = server.url, timedelta(seconds=10)
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def mail_folder(settings: Settings, tmp_path: Path) -> Path:
    """Mails go to the project's own backend, which refuses some addresses, and not to Django's outbox."""
    if django.VERSION >= (6, 1):
        settings.MAILERS = {"default": {"BACKEND": MAIL_BACKEND, "OPTIONS": {"file_path": tmp_path}}}
    else:
        settings.EMAIL_BACKEND, settings.EMAIL_FILE_PATH = MAIL_BACKEND, tmp_path
    return tmp_path
