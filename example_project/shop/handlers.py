"""Handlers of named messages: the steps of a notification."""

from example_project.shop.cascade import PATIENCE, QUEUE, take_step
from example_project.shop.mail import MAIL_PATIENCE
from example_project.shop.models import Channel
from mq_django import Message, handler


@handler(QUEUE, "push", retry=PATIENCE, timeout=10)
def push(message: Message) -> None:
    """Tell the buyer through the shop's app."""
    take_step(message, Channel.PUSH)


@handler(QUEUE, "sms", retry=PATIENCE, timeout=10)
def sms(message: Message) -> None:
    """Tell the buyer by SMS."""
    take_step(message, Channel.SMS)


# After the last channel there is none: when this fails for good, its message is a dead letter.
@handler(QUEUE, "email", retry=MAIL_PATIENCE, timeout=30)
def email(message: Message) -> None:
    """Tell the buyer by e-mail."""
    take_step(message, Channel.EMAIL)
