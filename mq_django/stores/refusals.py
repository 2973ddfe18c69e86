"""What a store cannot do, for who wants to know before Redis is asked."""

from mq_django.conf import GroupConfig, QueueConfig, RsmqConfig
from mq_django.core.messages import Message
from mq_django.core.rsmq_format import MESSAGE_ID
from mq_django.errors import NotSupported


def check_supported(config: QueueConfig, message: Message) -> None:
    """Raise NotSupported when a queue cannot do what a message asks for."""
    if isinstance(config, RsmqConfig):
        what = _not_in_rsmq(message)
        if what:
            raise NotSupported(f"Queue {config.name!r} has RSMQ's format, which has no {what}")
    elif isinstance(config, GroupConfig) and message.priority:
        raise NotSupported(f"Topic {config.topic!r} is read in one order, so there are no priorities")


def _not_in_rsmq(message: Message) -> str:
    if message.priority:
        return "priorities"
    if message.unique is not None:
        return "unique keys"
    return "" if MESSAGE_ID.fullmatch(message.id) else f"ids such as {message.id!r}: they have 32 letters and digits"
