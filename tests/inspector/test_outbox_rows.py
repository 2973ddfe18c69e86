"""The messages of an outbox, and what an operator does with those that were set aside."""

import pytest

from mq_django.inspector import outbox_views
from mq_django.models import OutboxMessage
from tests.outbox_rows import outbox_row, set_aside_row

pytestmark = [pytest.mark.usefixtures("mq_settings"), pytest.mark.django_db(databases="__all__")]


def ids(page):
    return [row.id for row in page.rows]


def states():
    return dict(OutboxMessage.objects.values_list("id", "batch"))


def test_pages_have_those_that_wait_or_those_that_were_set_aside_in_their_order():
    waiting, aside, claimed, other = outbox_row(), set_aside_row(), outbox_row(batch=3), outbox_row("orders")

    assert ids(outbox_views.page_of("default")) == [waiting.pk, claimed.pk, other.pk]
    assert ids(outbox_views.page_of("default", "emails")) == [waiting.pk, claimed.pk]
    assert ids(outbox_views.page_of("default", set_aside=True)) == [aside.pk]
    first = outbox_views.page_of("default", limit=2)
    assert (ids(first), first.after) == ([waiting.pk, claimed.pk], claimed.pk)
    last = outbox_views.page_of("default", after=first.after, limit=2)
    assert (ids(last), last.after) == ([other.pk], None)


def test_a_row_has_no_secrets():
    row = set_aside_row(error="Refused: redis://:hunter2@host/0", key="https://me:hunter2@host/", name="welcome")
    shown = outbox_views.get("default", row.pk)
    assert "hunter2" not in repr(shown)
    assert (shown.name, shown.destination, shown.is_claimed) == ("welcome", "emails", False)


def test_retrying_makes_rows_unclaimed_and_touches_no_others():
    waiting, first, second, other = outbox_row(batch=3), set_aside_row(), set_aside_row(), set_aside_row("orders")

    assert outbox_views.retry("default", [waiting.pk, first.pk]) == 1
    assert states() == {waiting.pk: 3, first.pk: None, second.pk: 0, other.pk: 0}
    first.refresh_from_db()
    assert (first.error, first.failed_ms) == ("", None)

    assert outbox_views.retry("default", destination="emails") == 1
    assert states() == {waiting.pk: 3, first.pk: None, second.pk: None, other.pk: 0}


def test_discarding_deletes_only_what_was_set_aside(monkeypatch):
    monkeypatch.setattr(outbox_views, "BATCH", 2)
    waiting, claimed = outbox_row(), outbox_row(batch=3)
    aside = [set_aside_row() for _ in range(5)]

    assert outbox_views.discard("default", [aside[0].pk, waiting.pk, claimed.pk]) == 1
    assert outbox_views.discard("default") == 4
    assert states() == {waiting.pk: None, claimed.pk: 3}
