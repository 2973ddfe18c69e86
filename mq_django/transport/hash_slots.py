"""The keys of commands, and the hash slots of keys in a Redis Cluster.

Commands are plain tuples, because they are made on a hot path. Their keys are looked up only when a trip is routed or
checked.
"""

from collections.abc import Sequence

from redis.crc import key_slot

from mq_django.transport.scripts import Argument, Command

#: Commands without a key. They run on the server of their trip.
_KEYLESS = frozenset(
    {
        *("ASKING", "COMMAND", "PING", "SCAN", "SUBSCRIBE", "PUBLISH", "TIME", "MULTI"),
        *("INFO", "CONFIG", "CLUSTER", "WAIT"),
    }
)


def keys_of(command: Command) -> Sequence[Argument]:
    """Return the keys of a command in order; none for a command that any server can run."""
    name = str(command[0]).upper()
    if name in ("EVALSHA", "EVAL"):
        return command[3 : 3 + int(command[2])]
    if name == "XREADGROUP":
        # After the names of the group and of the consumer, either of which may be "STREAMS".
        streams = command[command.index("STREAMS", 4) + 1 :]
        return streams[: len(streams) // 2]
    if name in ("XINFO", "XGROUP", "MEMORY"):
        return command[2:3]
    # Other commands of ours have one key.
    return () if name in _KEYLESS else command[1:2]


def hash_slot(key: Argument) -> int:
    """Return the hash slot of a key. It is computed from the text in its first braces, or else from the whole key."""
    return key_slot(key if isinstance(key, bytes) else str(key).encode())
