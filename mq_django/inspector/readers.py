"""Choose the reader for a queue. The rest of the inspector does not depend on the kind of queue."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from mq_django.conf import GroupConfig, QueueConfig, RsmqConfig, get_config
from mq_django.errors import StoreError, UnknownQueue
from mq_django.inspector.message_views import EntryView
from mq_django.inspector.one_queue import one_queue
from mq_django.inspector.room_reader import Receipt
from mq_django.inspector.rsmq_reader import RsmqReader
from mq_django.inspector.stream_reader import GroupReader, StreamReader
from mq_django.transport.connections import open_wire, open_wires
from mq_django.transport.fan_out import fan_out
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Wire

Reader = StreamReader | RsmqReader


def reader_of(config: QueueConfig, wire: Wire, *, with_log: bool = True) -> Reader:
    """Return the reader of a queue, or of a group, which has the log of its topic unless `with_log` is False."""
    if isinstance(config, GroupConfig) and with_log:
        return GroupReader(config, wire)
    return RsmqReader(config, wire) if isinstance(config, RsmqConfig) else StreamReader(config, wire)


def open_reader(name: str, *, with_log: bool = True) -> Reader:
    """Return the reader of the queue with a name; see reader_of().

    Raises:
        UnknownQueue: the queue is not configured.
    """
    config = one_queue(name)
    return reader_of(config, open_wire("inspect", config.connection), with_log=with_log)


def held(receipts: Mapping[str, Sequence[Receipt]]) -> Mapping[str, Mapping[Receipt, EntryView]]:
    """Return the messages of deliveries that still exist, by their receipts, for each queue; a round trip per server.

    Queues that are not configured here, or cannot be read, have none.

    Raises:
        StoreError: cannot reach Redis.
    """
    found: dict[str, Mapping[Receipt, EntryView]] = {queue: {} for queue in receipts}
    asked: list[tuple[str, Reader, Wire, Command]] = []
    configs = [config for queue in receipts if (config := _config(queue)) is not None]
    for config, wire in zip(configs, open_wires("inspect", [config.connection for config in configs]), strict=True):
        reader = reader_of(config, wire)
        if command := reader.held_command(receipts[config.name]):
            asked.append((config.name, reader, wire, command))
    replies = fan_out([wire for _, _, wire, _ in asked], [[command] for *_, command in asked])
    for (queue, reader, *_), (reply,) in zip(asked, replies, strict=True):
        with suppress(StoreError):
            found[queue] = reader.held_views(receipts[queue], reply)
    return found


def _config(queue: str) -> QueueConfig | None:
    try:
        return get_config().queue(queue)
    except UnknownQueue:
        return None
