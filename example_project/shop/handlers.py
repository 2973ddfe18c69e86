"""Handlers of named messages: the steps of a notification, one-time codes, newsletters, questions."""

from example_project.shop import assistant, letters
from example_project.shop.cascade import PATIENCE, QUEUE, SMS_QUEUE, take_step
from example_project.shop.mail import MAIL_PATIENCE
from example_project.shop.models import Channel
from mq_django import Message, handler


@handler(QUEUE, "push", retry=PATIENCE, timeout=10)
def push(message: Message) -> None:
    """Tell the buyer through the shop's app."""
    take_step(message, Channel.PUSH)


@handler(SMS_QUEUE, "sms", retry=PATIENCE, timeout=10)
def sms(message: Message) -> None:
    """Tell the buyer by SMS."""
    take_step(message, Channel.SMS)


# After the last channel there is none: when this fails for good, its message is a dead letter.
@handler(QUEUE, "email", retry=MAIL_PATIENCE, timeout=30)
def email(message: Message) -> None:
    """Tell the buyer by e-mail."""
    take_step(message, Channel.EMAIL)


@handler(letters.QUEUE, "code", retry=MAIL_PATIENCE, timeout=30)
def code(message: Message) -> None:
    """Mail a one-time code. One that is too old never comes here."""
    letters.mail_code(message)


@handler(letters.QUEUE, "newsletter", retry=MAIL_PATIENCE, timeout=30)
def newsletter(message: Message) -> None:
    """Mail one newsletter."""
    letters.mail_newsletter(message)


@handler(assistant.QUEUE, "question")
def question(message: Message) -> None:
    """Answer a question of a visitor, who reads along."""
    assistant.answer(message)
