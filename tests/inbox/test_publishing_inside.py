"""What a handler with `@exactly_once` publishes: through the outbox of its database."""

from functools import partial

import pytest
from django.db import transaction

from mq_django import exactly_once, handler, queues
from mq_django.core.messages import ACK, Bury, CancelResult, Retry
from mq_django.models import OutboxMessage
from mq_django.task_backend.compat import task_enqueued
from tests.hearing import hears
from tests.inbox.conftest import ALIAS
from tests.testapp.tasks import note
from tests.working import run

pytestmark = pytest.mark.usefixtures("handlers", "using")


def handled(function, raises=None):
    """Run a function as a handler, which then may raise, and return the outcome."""

    @handler("default", "n")
    @exactly_once(using=ALIAS)
    def call(message):
        function()
        if raises is not None:
            raise raises

    queues["default"].publish("n", 1)
    return run("default")[0].outcome


@pytest.fixture(autouse=True)
def rows(using, monkeypatch):
    """Return the destinations of the rows in the outbox, which no relay publishes."""
    monkeypatch.setattr("mq_django.outbox.insertion.notify", lambda _: None)
    found = OutboxMessage.objects.using(using)
    yield lambda: list(found.order_by("id").values_list("destination", flat=True))
    found.all().delete()


def test_a_publish_is_a_row_in_the_transaction_of_the_handler(depths, rows):
    ways = (
        lambda: queues["emails"].publish("m", 1),
        lambda: queues["emails"].publish("m", 1, using=ALIAS),
        lambda: queues["emails"].publish_many([("m", 1)]),
        lambda: note.using(queue_name="emails").enqueue(1, 2),
    )
    for count, publish in enumerate(ways, 1):
        assert handled(publish) == ACK
        assert rows() == ["emails"] * count
    assert depths("emails").depth == 0


def test_with_the_transaction_its_rows_are_rolled_back(rows):
    assert isinstance(handled(lambda: queues["emails"].publish("m", 1), ValueError("no")), Retry)
    assert rows() == []


def test_a_repeat_publishes_nothing_again(rows):
    handled(lambda: queues["emails"].publish("m", 1))
    queues["default"].publish("n", 1, message_id="twice")
    run("default")
    queues["default"].publish("n", 1, message_id="twice")
    assert run("default")[0].outcome == ACK
    assert rows() == ["emails", "emails"]


def test_a_task_is_announced_after_the_commit_of_the_handler(rows):
    enqueue = note.using(queue_name="emails").enqueue
    with hears(task_enqueued) as told:
        assert handled(lambda: (enqueue(1), told.append("enqueued"))) == ACK
        assert rows() == ["emails"]
        first, given = told
        assert (first, given["task_result"].args) == ("enqueued", [1])
        assert isinstance(handled(lambda: enqueue(2), ValueError("no")), Retry)
    assert len(told) == 2


def test_one_at_once_is_sent(depths, rows):
    assert handled(lambda: queues["emails"].publish("m", 1, on_commit=False)) == ACK
    assert depths("emails").depth == 1
    assert rows() == []


def test_an_on_commit_hook_may_publish(depths):
    """It is lost when the process ends before it runs."""
    assert handled(lambda: transaction.on_commit(lambda: queues["emails"].publish("m", 1), using=ALIAS)) == ACK
    assert depths("emails").depth == 1


def test_what_would_not_be_in_the_transaction_is_an_error(rows):
    for options in ({"outbox": False}, {"using": "other"}, {"using": "other", "outbox": True}):
        outcome = handled(lambda options=options: queues["emails"].publish("m", 1, **options))
        assert isinstance(outcome, Retry | Bury)
        assert "OutboxRequired" in outcome.error
        assert "on_commit=False" in outcome.error
    assert rows() == []


def test_a_queue_in_order_needs_the_option(mq_settings, depths, rows):
    mq_settings(QUEUES={"default": {}, "payments": {"ORDERED": True}})
    outcome = handled(lambda: queues["payments"].publish("m", 1, key="k"))
    assert "OutboxRequired" in outcome.error
    assert "set OUTBOX on queue 'payments'" in outcome.error
    assert "outbox=True" not in outcome.error
    assert handled(lambda: queues["payments"].publish("m", 1, key="k", on_commit=False)) == ACK
    assert depths("payments").depth == 1
    assert rows() == []


def test_a_row_of_the_handler_is_rescheduled_and_cancelled(mq_settings, rows):
    mq_settings(QUEUES={"default": {}, "emails": {"OUTBOX": True}})
    found = []

    def change():
        message_id = queues["emails"].publish("m", 1, delay=60)
        found.append(queues["emails"].reschedule(message_id, delay=90))
        found.append(queues["emails"].cancel(message_id))

    assert handled(change) == ACK
    assert found == [CancelResult.RESCHEDULED, CancelResult.CANCELLED]
    assert rows() == []


def test_what_waits_in_redis_is_changed_at_once_or_not_at_all():
    emails = queues["emails"]
    message_id = emails.publish("m", 1, delay=60)
    for change in (partial(emails.reschedule, delay=90), emails.cancel):
        outcome = handled(lambda change=change: change(message_id))
        assert f"OutboxRequired: A handler with @exactly_once on database '{ALIAS}' cannot" in outcome.error
        assert "publishes" not in outcome.error
        assert emails.find(message_id)
        assert handled(lambda change=change: change(message_id, on_commit=False)) == ACK
    assert not emails.find(message_id)
