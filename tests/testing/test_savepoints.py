"""In the transaction of a test, handlers run as if each statement were committed."""

import pytest
from asgiref.sync import async_to_sync
from django.db import DatabaseError, IntegrityError, connection, transaction

from mq_django import Ack, Retry, handler, queues
from tests.seeding import publish
from tests.testapp.models import Tag
from tests.working import arun, run

pytestmark = pytest.mark.usefixtures("handlers")


@pytest.fixture
def handles():
    """Return a function that runs a function as the handler of one message, and returns what came of it."""

    def run_as_handler(function, **options):
        handler("emails", "change")(function)
        publish("emails", "change")
        (handled,) = run("emails", **options)
        return handled

    return run_as_handler


def tags():
    return sorted(Tag.objects.values_list("name", flat=True))


def clash():
    """Break a constraint at once."""
    Tag.objects.create(pk=1, name="first")
    Tag.objects.create(pk=1, name="second")


@pytest.mark.django_db
class TestInTheTransactionOfATest:
    def test_changes_before_an_exception_stay_as_they_would_be_committed(self, handles):
        def change(message):
            Tag.objects.create(name="x")
            raise ValueError("no")

        assert isinstance(handles(change).outcome, Retry)
        assert tags() == ["x"]

    def test_an_error_of_the_database_leaves_the_connection_usable(self, handles):
        Tag.objects.create(name="of the test")
        handled = handles(lambda message: clash())
        assert isinstance(handled.exception, IntegrityError)
        assert tags() == ["of the test"]
        assert connection.needs_rollback is False

    def test_an_error_that_the_handler_has_caught_is_rolled_back_with_a_warning(self, handles, caplog):
        def change(message):
            with pytest.raises(IntegrityError):
                clash()

        assert isinstance(handles(change).outcome, Ack)
        assert tags() == []
        assert "all its changes are rolled back in the transaction of this test" in caplog.text

    def test_a_savepoint_that_the_server_does_not_release_is_rolled_back(self, handles, monkeypatch):
        """PostgreSQL refuses that after a failed statement which the handler has caught."""
        release, refused = connection.savepoint_commit, []

        def refuse_once(savepoint):
            if not refused:
                refused.append(savepoint)
                raise DatabaseError("current transaction is aborted")
            release(savepoint)

        def change(message):
            Tag.objects.create(name="x")
            monkeypatch.setattr(connection, "savepoint_commit", refuse_once)

        assert isinstance(handles(change).outcome, Ack)
        assert (len(refused), tags()) == (1, [])

    def test_a_block_may_be_durable(self, handles):
        def change(message):
            with transaction.atomic(durable=True):
                Tag.objects.create(name="x")

        assert isinstance(handles(change).outcome, Ack)
        assert tags() == ["x"]

    def test_a_transaction_that_is_left_open_is_rolled_back_and_the_message_retried(self, handles):
        Tag.objects.create(name="of the test")
        depth = len(connection.atomic_blocks)

        def change(message):
            transaction.atomic().__enter__()
            Tag.objects.create(name="x")

        handled = handles(change)
        assert isinstance(handled.outcome, Retry)
        assert "left a transaction in database 'default'" in handled.error
        assert (tags(), len(connection.atomic_blocks)) == (["of the test"], depth)

    def test_a_coroutine_function_changes_the_database_of_the_test(self, handles):
        async def change(message):
            await Tag.objects.acreate(name=await Tag.objects.values_list("name", flat=True).aget())

        Tag.objects.create(name="x")
        assert isinstance(handles(change).outcome, Ack)
        assert tags() == ["x", "x"]

    def test_an_asynchronous_test_sees_the_changes_too(self):
        @handler("emails", "change")
        async def change(message):
            await Tag.objects.acreate(name="x")

        async def test():
            await queues["emails"].apublish("change", None, on_commit=False)
            handled = await arun("emails")
            return handled, await Tag.objects.acount()

        handled, count = async_to_sync(test)()
        assert ([type(each.outcome) for each in handled], count) == ([Ack], 1)
        assert tags() == ["x"]


@pytest.mark.django_db
class TestHooks:
    def test_they_run_right_after_the_handler_in_their_order(self, handles):
        events = []

        def change(message):
            with transaction.atomic():
                transaction.on_commit(lambda: events.append("first"))
            transaction.on_commit(lambda: transaction.on_commit(lambda: events.append("of the second")))
            transaction.on_commit(lambda: events.append("third"))
            events.append("handler")

        handles(change)
        assert events == ["handler", "first", "of the second", "third"]
        assert connection.run_on_commit == []

    def test_those_of_the_test_wait(self, handles):
        events = []
        transaction.on_commit(lambda: events.append("of the test"))
        handles(lambda message: transaction.on_commit(lambda: events.append("of the handler")))
        assert events == ["of the handler"]
        ((_, hook, _),) = connection.run_on_commit
        hook()
        assert events == ["of the handler", "of the test"]

    def test_what_a_handler_publishes_at_its_commit_is_handled_in_the_same_run(self):
        @handler("emails", "first")
        def first(message):
            with transaction.atomic():
                queues["emails"].publish("second", None)

        handler("emails", "second")(lambda message: None)
        publish("emails", "first")
        assert [each.message.name for each in run()] == ["first", "second"]

    def test_those_of_a_block_that_is_rolled_back_never_run(self, handles):
        events = []

        def change(message):
            with transaction.atomic():
                transaction.on_commit(lambda: events.append("never"))
                raise ValueError("no")

        assert isinstance(handles(change).outcome, Retry)
        assert events == []

    def test_one_that_fails_fails_the_handler_and_drops_the_later_ones(self, handles):
        events = []

        def fail():
            raise ValueError("no")

        def change(message):
            transaction.on_commit(fail)
            transaction.on_commit(lambda: events.append("later"))

        handled = handles(change)
        assert isinstance(handled.exception, ValueError)
        assert (events, connection.run_on_commit) == ([], [])

    def test_a_robust_one_that_fails_is_logged(self, handles, caplog):
        events = []

        def fail():
            raise ValueError("no")

        def change(message):
            transaction.on_commit(fail, robust=True)
            transaction.on_commit(lambda: events.append("later"))

        assert isinstance(handles(change).outcome, Ack)
        assert events == ["later"]
        assert "after the commit" in caplog.text

    def test_one_that_breaks_the_transaction_leaves_the_changes_of_its_handler(self, handles):
        def change(message):
            Tag.objects.create(name="x")
            transaction.on_commit(clash)

        assert isinstance(handles(change).exception, IntegrityError)
        assert tags() == ["x"]


@pytest.mark.django_db(transaction=True)
def test_without_a_transaction_nothing_special_happens(handles):
    events = []

    def change(message):
        assert not connection.in_atomic_block
        transaction.on_commit(lambda: events.append("hook"))
        events.append("handler")
        with transaction.atomic(durable=True):
            Tag.objects.create(name="x")

    assert isinstance(handles(change).outcome, Ack)
    assert events == ["hook", "handler"]
    assert tags() == ["x"]


@pytest.mark.django_db(databases=["default", "other"])
def test_each_database_has_a_savepoint(handles):
    def change(message):
        Tag.objects.using("other").create(pk=1, name="x")
        Tag.objects.using("other").create(pk=1, name="y")

    assert isinstance(handles(change).exception, IntegrityError)
    assert Tag.objects.using("other").count() == 0
