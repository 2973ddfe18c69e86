"""Open the port that an option of a command names."""

import errno
import socket

from django.core.management.base import CommandError

from mq_django.consumers.supervisor.health_server import listen


def open_port(option: str, where: tuple[str, int]) -> socket.socket:
    """Return a socket that accepts connections at a host and a port; without a host on all addresses.

    Raises:
        CommandError: the port is in use or not permitted, or the host is not one of this machine.
    """
    try:
        return listen(*where)
    except OSError as error:
        shown = ":".join(map(str, filter(None, where)))
        reason = {errno.EADDRINUSE: "another process uses this port", errno.EACCES: "the user may not use this port"}
        words = reason.get(error.errno or 0, error.strerror or str(error))
        raise CommandError(f"{option} {shown}: {words}.") from error
