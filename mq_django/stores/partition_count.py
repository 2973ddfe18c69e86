"""How many partitions there are: recorded in Redis, because a message is looked for where its key belongs."""

from mq_django.conf import DeliveryOptions
from mq_django.core.visible import line, truncate
from mq_django.errors import QueueClosed
from mq_django.transport import scripts
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import reply_or_raise

#: What is recorded while the number is being changed.
CLOSED = "closed"


def record_command(config: DeliveryOptions) -> Command:
    """Return the command that records the number of partitions of a queue or topic, unless one is recorded."""
    keys = [config.keys.recorded, *config.keys.filled]
    return scripts.command("partitions_record", keys=keys, args=[config.partitions])


def check_reply(config: DeliveryOptions, reply: object) -> None:
    """Check by the reply of this command that a queue or topic has as many partitions as the settings say.

    Raises:
        QueueClosed: it has another number, or it is being changed.
        StoreError: Redis could not be reached, or refused.
    """
    found = reply_or_raise(reply).decode(errors="replace")
    if found != str(config.partitions):
        raise QueueClosed(disagreement(config, found))


def disagreement(config: DeliveryOptions, found: str) -> str:
    """Return the text of the error for a queue or topic that has another number of partitions than the settings say."""
    what = config.counted_as.format(config=config)
    if found == CLOSED:
        return f"{what} accepts no messages while its number of partitions is changed"
    known = "no partitions" if found == "1" else f"{truncate(line(found), 40)} partitions"
    return (
        f"{what} has {known} in Redis, and PARTITIONS is {config.partitions} here: use the settings of the other "
        f"processes, or {config.other_count.format(config=config)}"
    )
