"""The transport of a partition: what makes messages ready wakes consumers, and a closed partition accepts none."""

from collections.abc import Sequence
from typing import Any

from redis import exceptions

from mq_django.conf import DeliveryOptions
from mq_django.core.texts import line, truncate
from mq_django.errors import QueueClosed
from mq_django.transport import scripts
from mq_django.transport.scripts import Argument, Command
from mq_django.transport.sessions import Transport, reply_or_raise

# How many partitions there are: recorded in Redis, because a message is looked for where its key belongs.

#: What is recorded while the number is being changed.
CLOSED = "closed"


def record_command(config: DeliveryOptions, *, records: bool = True) -> Command:
    """Return the command that records the number of partitions of a queue or topic, unless one is recorded.

    Args:
        records: if not, nothing is written. The reply is the same.
    """
    keys = [config.keys.recorded, *config.keys.filled]
    return scripts.command("partitions_record", keys=keys, args=[config.partitions, *["1"] * (not records)])


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
    known = "no partitions" if found == "1" else f"{truncate(line(found), 40) or repr(found)} partitions"
    return (
        f"{what} has {known} in Redis, and PARTITIONS is {config.partitions} here: use the settings of the other "
        f"processes, or {config.other_count.format(config=config)}"
    )


#: Milliseconds until consumers look again at a partition of which they heard nothing: notifications may be lost. All
#: consumers look more often, and set this anew each time.
ASLEEP_MS = 30_000

#: The scripts that publish new messages.
PUBLISH = frozenset(
    {
        "dead_accept",
        "schedules_fire",
        "stream_publish",
        "topic_publish",
        "waiting_add",
        "waiting_claim",
        "waiting_prioritize",
    }
)

#: The others that make a message ready, or let the line of a key go on. What is tried again is promoted.
WAKE = frozenset(
    {
        "control_pause",
        "dead_redrive",
        "holds_release",
        "lines_skip",
        "messages_delete",
        "messages_hold",
        "topic_seek",
        "waiting_cancel",
        "waiting_promote",
        "waiting_release",
    }
)

#: The outcomes with which a settled message is ready again, or the line of its key goes on though its consumer may not
#: fetch. After the others a consumer of a queue with lines fetches, or runs lines_wake.
WAKING_OUTCOMES = frozenset({"hand_back", "cancel"})

#: The scripts with which consumers fetch.
FETCH = frozenset({"lines_fetch", "stream_fetch", "topic_fetch"})


def prepared(config: DeliveryOptions, command: Command, *, sleeps: bool = False) -> Command:
    """Return a command of the stores of a queue or topic; for a partition with the prelude that its script needs.

    Args:
        sleeps: a fetch that finds nothing has consumers woken by what comes next.
    """
    if not config.is_partition:
        return command
    name, keys = scripts.name_of(command), config.keys
    if name in PUBLISH:
        # Of a delayed message its promotion wakes.
        args: list[Argument] = [config.partitions, "" if name == "waiting_add" else keys.arrivals]
        return scripts.with_prelude(command, "partition_enter", keys=[keys.recorded, keys.asleep], args=args)
    if name in WAKE or (name == "settle" and _outcome(command) in WAKING_OUTCOMES):
        # Promoters run all the time, and mostly find nothing that is due.
        prelude = "partition_promote" if name == "waiting_promote" else "partition_wake"
        return scripts.with_prelude(command, prelude, keys=[keys.asleep], args=[keys.arrivals])
    if name == "lines_wake":
        return scripts.with_more(command, keys=[keys.asleep], args=[keys.arrivals])
    if sleeps and name in FETCH:
        return scripts.with_prelude(command, "partition_sleep", keys=[keys.asleep], args=[ASLEEP_MS])
    return command


def _outcome(settles: Command) -> Argument:
    """Return the outcome of a command that runs `lua/settle.lua`: its first argument."""
    count = settles[2]
    assert isinstance(count, int)
    return settles[3 + count]


class PartitionTransport(Transport):
    """Sends the commands of a partition's stores, with the preludes that its scripts need: see `lua/preludes/`.

    Args:
        config: the partition.
        transport: sends them.
    """

    def __init__(self, config: DeliveryOptions, transport: Transport) -> None:
        self._config = config
        self._transport = transport
        #: A fetch that finds nothing has consumers woken by what comes next.
        self.sleeps = False

    def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """See Transport.pipeline().

        Raises:
            QueueClosed: the queue has another number of partitions, or it is being changed. Nothing was published.
        """
        ready = [prepared(self._config, command, sleeps=self.sleeps) for command in commands]
        replies = self._transport.pipeline(ready)
        for reply in replies:
            if isinstance(reply, exceptions.ResponseError) and str(reply).startswith("CLOSED "):
                raise QueueClosed(disagreement(self._config, str(reply).partition(" ")[2]))
        return replies

    def pipelines(self, pipelines: Sequence[Sequence[Command]]) -> list[list[Any]]:
        """See Transport.pipelines()."""
        return self._transport.pipelines(
            [[prepared(self._config, command, sleeps=self.sleeps) for command in pipeline] for pipeline in pipelines]
        )


def transport_of(config: DeliveryOptions, transport: Transport) -> Transport:
    """Return the transport for a queue or topic: for a partition one that adds the preludes that its scripts need."""
    if not config.is_partition or isinstance(transport, PartitionTransport):
        return transport
    return PartitionTransport(config, transport)
