"""Three departments read every order, and a report is written each night. `manage.py test` runs these, too."""

from decimal import Decimal
from unittest.mock import patch

from django.contrib.auth import get_user_model
from django.core import mail
from django.test import TestCase
from django.urls import reverse

from example_project.office.handlers import count_sales, take_from_shelves, write_invoice
from example_project.office.models import Invoice, Price, PriceImport, PriceList, Report, Sale, StockMove
from example_project.office.suppliers import upload_list
from example_project.office.tasks import import_prices, start_nightly_import, write_report
from example_project.office.workflows import CHUNK, import_price_lists, start_import
from example_project.shop.goods import ADMIN_NAME, appoint_admin
from example_project.shop.models import Cart, Order, Product
from example_project.shop.ordering import announce, place_order
from example_project.shop.tasks import send_receipt
from mq_django import get_progress, topics
from mq_django.testing import MQTestMixin

GROUPS = {"stock", "statistics", "bookkeeping"}
#: Of a price list: enough for steps that run side by side.
LINES = 3 * CHUNK


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
            take_from_shelves(handled.message)
            # Also with an order that comes twice in a list.
            count_sales([handled.message, handled.message])
        self.assertEqual((StockMove.objects.count(), Sale.objects.count()), (2, 1))

    def test_bookkeeping_writes_one_invoice_and_sends_one_receipt_however_often_an_order_comes(self) -> None:
        self.mq.run("orders:bookkeeping")
        topics["orders"].group("bookkeeping").seek("beginning")
        self.assertEqual(len(self.mq.run("orders:bookkeeping")), 1)

        self.assertEqual(Invoice.objects.get().order_id, self.order.pk)
        self.mq.assert_published("emails", task=send_receipt, count=1)

    def test_a_crash_while_an_invoice_is_written_leaves_nothing_or_all_of_it(self) -> None:
        order = {"order_id": self.order.pk, "name": "Ada", "total": "47.00"}
        self.mq.assert_idempotent(write_invoice, order, ignore=["ledger.Accepted"])


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


class ImportTests(MQTestMixin, TestCase):
    def setUp(self) -> None:
        self.prices = upload_list(LINES)

    def test_new_lists_are_imported_at_night(self) -> None:
        self.mq.advance(hours=25)
        self.mq.run()

        run = self.mq.workflows.get(import_price_lists)
        self.assertEqual(run.state, "succeeded")
        self.assertEqual(run.progress.done, LINES // CHUNK + 3)
        self.assertEqual(Price.objects.count(), LINES)
        self.assertEqual(mail.outbox[0].body, f"{LINES} lines, {LINES} new prices.")
        self.prices.refresh_from_db()
        self.assertIsNotNone(self.prices.imported)

        # The next night there is nothing to do.
        start_nightly_import.enqueue()
        self.mq.commit()
        self.mq.run()
        self.assertEqual(len(self.mq.workflows), 1)

    def test_one_import_runs_at_a_time(self) -> None:
        for _ in range(2):
            start_import([self.prices])
        self.mq.commit()
        (run,) = self.mq.workflows
        self.assertEqual(PriceImport.objects.get().run, run.id)

    def test_a_failed_import_is_reported_and_goes_on_when_it_is_retried(self) -> None:
        start_import([self.prices])
        self.mq.commit()
        with patch("example_project.office.workflows.apply_line", side_effect=ValueError):
            self.mq.run_until_idle(raise_errors=False)

        run = self.mq.workflows.get(state="failed")
        self.assertIn(reverse("admin:mq_django_queue_workflow_run", args=[run.id]), mail.outbox[0].body)
        self.assertEqual(PriceList.objects.get().imported, None)

        self.assertGreater(run.retry(), 0)
        self.mq.run_until_idle()
        self.assertEqual(run.state, "succeeded")
        self.assertEqual(len(mail.outbox), 2)

    def test_a_step_may_run_twice(self) -> None:
        start_import([self.prices])
        self.mq.commit()
        self.mq.run("default")
        self.mq.crash_at("after_effect", "imports")
        self.mq.run()
        self.assertEqual(self.mq.workflows.get().state, "succeeded")
        self.assertEqual(Price.objects.count(), LINES)


class ImportPageTests(MQTestMixin, TestCase):
    LISTS, START, STATE = (
        reverse(f"admin:office_pricelist_{name}") for name in ("changelist", "import", "import_state")
    )

    def setUp(self) -> None:
        appoint_admin()
        self.client.force_login(get_user_model().objects.get(username=ADMIN_NAME))

    def test_the_button_starts_an_import_and_the_page_shows_how_far_it_is(self) -> None:
        upload_list(LINES)
        page = self.client.get(self.LISTS)
        self.assertContains(page, f'action="{self.START}"')
        self.assertContains(page, "No import was started")
        self.assertEqual(self.client.get(self.STATE).json(), {})

        self.client.post(self.START)
        self.mq.commit()
        self.mq.run("default")
        (run,) = self.mq.workflows
        page = self.client.get(self.LISTS)
        self.assertContains(page, "data-is-running")
        self.assertContains(page, reverse("admin:mq_django_queue_workflow_run", args=[run.id]))

        self.mq.run()
        state = self.client.get(self.STATE).json()
        total = LINES // CHUNK + 3
        self.assertEqual((state["state"], state["done"], state["total"]), ("succeeded", total, total))
        self.assertNotContains(self.client.get(self.LISTS), "data-is-running")

    def test_without_lists_nothing_is_started(self) -> None:
        self.assertContains(self.client.post(self.START, follow=True), "There is no price list.")
        self.assertEqual(self.mq.workflows, [])

    def test_the_page_does_without_redis(self) -> None:
        start_import([upload_list(LINES)])
        self.mq.commit()
        with self.mq.redis_down():
            self.assertContains(self.client.get(self.LISTS), "unknown")

    def test_only_who_may_change_lists_starts_an_import(self) -> None:
        get_user_model().objects.update(is_superuser=False)
        self.assertEqual(self.client.post(self.START).status_code, 403)
        self.assertEqual(self.client.get(self.STATE).status_code, 403)
        self.assertEqual(self.client.get(self.START).status_code, 405)
