"""Looks at the settings of a Redis server that end connections of its clients, or refuse new ones."""

from collections.abc import Iterator

from mq_django.conf import get_config
from mq_django.core.numbers import whole
from mq_django.inspector.doctor.findings import DoctorFinding, Look, mib
from mq_django.inspector.doctor.server_facts import ServerFacts

#: The share of the clients from which there is a warning.
NEARLY_ALL = 0.8
#: Seconds after which no connection of a consumer may be closed for being idle: it sends heartbeats every 3 s at most.
SHORTEST_TIMEOUT = 5
#: The messages that a process with the default number of threads fetches at once.
FETCHED = 8


def _of_keepalive(server: ServerFacts) -> Iterator[DoctorFinding]:
    if server.settings.get("tcp-keepalive") == "0":
        yield DoctorFinding(
            code="D113",
            level="warning",
            seen="Redis never checks whether a client that is silent still exists (tcp-keepalive 0): messages may be "
            "handed to a consumer whose machine has gone.",
            advice="CONFIG SET tcp-keepalive 300, and the same in redis.conf.",
            where=server.where,
        )


def _of_clients(server: ServerFacts) -> Iterator[DoctorFinding]:
    connected = server.number("connected_clients")
    most = whole(server.settings.get("maxclients")) or server.number("maxclients")
    if most and connected >= most * NEARLY_ALL:
        yield DoctorFinding(
            code="D114",
            level="warning",
            seen=f"{connected} of at most {most} clients are connected (maxclients). Redis refuses further ones.",
            advice="CONFIG SET maxclients to a higher number, and raise the limit of open files of Redis if needed. "
            "CLIENT LIST shows who is connected.",
            where=server.where,
        )


def _of_timeout(server: ServerFacts) -> Iterator[DoctorFinding]:
    seconds = whole(server.settings.get("timeout")) or 0
    if 0 < seconds < SHORTEST_TIMEOUT:
        yield DoctorFinding(
            code="D119",
            level="warning",
            seen=f"Redis closes connections that have been idle for {seconds} s (timeout), so consumers connect again "
            "all the time, and a command that is sent at that moment fails.",
            advice="CONFIG SET timeout 0, or to 60 or more, and the same in redis.conf. tcp-keepalive finds clients "
            "that have gone.",
            where=server.where,
        )


def _of_buffers(server: ServerFacts) -> Iterator[DoctorFinding]:
    """Report a limit for replies that a fetch of messages of the largest size exceeds."""
    limit, largest = _reply_limit(server), _largest_message(server)
    if limit and limit < FETCHED * largest:
        is_less_than_one = limit < largest
        what = "one message" if is_less_than_one else f"{FETCHED} messages"
        yield DoctorFinding(
            code="D120",
            level="error" if is_less_than_one else "warning",
            seen=f"Redis closes a connection whose reply is larger than {mib(limit)} (client-output-buffer-limit "
            f"normal), and {what} may have {mib(largest if is_less_than_one else FETCHED * largest)} by MAX_SIZE: "
            "consumers could not fetch them, and would try again and again.",
            advice='CONFIG SET client-output-buffer-limit "normal 0 0 0", and the same in redis.conf.',
            where=server.where,
        )


def _reply_limit(server: ServerFacts) -> int:
    """Return the bytes of a reply from which Redis closes a connection; 0 without a limit."""
    words = server.settings.get("client-output-buffer-limit", "").split()
    # Four words for each class of clients: its name, the two limits in bytes, and seconds.
    limits = dict(zip(words[::4], words[1::4], strict=False))
    return whole(limits.get("normal")) or 0


def _largest_message(server: ServerFacts) -> int:
    """Return the most bytes of the data of a message on a server."""
    topics = [get_config().topic(name).max_size for name in server.topics]
    return max([queue.max_size for queue in server.queues] + topics, default=0)


CONNECTION_LOOKS: tuple[Look[ServerFacts], ...] = (
    Look("tcp-keepalive", ("D113",), _of_keepalive),
    Look("clients", ("D114",), _of_clients),
    Look("timeout", ("D119",), _of_timeout),
    Look("limits for replies", ("D120",), _of_buffers),
)
