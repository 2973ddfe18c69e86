"""Tasks that return, and one that fails and is retried in half an hour."""

from datetime import timedelta

from mq_django import RetryPolicy, task


@task
def note(*args, **kwargs):
    """Return nothing."""


@task(queue_name="emails", priority=5)
def receipt(order_id, *, copies=1):
    """Return what it was called with."""
    return {"order": order_id, "copies": copies}


@task(retry=RetryPolicy(delay=timedelta(minutes=30), jitter=0))
def refuse(text):
    """Fail."""
    raise ValueError(text)
