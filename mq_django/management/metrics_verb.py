"""The verb `metrics` of the command `mq`: the metrics of queues for Prometheus."""

import argparse
import signal
import threading
from collections.abc import Callable

from django.utils.module_loading import import_string

from mq_django.consumers.supervisor.health_server import Answer, serving
from mq_django.management.argument_types import address
from mq_django.management.ports import open_port
from mq_django.management.terminal import Terminal
from mq_django.management.verb import Options, Verb, VerbResult

#: Loaded when it is needed: it needs the package prometheus-client.
METRICS = "mq_django.observability.prometheus.queue_metrics"
PATH = "/metrics"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument(
        "--port",
        type=address,
        metavar="[HOST:]PORT",
        help="Serve /metrics over HTTP until SIGTERM or Ctrl-C, without a host on all addresses. There is no password. "
        "Without this option the metrics are printed once.",
    )


def metrics(options: Options, terminal: Terminal) -> VerbResult | None:
    """Print the metrics, or serve them until a signal stops the program.

    Raises:
        MissingDependency: prometheus-client is not installed.
    """
    read: Callable[[], tuple[str, bytes]] = import_string(METRICS)
    if options["port"] is None:
        text = read()[1].decode()
        return VerbResult(text, text.splitlines())
    with serving(open_port("--port", options["port"]), {PATH: lambda: Answer(200, *read())}):
        terminal.report(f"Serving {PATH}. Stop with Ctrl-C.")
        _await_stop()
    return None


def _await_stop() -> None:
    if threading.current_thread() is threading.main_thread():
        # By default, a process with the id 1 ignores SIGTERM.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    never = threading.Event()
    try:
        while not never.wait(60):
            pass
    except KeyboardInterrupt:
        pass


VERBS = (Verb("metrics", "Print the metrics of queues for Prometheus, or serve them.", metrics, add_options),)
