"""Idempotence in a project."""

import pytest
from django.test import TestCase
from shop.handlers import count, emails, welcome
from shop.models import Order

from mq_django import exactly_once, handler, queues
from mq_django.testing import MQTestMixin
from mq_django.transport.connections import get_client

ANN = {"email": "ann@shop.example"}
clocks = set()


@handler("emails", "look")
def look(message):
    clocks.add(get_client("chores", "").get("mq:testing:clock"))
    Order.objects.get_or_create(email=message.data)
    emails.publish("welcome", ANN)


@pytest.mark.django_db
def test_the_time_stays_and_the_runs_are_not_recorded(mq):
    emails.publish("welcome", ANN, on_commit=False)
    mq.advance(hours=1)
    with pytest.raises(AssertionError, match="1 message too many: 'welcome' in 'emails'"):
        mq.assert_idempotent(look, "ann@shop.example")
    assert len(clocks) == 1
    assert None not in clocks
    assert len(mq.published()) == 1
    assert len(mq.run()) == 1


@handler("emails", "note")
@exactly_once
def note(message):
    Order.objects.create(email=message.data)
    emails.publish("welcome", ANN)


@pytest.mark.django_db
def test_what_is_published_exactly_once_may_wait_for_a_relay_after_a_crash(mq):
    mq.assert_idempotent(note, "ann@shop.example")


@handler("emails", "keep")
@exactly_once
def keep(message):
    queues["kept"].publish("welcome", ANN)


@handler("emails", "keep twice")
def keep_twice(message):
    queues["kept"].publish("welcome", ANN)


@pytest.mark.django_db
def test_rows_that_are_kept_are_compared_as_published_messages(mq):
    mq.assert_idempotent(keep, None)
    with pytest.raises(AssertionError, match="1 message too many: 'welcome' in 'kept'"):
        mq.assert_idempotent(keep_twice, None)


class CountTests(MQTestMixin, TestCase):
    def test_a_subscriber(self):
        order = Order.objects.create(email="ann@shop.example")
        self.mq.assert_idempotent(count, self.mq.message("order.placed", {"order": order.pk}))


def test_a_test_without_a_database(mq):
    from mq_django.errors import TestKitError

    with pytest.raises(TestKitError, match="this test is in none"):
        mq.assert_idempotent(welcome, ANN)
