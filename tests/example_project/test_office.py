from decimal import Decimal

import pytest

from example_project.demo import account
from example_project.office import handlers
from example_project.office.models import Invoice, Sale, StockMove
from example_project.shop.models import Cart, Order, Product
from example_project.shop.ordering import announce, place_order
from mq_django import topics
from tests.working import work

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("shop")]

GROUPS = ("stock", "statistics", "bookkeeping")


def order() -> Order:
    cup = Product.objects.create(name="Cup", slug="cup", price=Decimal("8.50"), picture="cup")
    pot = Product.objects.create(name="Pot", slug="pot", price=Decimal("30.00"), picture="pot")
    cart = Cart.objects.create()
    cart.add(cup, 2)
    cart.add(pot)
    return place_order(Order(name="Ada", email="ada@example.org"), cart)


def test_each_department_reads_every_order() -> None:
    placed = order()
    for group in GROUPS:
        assert len(work(f"orders:{group}")) == 1
    assert [str(move) for move in StockMove.objects.order_by("product")] == [
        f"2 x cup for order {placed.pk}",
        f"1 x pot for order {placed.pk}",
    ]
    assert (Sale.objects.get().pieces, Sale.objects.get().total) == (3, Decimal("47.00"))
    assert Invoice.objects.get().name == "Ada"


def test_an_order_that_is_announced_again_is_there_once() -> None:
    announce(order())
    assert len(work("orders:stock")) == 1


def test_a_mended_department_reads_again_and_the_others_notice_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    order()
    for group in GROUPS:
        work(f"orders:{group}")
    # The bug: somebody counted orders, not pieces.
    Sale.objects.update(pieces=1)
    topics["orders"].group("statistics").seek("beginning")
    assert len(work("orders:statistics")) == 1
    assert Sale.objects.get().pieces == 3
    assert work("orders:stock") == work("orders:bookkeeping") == []
    assert Invoice.objects.count() == 1


def test_the_account_misses_what_a_department_lost() -> None:
    for group in GROUPS:
        topics["orders"].group(group).subscribe()
    placed = order()
    assert account.lost_orders() == []
    for group in GROUPS:
        work(f"orders:{group}")
    Sale.objects.all().delete()
    assert account.lost_orders() == [f"order {placed.pk} for statistics"]
    assert f"order {placed.pk} for statistics" in account.settle().lost


def test_handlers_bear_being_called_twice() -> None:
    order()
    for group in GROUPS:
        (message,) = work(f"orders:{group}")
        for handler in (handlers.take_from_shelves, handlers.count_sale, handlers.write_invoice):
            handler(message)
    assert (StockMove.objects.count(), Sale.objects.count(), Invoice.objects.count()) == (2, 1, 1)
