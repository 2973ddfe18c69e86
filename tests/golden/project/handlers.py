"""Handlers that end in every way that there is."""

from mq_django import Bury, Message, Retry, handler, subscriber
from tests.golden.project import tasks  # noqa: F401 - registered here as in the process that enqueues them

QUEUES = (
    *("acked", "retried", "buried", "refused", "undecodable", "expired"),
    *("redriven", "moved", "worked", "paused", "legacy"),
)


def end(message: Message) -> object:
    """End as the message says."""
    how = message.data.get("end")
    if how == "raise":
        raise ValueError("no such user")
    return {"retry": Retry(delay=7200), "bury": Bury("not wanted")}.get(how)


for _queue in QUEUES:
    handler(_queue, "end")(end)

subscriber("news", group="billing")(end)
