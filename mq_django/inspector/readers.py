"""Which reader reads which kind of queue: nothing else in the inspector asks."""

from mq_django.conf import GroupConfig, QueueConfig, RsmqConfig, get_config
from mq_django.inspector.rsmq_reader import RsmqReader
from mq_django.inspector.stream_reader import GroupReader, StreamReader
from mq_django.transport.connections import open_wire
from mq_django.transport.sessions import Wire

Reader = StreamReader | RsmqReader


def reader_of(config: QueueConfig, wire: Wire) -> Reader:
    """Return what reads a queue, or a group of a topic, through `wire`."""
    if isinstance(config, GroupConfig):
        return GroupReader(config, wire)
    return RsmqReader(config, wire) if isinstance(config, RsmqConfig) else StreamReader(config, wire)


def open_reader(name: str) -> Reader:
    """Return what reads the queue of a name.

    Raises:
        UnknownQueue: it is not configured.
    """
    return reader_of(get_config().queue(name), open_wire("inspect"))
