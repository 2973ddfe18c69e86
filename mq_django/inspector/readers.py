"""Choose the reader for a queue. The rest of the inspector does not depend on the kind of queue."""

from mq_django.conf import GroupConfig, QueueConfig, RsmqConfig, get_config
from mq_django.inspector.rsmq_reader import RsmqReader
from mq_django.inspector.stream_reader import GroupReader, StreamReader
from mq_django.transport.connections import open_wire
from mq_django.transport.sessions import Wire

Reader = StreamReader | RsmqReader


def reader_of(config: QueueConfig, wire: Wire) -> Reader:
    """Return the reader of a queue, or of a group of a topic."""
    if isinstance(config, GroupConfig):
        return GroupReader(config, wire)
    return RsmqReader(config, wire) if isinstance(config, RsmqConfig) else StreamReader(config, wire)


def open_reader(name: str) -> Reader:
    """Return the reader of the queue with a name.

    Raises:
        UnknownQueue: the queue is not configured.
    """
    config = get_config().queue(name)
    return reader_of(config, open_wire("inspect", config.connection))
