"""What a Redis has used: processor time, and bytes of the network."""

from typing import NamedTuple, Self

import redis

#: Fields of INFO: of the thread that executes commands. Older servers have only the second pair, of all threads.
_CPU_FIELDS = (
    ("used_cpu_sys_main_thread", "used_cpu_user_main_thread"),
    ("used_cpu_sys", "used_cpu_user"),
)


class ServerUse(NamedTuple):
    """What a server has used since its start, or between two moments."""

    #: Seconds of processor time.
    cpu: float
    #: Bytes that clients have sent, and that the server has sent to them.
    received: float
    sent: float

    @classmethod
    def of(cls, client: redis.Redis) -> Self:
        """Ask a server."""
        found = {**client.info("cpu"), **client.info("stats")}
        fields = next(fields for fields in _CPU_FIELDS if fields[0] in found)
        cpu = sum(float(found[field]) for field in fields)
        return cls(cpu, float(found["total_net_input_bytes"]), float(found["total_net_output_bytes"]))

    def since(self, earlier: "ServerUse") -> "ServerUse":
        """Return what was used after an earlier moment."""
        return ServerUse(*(now - then for now, then in zip(self, earlier, strict=True)))
