"""The metrics of the processes of one `runconsumer`: its consumers write them to files, its supervisor serves them."""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from mq_django.consumers.measuring import Measurers
from mq_django.consumers.service import Service
from mq_django.consumers.supervisor.health_server import Answer, Route
from mq_django.consumers.supervisor.private_folder import private_folder
from mq_django.core.logs import get_logger
from mq_django.observability.ended_processes import merge_ended
from mq_django.observability.prometheus_package import multiprocess, prometheus_client
from mq_django.observability.supervisor_metrics import SupervisorMetrics

logger = get_logger(__name__)

#: The variable in which prometheus_client finds the folder for its files.
VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
#: The begin of the names of our folders.
PREFIX = "mq_django-metrics-"
#: Seconds between two checks for files of ended processes.
EVERY = 2.0

NO_FOLDER = "The consumers are not measured, because there can be no folder for their metrics: %s"


class ProcessMetrics(Service):
    """Serves the metrics of a supervisor and its consumers, and merges the files of ended ones.

    Args:
        folder: where consumers write; None: they are not measured.
    """

    name = "metrics files"

    def __init__(self, folder: Path | None) -> None:
        super().__init__()
        self._folder = folder
        self._lock = threading.Lock()
        self.supervisor = SupervisorMetrics()
        self._registry = prometheus_client.CollectorRegistry()
        self._registry.register(self.supervisor)
        if folder is not None:
            multiprocess.MultiProcessCollector(self._registry, str(folder))

    @property
    def module(self) -> str:
        """Return the module that runs the command line of a consumer."""
        return "django" if self._folder is None else "mq_django.observability.measured_process"

    @property
    def environment(self) -> Mapping[str, str]:
        """Return what is added to the environment of a consumer."""
        return {} if self._folder is None else {VARIABLE: str(self._folder)}

    def routes(self) -> dict[str, Route]:
        """Return the function that answers for each path."""
        return {"/metrics": self.answer}

    def answer(self) -> Answer:
        """Return the metrics in the text format of Prometheus."""
        with self._lock:
            return Answer(200, prometheus_client.CONTENT_TYPE_LATEST, prometheus_client.generate_latest(self._registry))

    def run_once(self) -> float:
        """Merge the files of ended processes, so that they do not pile up."""
        if self._folder is not None:
            with self._lock:
                merge_ended(self._folder)
        return EVERY


@contextmanager
def measuring() -> Iterator[ProcessMetrics]:
    """Measure this supervisor, and the consumers that it starts inside."""
    with ExitStack() as stack:
        metrics = ProcessMetrics(_folder(stack))
        Measurers.supervisor = metrics.supervisor
        metrics.start()
        try:
            yield metrics
        finally:
            Measurers.supervisor = None
            metrics.stop()
            metrics.join(EVERY)
            _end_own_gauges()


def _end_own_gauges() -> None:
    """End the live gauges of this process in the project's folder, if there is one: other programs may serve it."""
    folder = os.environ.get(VARIABLE)
    if folder:
        with suppress(OSError):
            multiprocess.mark_process_dead(os.getpid(), folder)


def _folder(stack: ExitStack) -> Path | None:
    # Inside the project's own folder, whose files belong to other processes.
    own = os.environ.get(VARIABLE)
    try:
        return stack.enter_context(private_folder(PREFIX, Path(own) if own else None))
    except OSError as error:
        logger.error(NO_FOLDER, error)  # noqa: TRY400 - the reason is enough
        return None
