"""Which keys a command has, and which hash slot of a Redis Cluster a key is in.

Commands stay plain tuples, because making them is a hot path: only who routes a trip, or checks it, asks for its keys.
"""

from collections.abc import Sequence

from redis.crc import key_slot

from mq_django.transport.scripts import Argument, Command

#: Commands without a key. They go to the server of the trip that they are in.
_KEYLESS = frozenset({"COMMAND", "PING", "SUBSCRIBE", "TIME"})


def keys_of(command: Command) -> Sequence[Argument]:
    """Return the keys of a command, in their order; none for one that may go to any server."""
    name = command[0]
    if name in ("EVALSHA", "EVAL"):
        return command[3 : 3 + int(command[2])]
    if name == "XREADGROUP":
        # After the names of the group and of the consumer, either of which may be "STREAMS".
        streams = command[command.index("STREAMS", 4) + 1 :]
        return streams[: len(streams) // 2]
    if name == "XINFO":
        return command[2:3]
    # Other commands of ours have one key.
    return () if name in _KEYLESS else command[1:2]


def hash_slot(key: Argument) -> int:
    """Return the hash slot of a key: that of what stands in its first braces, else of the whole key."""
    return key_slot(key if isinstance(key, bytes) else str(key).encode())
