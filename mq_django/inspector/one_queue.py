"""The options of what has messages of its own: a queue, a partition, or a group of a topic."""

from mq_django.conf import QueueConfig, get_config
from mq_django.errors import NotSupported


def one_queue(name: str) -> QueueConfig:
    """Return the options of a queue, a partition or a group.

    Raises:
        UnknownQueue: the queue is not configured.
        NotSupported: it has partitions, and the messages are in these.
    """
    config = get_config().queue(name)
    if config.parts:
        first, last = config.parts[0].name, config.parts[-1].name
        raise NotSupported(f"Queue {name!r} has partitions: name one of them, {first!r} to {last!r}")
    return config
