"""Handlers that do what a visitor of the admin waits to see."""

import time

from django.conf import settings

from mq_django import Message, RetryPolicy, handler


class Broken(Exception):
    pass


@handler("emails", "fragile", retry=RetryPolicy(bury_on=(Broken,)))
def fragile(message: Message) -> None:
    if not (settings.DEMO_DIR / "mended").exists():
        raise Broken("the press is jammed")


@handler("emails", "long")
def long(message: Message) -> None:
    """Run until somebody says that it is enough, which is within minutes."""
    began = time.monotonic()
    while not (settings.DEMO_DIR / "enough").exists() and time.monotonic() < began + 600:
        time.sleep(0.05)
