"""How many partitions a queue has: recorded in Redis, because a message is looked for where its key belongs."""

from mq_django.conf import QueueConfig
from mq_django.errors import QueueClosed
from mq_django.transport import scripts
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import reply_or_raise

#: What is recorded while the number is being changed.
CLOSED = "closed"


def record_command(config: QueueConfig) -> Command:
    """Return the command that records the number of partitions of a queue, unless one is recorded."""
    keys = config.keys
    key_names = [keys.control, keys.ready, keys.urgent, keys.waiting, keys.dead, keys.runtime_schedules]
    return scripts.command("partitions_record", keys=key_names, args=[config.partitions])


def check_reply(config: QueueConfig, reply: object) -> None:
    """Check by the reply of this command that a queue has as many partitions as the settings say.

    Raises:
        QueueClosed: it has another number, or it is being changed.
        StoreError: Redis could not be reached, or refused.
    """
    found = reply_or_raise(reply).decode(errors="replace")
    if found != str(config.partitions):
        raise QueueClosed(disagreement(config, found))


def disagreement(config: QueueConfig, found: str) -> str:
    """Return the text of the error for a queue that has another number of partitions than the settings say."""
    queue = config.public_name
    if found == CLOSED:
        return f"Queue {queue!r} accepts no messages while its number of partitions is changed"
    known = "no partitions" if found == "1" else f"{found} partitions"
    return (
        f"Queue {queue!r} has {known} in Redis, and PARTITIONS is {config.partitions} here: use the settings of the "
        f"other processes, or run `manage.py mq repartition {queue} {config.partitions}`"
    )
