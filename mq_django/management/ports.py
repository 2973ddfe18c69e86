"""The ports of `runconsumer`: for probes, and for metrics."""

import errno
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from django.core.management.base import CommandError
from django.utils.module_loading import import_string

from mq_django.consumers.supervisor.health import Health, Route, listen, serving

# Open the port that an option of a command names.

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


#: Loaded when it is needed: it needs the package prometheus-client.
MEASURING = "mq_django.observability.process_metrics.measuring"

#: A host, or "" for all addresses, and a port.
Address = tuple[str, int]


class Ports(NamedTuple):
    """What the ports of a `runconsumer` serve."""

    health: Health
    #: The measurer, a `ProcessMetrics`; None without a port for metrics.
    measured: Any


def check_ports(options: Mapping[str, Any]) -> None:
    """Check that the ports can be used.

    Raises:
        CommandError: a port is in use or not permitted.
        MissingDependency: metrics need a package that is not installed.
    """
    if options["metrics_port"]:
        import_string(MEASURING)
    for listener in _listeners(options).values():
        listener.close()


@contextmanager
def serving_ports(options: Mapping[str, Any]) -> Iterator[Ports]:
    """Serve inside what `--health-port` and `--metrics-port` ask for; both on one port if it is the same.

    Raises:
        CommandError: a port is in use or not permitted.
        MissingDependency: metrics need a package that is not installed.
    """
    health, measured = Health(), None
    with ExitStack() as stack:
        metrics_at = options["metrics_port"]
        measuring = import_string(MEASURING) if metrics_at else None
        # Before the folder for metrics is created.
        listeners = _listeners(options)
        routes: dict[Address, dict[str, Route]] = {where: {} for where in listeners}
        if options["health_port"]:
            routes[options["health_port"]] |= health.routes()
        if measuring is not None:
            measured = stack.enter_context(measuring())
            routes[metrics_at] |= measured.routes()
        for where, listener in listeners.items():
            stack.enter_context(serving(listener, routes[where]))
        yield Ports(health, measured)


def _listeners(options: Mapping[str, Any]) -> dict[Address, socket.socket]:
    """Return a socket for each address."""
    users: dict[str, socket.socket] = {}
    with ExitStack() as stack:
        for where, option in _options(options).items():
            users[f"{option} {shown(where)}"] = stack.enter_context(open_port(option, where, users=users))
        stack.pop_all()
    return dict(zip(_options(options), users.values(), strict=True))


def _options(options: Mapping[str, Any]) -> Mapping[Address, str]:
    """Return the option that asks for each address. Two for the same are one."""
    asked = {"--health-port": options["health_port"], "--metrics-port": options["metrics_port"]}
    return {where: option for option, where in reversed(asked.items()) if where}
