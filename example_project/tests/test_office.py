"""Three departments read every order, and a report is written each night. `manage.py test` runs these, too."""

from decimal import Decimal

from django.test import TestCase

from example_project.office.handlers import count_sale, take_from_shelves, write_invoice
from example_project.office.models import Invoice, Price, PriceList, Report, Sale, StockMove
from example_project.office.tasks import import_prices, write_report
from example_project.shop.models import Cart, Order, Product
from example_project.shop.ordering import announce, place_order
from mq_django import get_progress, topics
from mq_django.testing import MQTestMixin

GROUPS = {"stock", "statistics", "bookkeeping"}


class DepartmentTests(MQTestMixin, TestCase):
    def setUp(self) -> None:
        cup = Product.objects.create(name="Cup", slug="cup", price=Decimal("8.50"), picture="cup")
        pot = Product.objects.create(name="Pot", slug="pot", price=Decimal("30.00"), picture="pot")
        cart = Cart.objects.create()
        cart.add(cup, 2)
        cart.add(pot)
        self.order = place_order(Order(name="Ada", email="ada@example.org"), cart)
        self.mq.commit()

    def test_each_department_reads_every_order(self) -> None:
        self.assertEqual(len(self.mq.run("orders")), 3)
        self.assertEqual(
            [str(move) for move in StockMove.objects.order_by("product")],
            [f"2 x cup for order {self.order.pk}", f"1 x pot for order {self.order.pk}"],
        )
        self.assertEqual((Sale.objects.get().pieces, Sale.objects.get().total), (3, Decimal("47.00")))
        self.assertEqual(Invoice.objects.get().name, "Ada")
        self.assertEqual(self.mq.topic("orders").groups, dict.fromkeys(GROUPS, 0))

    def test_an_order_that_is_announced_again_is_there_once(self) -> None:
        announce(self.order)
        self.mq.commit()
        self.assertEqual(len(self.mq.topic("orders").messages), 1)
        self.assertEqual(len(self.mq.run("orders:stock")), 1)

    def test_a_department_reads_again_after_a_bug_and_the_others_notice_nothing(self) -> None:
        self.mq.run("orders")
        # The bug: orders were counted, not pieces.
        Sale.objects.update(pieces=1)

        topics["orders"].group("statistics").seek("beginning")
        (handled,) = self.mq.run("orders")

        self.assertEqual(handled.message.queue if handled.message else "", "orders:statistics")
        self.assertEqual(Sale.objects.get().pieces, 3)
        self.assertEqual(Invoice.objects.count(), 1)

    def test_handlers_may_be_called_twice(self) -> None:
        (handled,) = self.mq.run("orders:stock")
        assert handled.message is not None
        for _ in range(2):
            for handler in (take_from_shelves, count_sale, write_invoice):
                handler(handled.message)
        self.assertEqual((StockMove.objects.count(), Sale.objects.count(), Invoice.objects.count()), (2, 1, 1))


class ReportTests(MQTestMixin, TestCase):
    def test_the_report_is_written_once_a_night(self) -> None:
        Sale.objects.create(order_id=1, pieces=2, total=Decimal("25.00"))

        # The longest day, when summer time ends.
        self.mq.advance(hours=25)
        self.mq.run("default")

        self.mq.assert_published("default", task=write_report, count=1)
        report = Report.objects.get()
        self.assertEqual((report.orders, report.total, report.edition), (1, Decimal("25.00"), 1))


class PriceTests(MQTestMixin, TestCase):
    def test_a_list_is_imported_and_tells_how_far_it_is(self) -> None:
        prices = PriceList.objects.create(supplier="Bone China Ltd")
        for number in range(3):
            prices.lines.create(product=f"cup {number}", price=Decimal(number))

        result = import_prices.enqueue(prices.pk)
        self.mq.commit()
        self.mq.run("default")

        self.assertEqual([str(price) for price in Price.objects.order_by("product")][-1], "cup 2: 2.00 EUR")
        found = get_progress(result)
        self.assertEqual((found.done, found.total, found.note) if found else None, (3, 3, "cup 2"))
        prices.refresh_from_db()
        self.assertIsNotNone(prices.imported)
