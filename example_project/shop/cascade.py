"""Tell the buyer that the order arrived: push, else SMS, else e-mail.

Each step is a message of its own, so a slow gateway holds up nobody else, each step has its own attempts,
and what is left to do stands in the queue and not in a process that may die. A step ends in one of two ways:
the buyer was told, or the next step is published. Each is one transaction with the note of it.
"""

from collections.abc import Callable
from datetime import timedelta

from django.core.mail import send_mail
from django.db import transaction
from django.utils import timezone

from example_project.gateway.client import GatewayBusy, GatewayRefusal, send_push, send_sms
from example_project.ledger import book
from example_project.shop.models import Channel, Notification, NotificationStep
from mq_django import Message, RetryPolicy, queues

#: SMS have a queue of their own, whose limit is the gateway's: they wait there, and hold up nobody else.
QUEUE, SMS_QUEUE = "notifications", "sms"
Outcome = NotificationStep.Outcome

#: How long one channel is tried before the next has its turn. A buyer should not wait for minutes.
PATIENCE = RetryPolicy(max_attempts=3, delay=timedelta(seconds=1))


def start(notification: Notification) -> None:
    """Publish the first step in the transaction of the order: it goes out if and when the order is there."""
    channel = notification.order.channels()[0]
    message_id = queues[queue_of(channel)].publish(channel.value, {"notification": notification.pk})
    book.accept(message_id, queue=queue_of(channel), name=channel.value)


def queue_of(channel: Channel) -> str:
    """Return the queue of a channel's steps."""
    return SMS_QUEUE if channel is Channel.SMS else QUEUE


def take_step(message: Message, channel: Channel) -> None:
    """Try one channel; hand on to the next when it fails for good.

    For good means: the gateway refused the message, or this was the last attempt. Anything else is raised,
    and the queue tries the message again.
    """
    notification = Notification.objects.select_related("order").get(pk=message.data["notification"])
    if notification.delivered_at or notification.steps.filter(channel=channel).exists():
        # The process died after it had done this and before the queue knew: the message comes twice.
        book.handle(message)
        return
    try:
        SENDERS[channel](notification)
    except GatewayRefusal as error:
        hand_on(message, notification, channel, Outcome.REFUSED, error)
    except GatewayBusy as error:
        if not PATIENCE.exhausted(message.attempt, default_max=1):
            raise
        hand_on(message, notification, channel, Outcome.EXHAUSTED, error)
    else:
        deliver(message, notification, channel)


def deliver(message: Message, notification: Notification, channel: Channel) -> None:
    """Note that the buyer was told."""
    with transaction.atomic():
        notification.delivered_at = timezone.now()
        notification.save(update_fields=["delivered_at"])
        end_step(message, notification, channel, Outcome.DELIVERED)


def hand_on(message: Message, notification: Notification, channel: Channel, outcome: Outcome, error: Exception) -> None:
    """Publish the next step, and note that this one is over."""
    following = notification.channel_after(channel)
    if following is None:
        raise error
    queue = queue_of(following)
    # With the outbox a crash leaves both or neither: the next step and the note are rows of one transaction.
    with transaction.atomic():
        message_id = queues[queue].publish(following.value, {"notification": notification.pk})
        book.accept(message_id, queue=queue, name=following.value)
        end_step(message, notification, channel, outcome, detail=str(error))


def end_step(
    message: Message, notification: Notification, channel: Channel, outcome: Outcome, *, detail: str = ""
) -> None:
    """Write how the step ended; twice is the same as once."""
    NotificationStep.objects.get_or_create(
        notification=notification,
        channel=channel,
        defaults={"outcome": outcome, "detail": detail[:200], "attempt": message.attempt},
    )
    book.handle(message)


def _push(notification: Notification) -> None:
    send_push(device=notification.order.device, text=notification.text(), key=f"push-{notification.pk}")


def _sms(notification: Notification) -> None:
    send_sms(number=notification.order.phone, text=notification.text(), key=f"sms-{notification.pk}")


def _email(notification: Notification) -> None:
    order = notification.order
    send_mail(f"Your order {order.pk}", notification.text(), None, [order.email])


SENDERS: dict[Channel, Callable[[Notification], None]] = {
    Channel.PUSH: _push,
    Channel.SMS: _sms,
    Channel.EMAIL: _email,
}
