"""Code under test waits for results of tasks."""

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from shop.models import Order
from shop.tasks import confirm

from mq_django import await_result, iter_results, wait_result
from mq_django.errors import CannotWait, WaitTimeout

pytestmark = pytest.mark.django_db


def enqueued():
    """Return the result of a task that a committed transaction has enqueued."""
    return confirm.using(on_commit=False).enqueue(7)


def test_what_is_ready_is_handled(mq):
    order = Order.objects.create(email="ann@shop.example")
    assert wait_result(confirm.using(on_commit=False).enqueue(order.pk), timeout=60).return_value == order.pk
    order.refresh_from_db()
    assert order.confirmed
    assert [each.return_value for each in iter_results([enqueued().id], timeout=60)] == [7]


def test_a_coroutine_waits(mq):
    assert async_to_sync(await_result)(enqueued(), timeout=60).return_value == 7


def test_what_is_not_due_is_a_timeout_at_once(mq):
    result = confirm.using(on_commit=False, delay=10).enqueue(7)
    with pytest.raises(WaitTimeout, match=r"it is not ready, and in a test .* mq\.advance\(\)"):
        wait_result(result, timeout=60)
    mq.advance(seconds=10)
    assert wait_result(result, timeout=60).return_value == 7


def test_the_transaction_commits_before(mq):
    with transaction.atomic():
        result = confirm.enqueue(7)
        with pytest.raises(CannotWait, match=r"call mq\.commit\(\)"):
            wait_result(result, timeout=60)
        mq.commit()
        assert wait_result(result, timeout=60).return_value == 7
