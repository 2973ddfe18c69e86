"""Check the number of partitions before something is written to a partition without a publish by the queue."""

from mq_django.conf import QueueConfig
from mq_django.producers.queues import queues
from mq_django.stores.partitioned_store import PartitionedStore


def check_partitions(config: QueueConfig) -> None:
    """Check that the queue of a partition has as many as the settings say, once a process. Of a queue nothing is.

    Raises:
        QueueClosed: it has another number, or it is being changed.
        StoreError: Redis cannot be reached, or refuses the command.
    """
    if not config.is_partition:
        return
    store = queues[config.public_name].sink.store
    assert isinstance(store, PartitionedStore)
    store.check()
