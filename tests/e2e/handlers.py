"""A handler that fails for good until somebody has mended what it needs."""

from django.conf import settings

from mq_django import Message, RetryPolicy, handler


class Broken(Exception):
    pass


@handler("emails", "fragile", retry=RetryPolicy(bury_on=(Broken,)))
def fragile(message: Message) -> None:
    if not (settings.DEMO_DIR / "mended").exists():
        raise Broken("the press is jammed")
