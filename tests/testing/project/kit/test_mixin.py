"""The kit as tests of unittest and Django use it."""

from io import StringIO
from urllib.request import urlopen

from django.core.management import call_command
from django.db import transaction
from django.test import LiveServerTestCase, SimpleTestCase, TestCase, TransactionTestCase
from shop.handlers import emails
from shop.models import Order

from mq_django import LookupState, queues
from mq_django.errors import TestKitError
from mq_django.models import OutboxMessage
from mq_django.testing import MQTestMixin, including

ANN = {"email": "ann@shop.example"}


class InATransaction(MQTestMixin, TestCase):
    @classmethod
    def setUpTestData(cls):
        cls.order = Order.objects.create(email="ann@shop.example")
        emails.publish("welcome", ANN)  # for no test: otherwise it would be for the first one

    def test_a_view(self):
        self.client.post("/checkout/", ANN)
        self.assertEqual(len(self.mq.pending_commit), 3)
        self.mq.commit()
        self.mq.run()
        self.assertTrue(Order.objects.exclude(pk=self.order.pk).get().confirmed)

    def test_an_outbox_has_no_rows_of_the_class(self):
        emails.publish("welcome", ANN, outbox=True)
        self.assertEqual(len(self.mq.outbox), 1)
        self.mq.commit()
        self.assertEqual((len(self.mq.run()), self.mq.outbox), (1, []))

    def test_a_view_with_djangos_own_way(self):
        with self.captureOnCommitCallbacks(execute=True):
            self.client.post("/checkout/", ANN)
        self.assertEqual(len(self.mq.run()), 3)

    def test_subtests(self):
        for number in range(2):
            with self.subTest(number=number):
                emails.publish("welcome", ANN, on_commit=False)
        self.assertEqual(len(self.mq.run()), 2)


class WithRowsOfTheClass(MQTestMixin, TestCase):
    @classmethod
    def setUpTestData(cls):
        cls.message_id = queues["ordered"].publish("welcome", 1, key="ann")

    def test_they_hold_up_no_row_of_their_key(self):
        queues["ordered"].publish("welcome", 2, key="ann")
        self.mq.commit()
        self.assertEqual([record.data for record in self.mq.published("ordered")], [2])
        self.assertEqual(self.mq.outbox, [])
        self.assertEqual(OutboxMessage.objects.get(message_id=self.message_id).batch, None)

    def test_they_are_found_without_a_look_at_other_databases(self):
        """Django's command runs this in a project with two, of which this class may use one."""
        self.assertEqual(queues["ordered"].find(self.message_id).state, LookupState.OUTBOX)
        self.assertEqual(queues["ordered"].find("m1").state, LookupState.NOT_WAITING)
        call_command("mq", "outbox", "--set-aside", stdout=StringIO())


class WithOwnSetUp(MQTestMixin, TestCase):
    def setUp(self):
        emails.publish("welcome", ANN, on_commit=False)

    def test_the_kit_is_there_before_it(self):
        self.assertEqual(len(self.mq.published("emails")), 1)


class Committing(MQTestMixin, TransactionTestCase):
    def test_commits_are_real(self):
        with transaction.atomic():
            emails.publish("welcome", ANN)
            self.assertEqual(self.mq.published(), [])
        self.assertEqual(len(self.mq.run()), 1)


class Immediately(MQTestMixin, TestCase):
    def test_what_is_committed_has_run(self):
        with self.mq.running(), self.captureOnCommitCallbacks(execute=True):
            self.client.post("/checkout/", ANN)
            self.assertFalse(Order.objects.get().confirmed)
        self.assertTrue(Order.objects.get().confirmed)
        self.mq.assert_published("emails", data=including(email="ann@shop.example"))
        self.mq.assert_published("emails", data=including(email="bob@shop.example"), count=0)

    def test_what_follows_in_the_same_commit_is_not_said_to_wait_for_it(self):
        with self.assertNoLogs("mq_django"), self.mq.running(), self.captureOnCommitCallbacks(execute=True):
            emails.publish("welcome", ANN, delay=60)
            emails.publish("welcome", ANN)
        self.assertEqual(self.mq.messages("emails"), self.mq.delayed)

    def test_an_error_of_a_handler_is_raised_at_the_end(self):
        with self.assertRaisesMessage(TestKitError, "no handler of 'nobody'"), self.mq.running():
            emails.publish("nobody", ANN, on_commit=False)
            emails.publish("welcome", ANN, on_commit=False)
        self.assertEqual([queued.message.name for queued in self.mq.messages("emails")], ["nobody"])


class ImmediatelyCommitting(MQTestMixin, TransactionTestCase):
    def setUp(self):
        self.enterContext(self.mq.running())

    def test_what_is_committed_has_run(self):
        self.client.post("/checkout/", ANN)
        self.assertTrue(Order.objects.get().confirmed)


class Live(MQTestMixin, LiveServerTestCase):
    def test_what_the_server_publishes_is_seen(self):
        urlopen(f"{self.live_server_url}/checkout/", data=b"email=ann@shop.example").read()
        self.assertEqual(len(self.mq.published()), 3)
        self.mq.run()
        self.assertTrue(Order.objects.get().confirmed)


class Simple(MQTestMixin, SimpleTestCase):
    def test_no_database_is_needed(self):
        emails.publish("welcome", ANN, on_commit=False)
        self.assertEqual(len(self.mq.messages("emails")), 1)


class AsyncInATransaction(MQTestMixin, TestCase):
    async def test_commit(self):
        await emails.apublish("welcome", ANN)
        self.assertEqual([found.name for found in self.mq.pending_commit], ["welcome"])
        with self.assertRaisesRegex(AssertionError, "will be at the commit"):
            self.mq.assert_nothing_published()
        self.assertEqual(await self.mq.acommit(), 1)
        self.assertEqual(len(await self.mq.arun()), 1)
