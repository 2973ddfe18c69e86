"""Looks at queues with partitions: their number in Redis, and whether all nodes have some."""

from collections.abc import Iterator

from mq_django.conf import QueueConfig, get_config
from mq_django.core.numbers import whole
from mq_django.inspector.doctor.findings import DoctorFinding, Look
from mq_django.inspector.doctor.server_facts import ServerFacts
from mq_django.stores.partition_count import disagreement


def _wholes(server: ServerFacts) -> Iterator[QueueConfig]:
    """Yield the queues and groups, without those in RSMQ's format, of which something is on a server."""
    names = dict.fromkeys(queue.public_name for queue in server.queues if queue.store != "rsmq")
    # The groups of a topic have its number.
    wholes = {found.keys.recorded: found for found in map(get_config().queue, names)}
    yield from wholes.values()


def _of_numbers(server: ServerFacts) -> Iterator[DoctorFinding]:
    """Report queues that have another number of partitions in Redis than in the settings."""
    for queue in _wholes(server):
        reply = server.wire.trip([("HGET", queue.keys.recorded, "partitions")])[0]
        # On a cluster it may be on another node, which is looked at, too.
        if isinstance(reply, bytes) and reply != str(queue.partitions).encode():
            yield DoctorFinding(
                code="D209",
                level="error",
                seen=f"{disagreement(queue, reply.decode(errors='replace'))}.",
                advice="Until then publishing raises QueueClosed, and runconsumer does not start.",
                where=server.where,
            )


def _of_nodes(server: ServerFacts) -> Iterator[DoctorFinding]:
    """Report queues that have fewer partitions than the cluster has nodes, on the node of their first one."""
    nodes, own = whole(server.cluster.get("cluster_size")) or 0, {part.name for part in server.queues}
    for queue in _wholes(server):
        if 0 < len(queue.parts) < nodes and queue.parts[0].name in own:
            yield DoctorFinding(
                code="D210",
                level="note",
                seen=f"{queue.counted_as.format(config=queue)} has {len(queue.parts)} partitions, and the "
                f"cluster {nodes} nodes.",
                advice="Some nodes do nothing for it. Give it at least eight partitions for each node.",
                where=server.where,
            )


PARTITION_LOOKS: tuple[Look[ServerFacts], ...] = (
    Look("numbers of partitions", ("D209",), _of_numbers),
    Look("partitions and nodes", ("D210",), _of_nodes),
)
