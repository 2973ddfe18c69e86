"""A buyer is notified by push, else by SMS, else by e-mail."""

from dataclasses import replace
from pathlib import Path

import pytest
from django.core.mail import EmailMessage

from example_project.gateway.server import Gateway, Outbox
from example_project.ledger import book
from example_project.ledger.models import Accepted, Handled
from example_project.shop import cascade
from example_project.shop.models import Notification
from example_project.tests.conftest import PlaceOrder
from mq_django import Ack, Bury, Retry, queues
from mq_django.testing import MQ

pytestmark = pytest.mark.django_db


@pytest.fixture
def notification(save_order: PlaceOrder) -> Notification:
    """The confirmation of an order of somebody who can be reached in every way."""
    return save_order(phone="+49151", device="telephone-1").notification


def steps(notification: Notification) -> list[tuple[str, str]]:
    return list(notification.steps.values_list("channel", "outcome"))


def start(mq: MQ, notification: Notification) -> None:
    cascade.start(notification)
    mq.commit()


@pytest.mark.parametrize(
    ("addresses", "queue", "first"),
    [
        ({"device": "telephone-1", "phone": "+49151"}, "notifications", "push"),
        ({"phone": "+49151"}, "sms", "sms"),
        ({}, "notifications", "email"),
    ],
)
def test_the_cascade_starts_with_the_best_address_there_is(
    mq: MQ, save_order: PlaceOrder, addresses: dict[str, str], queue: str, first: str
) -> None:
    start(mq, save_order(**addresses).notification)
    (message,) = mq.published()
    assert (message.queue, message.name) == (queue, first)
    assert Accepted.objects.get().message_id == message.id


def test_a_push_that_arrives_ends_the_cascade(mq: MQ, gateway: Gateway, notification: Notification) -> None:
    start(mq, notification)

    (handled,) = mq.run()

    assert steps(notification) == [("push", "delivered")]
    notification.refresh_from_db()
    assert notification.delivered_at is not None
    assert gateway.outbox.sent(f"push-{notification.pk}")
    assert handled.message is not None
    assert Handled.objects.get().message_id == handled.message.id


def test_a_device_that_is_gone_hands_on_to_sms_at_once(mq: MQ, gateway: Gateway, notification: Notification) -> None:
    gateway.manners = replace(gateway.manners, gone=1)
    start(mq, notification)

    mq.run("notifications")

    (following,) = mq.published("sms", "sms", data={"notification": notification.pk})
    assert Accepted.objects.filter(message_id=following.id).exists()
    assert steps(notification) == [("push", "refused")]


def test_a_busy_gateway_is_tried_again_and_after_the_last_attempt_sms_has_its_turn(
    mq: MQ, gateway: Gateway, notification: Notification
) -> None:
    gateway.manners = replace(gateway.manners, failing=1)
    start(mq, notification)

    handled = mq.run_until_idle("notifications", raise_errors=False)

    assert [type(each.outcome) for each in handled] == [Retry, Retry, Ack]
    assert "GatewayBusy: 503" in handled[0].error
    assert steps(notification) == [("push", "exhausted")]
    assert [queued.message.name for queued in mq.messages("sms") if queued.message] == ["sms"]


def test_when_push_and_sms_fail_for_good_a_mail_is_written(
    mq: MQ, gateway: Gateway, notification: Notification, mailoutbox: list[EmailMessage]
) -> None:
    gateway.manners = replace(gateway.manners, gone=1, unknown=1)
    start(mq, notification)

    mq.run()

    assert steps(notification) == [("push", "refused"), ("sms", "refused"), ("email", "delivered")]
    assert [message.name for message in mq.published()] == ["push", "sms", "email"]
    assert [mail.to for mail in mailoutbox] == [["ada@example.org"]]


def test_a_buyer_without_a_telephone_number_gets_a_mail_after_the_push(
    mq: MQ, gateway: Gateway, save_order: PlaceOrder, mailoutbox: list[EmailMessage]
) -> None:
    gateway.manners = replace(gateway.manners, gone=1)
    start(mq, save_order(device="telephone-1").notification)
    mq.run()
    assert [message.name for message in mq.published()] == ["push", "email"]
    assert len(mailoutbox) == 1


def test_a_mailbox_that_does_not_exist_buries_the_last_step_at_once(
    mq: MQ, save_order: PlaceOrder, mail_folder: Path
) -> None:
    start(mq, save_order(email="ada@nowhere.invalid").notification)

    (handled,) = mq.run(raise_errors=False)

    assert isinstance(handled.outcome, Bury)
    (letter,) = mq.dead
    assert (letter.reason, letter.attempts) == ("error", 1)
    assert not Handled.objects.exists()


def test_a_step_that_comes_twice_hands_on_once(mq: MQ, gateway: Gateway, notification: Notification) -> None:
    gateway.manners = replace(gateway.manners, gone=1)
    for _ in range(2):
        start(mq, notification)

    assert len(mq.run("notifications")) == 2

    mq.assert_published("sms", count=1)
    assert steps(notification) == [("push", "refused")]


def test_a_crash_between_publishing_the_next_step_and_noting_it_publishes_nothing_and_notifies_the_buyer_once(
    mq: MQ, gateway: Gateway, notification: Notification, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    gateway.manners = replace(gateway.manners, gone=1)
    start(mq, notification)
    with monkeypatch.context() as patch:
        patch.setattr(book, "accept", crash)
        with pytest.raises(KeyboardInterrupt):
            mq.run("notifications")
    assert steps(notification) == []
    assert mq.outbox == []

    mq.advance(minutes=1)
    mq.run("notifications")
    mq.run("sms")

    (published,) = mq.published("sms")
    assert steps(notification) == [("push", "refused"), ("sms", "delivered")]
    assert gateway.outbox.summary()["sms 202"] == 1
    assert Handled.objects.filter(message_id=published.id).count() == 1


def test_a_delivered_notification_is_not_sent_by_a_late_copy_of_an_earlier_step(
    mq: MQ, gateway: Gateway, notification: Notification
) -> None:
    queues["sms"].publish("sms", {"notification": notification.pk}, on_commit=False)
    mq.run()
    start(mq, notification)
    assert [type(each.outcome) for each in mq.run()] == [Ack]
    assert gateway.outbox.summary() == {"sms 202": 1}


def test_a_rush_of_sms_stays_below_the_limit_of_the_gateway(mq: MQ, gateway: Gateway, save_order: PlaceOrder) -> None:
    for number in range(25):
        cascade.start(save_order(phone=f"+49151{number}").notification)
    mq.commit()

    handled = mq.run("sms")
    assert 0 < len(handled) <= gateway.manners.sms_a_second / 2
    while mq.messages("sms"):
        # The queue counts by the time of the test, and the gateway by that of the machine.
        gateway.outbox = Outbox()
        mq.advance(seconds=1)
        handled += mq.run("sms")

    assert len(handled) == 25
    assert all(isinstance(each.outcome, Ack) for each in handled)
