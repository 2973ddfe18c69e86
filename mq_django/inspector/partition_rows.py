"""The partitions of a queue: what each has, where it is, and which consumer looks there first."""

from dataclasses import dataclass

from mq_django.conf import get_config
from mq_django.core.exceptions import repr_of
from mq_django.core.partitions import preferred
from mq_django.errors import NotSupported
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import queue
from mq_django.transport.connections import node_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """One partition."""

    view: QueueView
    #: What stands in braces in its keys.
    tag: str
    #: Host and port of the node that has it; "" without a cluster, and if that is not known.
    node: str
    #: The consumer that looks there first; "" if none fetches.
    preferred: str


def partitions(name: str) -> list[PartitionRow]:
    """Return the partitions of a queue, by number.

    Raises:
        UnknownQueue: the queue is not configured.
        NotSupported: it has no partitions.
        StoreError: cannot reach Redis.
    """
    config = get_config().whole_queue(name)
    if not config.parts:
        raise NotSupported(f"Queue {repr_of(name)} has no partitions")
    return [
        PartitionRow(
            view=view,
            tag=part.keys.queue,
            node=node_of(part.connection, part.keys.ready),
            preferred=_preferred(view, part.number, len(config.parts)),
        )
        for part, view in zip(config.parts, queue(name).parts, strict=True)
    ]


def _preferred(view: QueueView, number: int, count: int) -> str:
    """Return what the supervisors compute: see `mq_django.consumers.supervisor.preferences`."""
    fetching = [consumer.id for consumer in view.consumers if consumer.is_fetching and consumer.threads]
    return next((name for name, numbers in preferred(count, fetching).items() if number in numbers), "")
