"""Which messages get headers that their publisher has not asked for."""

from mq_django.conf import get_config
from mq_django.middleware import PublishCall


def may_add_headers(call: PublishCall) -> bool:
    """Return whether headers can be added to the messages of a call.

    In RSMQ's format a text is sent as it is. With headers it would be JSON, which other programs do not expect.
    """
    config = get_config().queues.get(call.queue)
    text_name = None if config is None else config.text_name
    return text_name is None or not any(
        message.name == text_name and isinstance(message.data, str) for message in call.messages
    )
