"""A handler is idempotent if a second delivery, also after a crash, leaves what one delivery leaves."""

import pytest
from asgiref.sync import async_to_sync
from django.core import mail
from django.core.exceptions import SynchronousOnlyOperation
from django.core.mail import send_mail
from django.db import IntegrityError, transaction

from mq_django import RetryPolicy, handler, queues, subscriber, topics
from mq_django.errors import TestKitError
from mq_django.inspector import actions
from mq_django.testing.idempotence import assert_idempotent
from mq_django.testing.looking import messages
from mq_django.testing.published import message
from mq_django.testing.runs import run
from tests.seeding import publish
from tests.testapp import tasks
from tests.testapp.models import Cart, Order, Tag, Ticket

pytestmark = [pytest.mark.usefixtures("handlers"), pytest.mark.django_db]


def difference(function, given=None, **options):
    """Return the text of the error."""
    with pytest.raises(AssertionError) as caught:
        assert_idempotent(function, given, **options)
    return str(caught.value)


class TestAnIdempotentHandler:
    def test_nothing_is_left(self):
        @handler("emails", "greet")
        def greet(message):
            Tag.objects.create(name="x")
            send_mail("Welcome", "", None, ["ann@shop.example"])
            queues["default"].publish("greeted", 1)

        Tag.objects.create(name="before")
        send_mail("Before", "", None, ["ann@shop.example"])
        outbox = mail.outbox
        ready, delayed = publish("emails", "greet", 1), publish("emails", "greet", 1, delay=60)
        difference(greet)
        assert [tag.name for tag in Tag.objects.all()] == ["before"]
        assert mail.outbox is outbox
        assert [each.subject for each in outbox] == ["Before"]
        assert [(each.message.id, each.state) for each in messages("emails")] == [
            (ready, "ready"),
            (delayed, "delayed"),
        ]
        assert messages("default") == []

    def test_each_delivery_has_the_same_id_and_time(self):
        @handler("emails", "note")
        def note(message):
            Tag.objects.get_or_create(name=f"{message.id} {message.published_ms}")

        assert_idempotent(note)

    def test_a_row_that_is_made_anew_may_get_another_key(self):
        @handler("emails", "sum up")
        def sum_up(message):
            Cart.objects.all().delete()
            cart = Cart.objects.create(owner="ann")
            cart.tags.add(Tag.objects.get_or_create(name="x")[0])
            Order.objects.create(cart=cart)

        @handler("emails", "ticket")
        def ticket(message):
            Ticket.objects.all().delete()
            Ticket.objects.create()

        assert_idempotent(sum_up, ignore=["testapp.Order"])
        assert_idempotent(ticket)

    def test_a_change_of_a_row_may_be_repeated(self):
        Tag.objects.create(pk=1, name="old")

        @handler("emails", "rename")
        async def rename(message):
            await Tag.objects.filter(pk=1).aupdate(name="new")

        assert_idempotent(rename)

    def test_one_that_can_be_tried_only_once_runs_again_after_a_crash(self):
        @handler("emails", "once", retry=RetryPolicy(max_attempts=1))
        def once(message):
            Tag.objects.get_or_create(name="x")

        assert_idempotent(once)


class TestADifference:
    def test_of_a_mail_before_the_row_that_remembers_it(self):
        @handler("emails", "welcome")
        def welcome(message):
            send_mail("Welcome", "", None, [message.data])
            Tag.objects.get_or_create(name=message.data)

        assert difference(welcome, "ann@shop.example").splitlines() == [
            f"{welcome.__module__}.{welcome.__qualname__} is not idempotent. In comparison with one run:",
            "- run twice:",
            "  1 mail too many: 'Welcome' to ann@shop.example",
            "- a crash before the on-commit hooks, then a second run:",
            "  1 mail too many: 'Welcome' to ann@shop.example",
            "- a crash after the effect, then a second run:",
            "  1 mail too many: 'Welcome' to ann@shop.example",
        ]

    def test_of_a_message_that_is_lost_with_the_hooks(self):
        @handler("emails", "pay")
        def pay(message):
            with transaction.atomic():
                _, is_new = Tag.objects.get_or_create(name="paid")
                if is_new:
                    queues["default"].publish("receipt", {"b": 1, "a": 2}, key="k")

        assert difference(pay).splitlines()[1:] == [
            "- a crash before the on-commit hooks, then a second run:",
            """  1 message too few: 'receipt' in 'default' with {"a": 2, "b": 1} and the key 'k'""",
        ]

    def test_of_rows_that_were_there(self):
        for pk in (1, 2):
            Tag.objects.create(pk=pk, name="x")

        @handler("emails", "change")
        def change(message):
            tag = Tag.objects.order_by("pk").first()
            Tag.objects.filter(pk=tag.pk).update(name=tag.name + "x")
            if tag.name == "xx":
                tag.delete()

        text = difference(change)
        assert "- run twice:\n  the row 1 of testapp.Tag is missing\n" in text

    def test_of_the_outcome(self):
        @handler("emails", "create")
        def create(message):
            Tag.objects.create(pk=7, name="x")

        text = difference(create)
        assert "the second run ends as Retry: django.db.utils.IntegrityError" in text
        assert "not Ack" in text

    def test_names_only_the_first_ones(self):
        @handler("emails", "fill")
        def fill(message):
            for number in range(15):
                Tag.objects.create(name=str(number))

        assert "\n  and 5 more" in difference(fill)

    def test_is_not_looked_for_in_what_is_ignored(self):
        @handler("emails", "log")
        def log(message):
            Tag.objects.create(name="log")
            Cart.objects.update(owner=str(Tag.objects.count()))

        Cart.objects.create(pk=1)
        assert "testapp.Tag" not in difference(log, ignore=["testapp.Tag"])
        assert_idempotent(log, ignore=["testapp.Tag", "testapp.Cart.owner"])


class TestWhatIsChecked:
    def test_a_message(self):
        found = set()

        @handler("emails", "note")
        def note(message):
            found.add((message.id, message.data, message.key, message.headers["a"], message.priority))

        assert_idempotent(note, message("note", 1, key="k", headers={"a": "b"}, priority=3, message_id="m1"))
        assert found == {("m1", 1, "k", "b", 3)}

    def test_the_one_of_several_names_that_the_message_has(self):
        @handler("emails", "second")
        @handler("default", "first")
        def note(message):
            Tag.objects.get_or_create(name=f"{message.queue} {message.name}")

        assert_idempotent(note, message("second"))
        with pytest.raises(TestKitError, match=r"handles first in default, second in emails: name one of them"):
            assert_idempotent(note, 1)

    def test_a_subscriber(self, mq_settings):
        mq_settings(TOPICS={"orders": {}})

        @subscriber("orders", group="billing")
        def bill(message):
            Tag.objects.create(name=f"{message.queue} {message.name}")

        assert "1 row of testapp.Tag too many: name='orders:billing paid'" in difference(bill, message("paid", 7))
        with pytest.raises(TestKitError, match=r"handles all names in orders:billing: name one"):
            assert_idempotent(bill, 7)
        assert topics["orders"].groups() == []

    def test_a_task(self):
        tasks.ran.clear()
        assert_idempotent(tasks.send_receipt, {"order_id": 7, "copies": 2})
        assert_idempotent(tasks.shout, ["hello"])
        with pytest.raises(TestKitError, match="cannot be called so"):
            assert_idempotent(tasks.shout, ["hello", 2, 3])
        with pytest.raises(TestKitError, match="takes a list of positional arguments"):
            assert_idempotent(tasks.shout, "hello")

    @pytest.mark.parametrize("options", [{"RATE_LIMIT": "1/h"}, {"CONCURRENCY": 1}, {"STORE": "rsmq"}])
    def test_a_handler_of_each_kind_of_queue(self, mq_settings, namespace, options):
        mq_settings(QUEUES={"emails": {**options, **({"NAMESPACE": f"{namespace}:r"} if "STORE" in options else {})}})

        @handler("emails", "note")
        def note(message):
            publish("emails", "note", 2)
            Tag.objects.create(name=str(message.data))

        text = difference(note, 1)
        assert text.count("1 row of testapp.Tag too many: name='1'") == 3
        assert text.count("1 message too many: 'note' in 'emails' with 2") == 3


@pytest.mark.django_db(databases=["default", "other"])
def test_rows_of_each_database_of_the_test_are_compared():
    Tag.objects.using("other").count()

    @handler("emails", "note")
    def note(message):
        Tag.objects.using("other").create(name="x")

    assert "1 row of testapp.Tag in database 'other' too many: name='x'" in difference(note)
    assert Tag.objects.using("other").count() == 0


def test_an_error_of_the_first_run_is_raised():
    error = IntegrityError("no")

    @handler("emails", "fail")
    def fail(message):
        Tag.objects.create(name="x")
        raise error

    with pytest.raises(IntegrityError) as caught:
        assert_idempotent(fail)
    assert caught.value is error
    assert Tag.objects.count() == 0


def test_a_message_that_has_expired_is_an_error_of_the_test():
    note = handler("emails", "note")(lambda message: None)
    expired = message("note")._replace(expires_ms=1)
    with pytest.raises(TestKitError, match="may have expired"):
        assert_idempotent(note, expired)


def test_a_paused_queue_is_paused_again_afterwards():
    note = handler("emails", "note")(lambda message: Tag.objects.create(name="x"))
    actions.pause("emails")
    assert "run twice" in difference(note)
    publish("emails", "note")
    assert run() == []


@pytest.mark.django_db(transaction=True)
def test_outside_of_a_transaction_it_says_what_is_needed():
    note = handler("emails", "note")(lambda message: None)
    with pytest.raises(TestKitError, match=r"TestCase or of pytest\.mark\.django_db"):
        assert_idempotent(note)


def test_another_function_is_refused():
    with pytest.raises(TestKitError, match="is no task, and no function of a handler or subscriber"):
        assert_idempotent(publish)


def test_what_is_ignored_must_exist(subtests):
    for name in ["Tag", "testapp.Nothing", "testapp.Tag.nothing", "a.b.c.d"]:
        with subtests.test(name=name):
            note = handler("emails", "note")(lambda message: None)
            with pytest.raises(TestKitError, match=r"ignore= has models such as 'shop\.Order'"):
                assert_idempotent(note, ignore=[name])


def test_on_an_event_loop_it_says_what_to_await():
    async def check():
        assert_idempotent(publish)

    with pytest.raises(SynchronousOnlyOperation, match=r"await sync_to_async\(mq\.assert_idempotent\)"):
        async_to_sync(check)()
