"""The ports of `runconsumer`: for probes, and for metrics."""

import socket
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NamedTuple, Protocol

from django.utils.module_loading import import_string

from mq_django.consumers.supervisor.health import Health
from mq_django.consumers.supervisor.health_server import Route, serving
from mq_django.management.ports import open_port, shown

#: Loaded when it is needed: it needs the package prometheus-client.
MEASURING = "mq_django.observability.process_metrics.measuring"

#: A host, or "" for all addresses, and a port.
Address = tuple[str, int]


class Measured(Protocol):
    """How consumers are started so that they are measured."""

    @property
    def module(self) -> str:
        """Return the module that runs the command line of a consumer."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Return what is added to the environment of a consumer."""

    def routes(self) -> dict[str, Route]:
        """Return the function that answers for each path."""


class Ports(NamedTuple):
    """What the ports of a `runconsumer` serve."""

    health: Health
    #: None without a port for metrics.
    measured: Measured | None


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
            measured = stack.enter_context(_started(measuring))
            routes[metrics_at] |= measured.routes()
        for where, listener in listeners.items():
            stack.enter_context(serving(listener, routes[where]))
        yield Ports(health, measured)


def _started(measuring: Any) -> AbstractContextManager[Measured]:
    found: AbstractContextManager[Measured] = measuring()
    return found


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
