from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from smtplib import SMTPRecipientsRefused
from typing import Any

import pytest
from pytest_django import Settings

from example_project.gateway.client import GatewayBusy
from example_project.ledger import book
from example_project.ledger.models import Accepted, Handled
from example_project.shop import cascade, handlers
from example_project.shop.mail import MAIL_PATIENCE
from example_project.shop.models import Cart, Notification, NotificationStep, Order
from mq_django import Message
from tests.example_project.conftest import Ready, StartGateway
from tests.example_project.test_gateway import call

pytestmark = pytest.mark.django_db(transaction=True)

LAST_ATTEMPT = cascade.PATIENCE.max_attempts or 0


@pytest.fixture(autouse=True)
def patient(shop: Settings) -> None:
    """The gateway is as fast as the machine allows."""
    shop.GATEWAY_TIMEOUT = timedelta(seconds=10)


def notify(**addresses: str) -> Notification:
    buyer = {"phone": "+49151", "device": "telephone-1", "email": "ada@example.org", **addresses}
    order = Order.objects.create(cart=Cart.objects.create(), name="Ada", total=Decimal("25.00"), **buyer)
    return Notification.objects.create(order=order)


def delivery(notification: Notification, name: str, *, attempt: int = 1, **more: Any) -> Message:
    values = {"id": f"m-{name}", "queue": "notifications", **more}
    return Message(name=name, data={"notification": notification.pk}, attempt=attempt, **values)


def steps(notification: Notification) -> list[tuple[str, str]]:
    return list(notification.steps.values_list("channel", "outcome"))


@pytest.mark.parametrize(
    ("addresses", "first"),
    [({}, "push"), ({"device": ""}, "sms"), ({"device": "", "phone": ""}, "email")],
)
def test_the_cascade_starts_with_the_best_address_there_is(addresses: dict[str, str], first: str, ready: Ready) -> None:
    cascade.start(notify(**addresses))
    (message,) = [*ready("notifications"), *ready("sms")]
    assert (message.name, message.queue) == (first, "sms" if first == "sms" else "notifications")
    assert Accepted.objects.get().message_id == message.id


def test_a_push_that_arrives_ends_the_cascade(shop: Settings, start_gateway: StartGateway, ready: Ready) -> None:
    shop.GATEWAY_URL = url = start_gateway()
    notification = notify()

    handlers.push(delivery(notification, "push"))

    assert steps(notification) == [("push", "delivered")]
    notification.refresh_from_db()
    assert notification.delivered_at is not None
    assert call(url, "GET", f"/sent/push-{notification.pk}")[0] == 200
    assert Handled.objects.get().message_id == "m-push"
    assert ready("notifications") == []


def test_a_device_that_is_gone_hands_on_to_sms_at_once(
    shop: Settings, start_gateway: StartGateway, ready: Ready
) -> None:
    shop.GATEWAY_URL = start_gateway(gone=1)
    notification = notify()

    handlers.push(delivery(notification, "push", attempt=1))

    (following,) = ready("sms")
    assert (following.name, following.data) == ("sms", {"notification": notification.pk})
    assert Accepted.objects.get().message_id == following.id
    assert steps(notification) == [("push", "refused")]


def test_a_busy_gateway_is_tried_again_and_after_the_last_attempt_sms_has_its_turn(
    shop: Settings, start_gateway: StartGateway, ready: Ready
) -> None:
    shop.GATEWAY_URL = start_gateway(failing=1)
    notification = notify()

    for attempt in range(1, LAST_ATTEMPT):
        with pytest.raises(GatewayBusy):
            handlers.push(delivery(notification, "push", attempt=attempt))
        assert ready("sms") == []
    handlers.push(delivery(notification, "push", attempt=LAST_ATTEMPT))

    assert steps(notification) == [("push", "exhausted")]
    assert [message.name for message in ready("sms")] == ["sms"]


def test_when_push_and_sms_fail_for_good_a_mail_is_written(
    shop: Settings, mail_folder: Path, start_gateway: StartGateway, ready: Ready
) -> None:
    shop.GATEWAY_URL = start_gateway(gone=1, unknown=1)
    notification = notify()

    handlers.push(delivery(notification, "push"))
    handlers.sms(delivery(notification, "sms"))
    handlers.email(delivery(notification, "email"))

    assert steps(notification) == [("push", "refused"), ("sms", "refused"), ("email", "delivered")]
    assert [message.name for message in [*ready("sms"), *ready("notifications")]] == ["sms", "email"]
    (mail,) = mail_folder.iterdir()
    assert "To: ada@example.org" in mail.read_text()


def test_a_buyer_without_a_telephone_number_gets_a_mail_after_the_push(
    shop: Settings, start_gateway: StartGateway, ready: Ready
) -> None:
    shop.GATEWAY_URL = start_gateway(gone=1)
    handlers.push(delivery(notify(phone=""), "push"))
    assert [message.name for message in ready("notifications")] == ["email"]


def test_a_mailbox_that_does_not_exist_buries_the_last_step_at_once() -> None:
    notification = notify(email="ada@nowhere.invalid")
    with pytest.raises(SMTPRecipientsRefused) as refusal:
        handlers.email(delivery(notification, "email"))
    assert isinstance(refusal.value, MAIL_PATIENCE.bury_on)
    assert not Handled.objects.exists()


def test_a_step_that_comes_twice_hands_on_once(shop: Settings, start_gateway: StartGateway, ready: Ready) -> None:
    shop.GATEWAY_URL = start_gateway(gone=1)
    notification = notify()

    handlers.push(delivery(notification, "push", attempt=1))
    handlers.push(delivery(notification, "push", attempt=2))

    assert [message.name for message in ready("sms")] == ["sms"]
    assert NotificationStep.objects.count() == 1


def test_a_crash_between_publishing_the_next_step_and_noting_it_loses_nothing_and_tells_the_buyer_once(
    shop: Settings, start_gateway: StartGateway, ready: Ready, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.GATEWAY_URL = url = start_gateway(gone=1)
    notification = notify()

    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(book, "accept", crash)
        with pytest.raises(KeyboardInterrupt):
            handlers.push(delivery(notification, "push", attempt=1))
    assert steps(notification) == []
    handlers.push(delivery(notification, "push", attempt=2))

    published = ready("sms")
    assert [message.name for message in published] == ["sms", "sms"]
    for message in published:
        handlers.sms(message)
    assert steps(notification) == [("push", "refused"), ("sms", "delivered")]
    assert call(url, "GET", "/")[1]["sms 202"] == 1
    assert Handled.objects.filter(message_id__in=[message.id for message in published]).count() == 2


def test_a_delivered_notification_is_not_sent_by_a_late_copy_of_an_earlier_step(
    shop: Settings, start_gateway: StartGateway
) -> None:
    shop.GATEWAY_URL = url = start_gateway()
    notification = notify()
    handlers.sms(delivery(notification, "sms"))
    handlers.push(delivery(notification, "push"))
    assert call(url, "GET", "/") == (200, {"sms 202": 1})
