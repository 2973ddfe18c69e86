"""Open the port that an option of a command names."""

import errno
import socket
from collections.abc import Mapping

from django.core.management.base import CommandError

from mq_django.consumers.supervisor.health_server import listen

#: The hosts that stand for all addresses.
ALL_ADDRESSES = frozenset({"0.0.0.0", "::"})  # noqa: S104 - nothing is bound here


def shown(where: tuple[str, int]) -> str:
    """Return an address as it is written in an option."""
    host, port = where
    return f"{f'[{host}]' if ':' in host else host}:{port}" if host else str(port)


def open_port(
    option: str, where: tuple[str, int], *, users: Mapping[str, socket.socket] | None = None
) -> socket.socket:
    """Return a socket that accepts connections at a host and a port; without a host on all addresses.

    Args:
        option: the option that names the address.
        where: the address.
        users: the sockets that this command has opened, by the option and its value.

    Raises:
        CommandError: the port is in use or not permitted, or the host is not one of this machine.
    """
    try:
        return listen(*where)
    except OSError as error:
        user = next((user for user, other in (users or {}).items() if _overlap(other, where)), "")
        if error.errno == errno.EADDRINUSE and user:
            words = f"{user} uses this port. Use the same host and port for both, or another port"
            raise CommandError(f"{option} {shown(where)}: {words}.", returncode=2) from error
        reason = {errno.EADDRINUSE: "another process uses this port", errno.EACCES: "the user may not use this port"}
        words = reason.get(error.errno or 0, error.strerror or str(error))
        raise CommandError(f"{option} {shown(where)}: {words}.") from error


def _overlap(listener: socket.socket, where: tuple[str, int]) -> bool:
    """Return whether a socket listens at an address: it may listen on all, and a host may have several names."""
    host, port = where
    taken_host, taken_port, *_ = listener.getsockname()
    if taken_port != port:
        return False
    hosts = {found[4][0] for found in socket.getaddrinfo(host, port)} if host else {taken_host}
    return taken_host in hosts or bool({taken_host, *hosts} & ALL_ADDRESSES)
