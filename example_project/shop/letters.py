"""Mails that are not about an order: some are awaited at a screen, some can wait all night.

All go through one queue. Mails that somebody waits for go first, newsletters go last, whatever was published before.
"""

import secrets
from collections.abc import Iterable
from datetime import timedelta

from django.core.mail import send_mail
from django.db import transaction
from django.utils import timezone

from example_project.ledger import book
from mq_django import Message, queues

QUEUE = "emails"
#: Somebody sits there and waits; nobody waits for a newsletter. Everything else has 0.
AWAITED, BULK = 80, -50
#: For how long a code is good. One that is mailed later would only be a puzzle.
CODE_LIFE = timedelta(minutes=5)


def request_code(email: str) -> str:
    """Make a one-time code, have it mailed, and return it."""
    code = f"{secrets.randbelow(10**6):06}"
    expires = timezone.now() + CODE_LIFE
    with transaction.atomic():
        # `otp` is a name that the admin does not show the value of.
        message_id = queues[QUEUE].publish("code", {"to": email, "otp": code}, priority=AWAITED, expires=expires)
        book.accept(message_id, queue=QUEUE, name="code", expires_at=expires)
    return code


def mail_code(message: Message) -> None:
    """Mail a code."""
    minutes = CODE_LIFE // timedelta(minutes=1)
    text = f"Your code is {message.data['otp']}. It is good for {minutes} minutes."
    send_mail("Your code for Harbour Goods", text, None, [message.data["to"]])
    book.handle(message)


def publish_newsletters(addresses: Iterable[str]) -> int:
    """Have a newsletter mailed to each address, and return to how many."""
    letters = [("newsletter", {"to": address}) for address in addresses]
    with transaction.atomic():
        for message_id in queues[QUEUE].publish_many(letters, priority=BULK):
            book.accept(message_id, queue=QUEUE, name="newsletter")
    return len(letters)


def mail_newsletter(message: Message) -> None:
    """Mail a newsletter."""
    send_mail("News from the harbour", "There is rope again, twelve metres of it.", None, [message.data["to"]])
    book.handle(message)
