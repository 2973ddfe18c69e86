"""What the outboxes have, and their problems."""

import pytest
from django.db import connection

from mq_django import inspector
from mq_django.core.project import Thresholds
from mq_django.inspector.outbox_views import outboxes
from tests.outbox_rows import lose_tables, outbox_row, set_aside_row

pytestmark = [pytest.mark.usefixtures("mq_settings"), pytest.mark.django_db(databases="__all__")]


@pytest.fixture(autouse=True)
def emails(mq_settings):
    mq_settings(QUEUES={"default": {}, "emails": {"OUTBOX": True}}, TOPICS={"orders": {}})


def kinds(*names, **options):
    return [(problem.queue, problem.kind) for problem in inspector.problems(*names, **options)]


def test_what_waits_and_what_was_set_aside_is_counted_by_destination():
    outbox_row(age=30)
    outbox_row(age=10, batch=7)
    set_aside_row()
    outbox_row("orders")

    emails, orders = outboxes()

    assert (emails.waiting, emails.set_aside) == (2, 1)
    assert 30_000 <= emails.waited_ms < 60_000
    assert (orders.destination, orders.waiting, orders.set_aside) == ("orders", 1, 0)
    assert emails.problems() == ["set aside"]


def test_a_destination_that_is_no_text_is_listed_like_others():
    """SQLite keeps bytes in a column of text."""
    outbox_row()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE mq_django_outbox SET destination = X'FF'")
    assert [(view.destination, view.waiting) for view in outboxes()] == [("emails", 0), ("\ufffd", 1)]


def test_a_message_that_waits_too_long_is_a_problem(mq_settings):
    outbox_row(age=90)
    (problem,) = inspector.problems()
    assert (problem.queue, problem.kind, problem.threshold) == ("emails", "outbox", 60)
    assert 90 <= problem.figure < 120
    said = "emails has 1 message in its outbox, which has waited for "
    assert problem.sentence.startswith(tuple(f"{said}{seconds} s" for seconds in range(90, 120)))

    assert inspector.problems(thresholds=Thresholds(max_outbox_age=None)) == []
    mq_settings(THRESHOLDS={"MAX_OUTBOX_AGE": 200})
    assert inspector.problems() == []


def test_problems_are_those_of_the_queues_that_are_asked_for():
    set_aside_row()
    set_aside_row("orders")

    assert kinds() == [("emails", "outbox"), ("orders", "outbox")]
    assert kinds("emails") == [("emails", "outbox")]
    assert kinds("orders:billing") == [("orders", "outbox")]
    assert kinds("default") == []
    assert kinds(ignore=["outbox"]) == []


def test_a_page_counts_a_bounded_number_of_rows():
    for _ in range(4):
        outbox_row()

    (few,), (all_of_them,) = outboxes(at_most=3), outboxes(at_most=None)

    assert (few.waiting, few.is_more) == (3, True)
    assert (all_of_them.waiting, all_of_them.is_more) == (4, False)


def test_a_database_that_cannot_be_read_is_a_problem_and_leaves_the_transaction_usable():
    lose_tables()
    view, _ = outboxes()
    assert view.problems() == ["unreadable"]
    assert "no such table: mq_django_outbox" in view.error
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    # It concerns the queues that have an outbox, and no others.
    assert kinds("emails") == [("default", "outbox"), ("other", "outbox")]
    assert kinds("default") == []


def test_nothing_is_asked_of_the_database_while_no_queue_has_an_outbox(mq_settings, django_assert_num_queries):
    mq_settings(QUEUES={"default": {}})
    with django_assert_num_queries(0):
        assert inspector.problems() == []
