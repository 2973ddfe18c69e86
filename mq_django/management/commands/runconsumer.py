"""Run consumers."""

import argparse
import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError, CommandParser, OutputWrapper
from django.utils.module_loading import import_string

from mq_django.conf import Config, QueueConfig, get_config
from mq_django.consumers import hangups
from mq_django.consumers.outage import DEFAULT_THREADS, small_pools
from mq_django.consumers.service import Service
from mq_django.consumers.shared_state import MAX_FETCHERS, MAX_QUEUES
from mq_django.consumers.supervisor import preflight
from mq_django.consumers.supervisor.health import Health, notifying
from mq_django.consumers.supervisor.launcher import NOT_FORKED, Launcher, environment, offer_template
from mq_django.consumers.supervisor.outbox_service import outbox_services
from mq_django.consumers.supervisor.reload import Probe, execute_again, run_with_reloader, show
from mq_django.consumers.supervisor.supervisor import SignalPipe, Supervisor
from mq_django.consumers.supervisor.template import CannotFork, Template, begin
from mq_django.consumers.supervisor.workers import WorkerOptions
from mq_django.consumers.worker import main
from mq_django.consumers.worker.main import LaunchSpec
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.logs import LogStream, configure_logs, get_logger
from mq_django.core.partitions import listed
from mq_django.core.texts import listing
from mq_django.discovery import import_declaring_loudly
from mq_django.errors import MQError, UnknownGroup
from mq_django.management.verb_types import address, check_ports, duration, serving_ports, whole
from mq_django.middleware import publishing_chain
from mq_django.registry import groups, own_names
from mq_django.registry import names as handled_names
from mq_django.signals import problem_began, problem_ended
from mq_django.testing import test_state
from mq_django.transport import test_mode

logger = get_logger(__name__)

#: The module of services, loaded when it is needed: consumers do not need the inspector.
WATCHERS = "mq_django.observability.problem_watch"

NEEDS_POSIX = (
    "runconsumer does not run on Windows. Run it in WSL, in a container or on a server; publishing, the admin and the "
    "other commands work here."
)

TOO_MANY = (
    "One runconsumer handles up to {most} queues and groups, not {count}: each takes a thread and a connection in "
    "every process. Start several, and name the queues of each: manage.py runconsumer QUEUE QUEUE ..."
)

TOO_MANY_PARTITIONS = (
    "One runconsumer handles up to {most} queues, groups and partitions of queues, not {count}. Start several, and "
    "name the queues of each: manage.py runconsumer QUEUE QUEUE ..."
)

NO_HANDLER = (
    "This project has no handler for any message of %s: all are set aside as unhandled. If other programs handle these "
    'queues, set their option "EXTERNAL" to True.'
)


class Command(BaseCommand):
    """`manage.py runconsumer [queue ...]`."""

    help = "Run consumers for some or all queues."

    def add_arguments(self, parser: CommandParser) -> None:
        """See BaseCommand.add_arguments()."""
        parser.add_argument("queues", nargs="*", help="Queues, topics and topic:groups. Default: all.")
        parser.add_argument("--processes", type=whole, default=1, help="Number of consumer processes.")
        parser.add_argument("--threads", type=whole, default=DEFAULT_THREADS, help="Concurrent handlers per process.")
        parser.add_argument(
            "--grace", type=duration, default=30.0, help="Seconds for running handlers to finish at shutdown."
        )
        parser.add_argument(
            "--max-messages",
            type=whole,
            default=0,
            help="Gracefully replace a process after this many messages. Checked once a second.",
        )
        parser.add_argument(
            "--max-memory",
            type=whole,
            default=0,
            help="Gracefully replace a process that uses this many MiB of memory.",
        )
        parser.add_argument(
            "--housekeeping",
            action="store_true",
            help="Start no consumers: only promote delayed messages, recover messages of dead consumers, fire "
            "schedules, and run background jobs.",
        )
        parser.add_argument("--no-relay", action="store_true", help="Do not run the outbox relay.")
        parser.add_argument(
            "--no-fork",
            action="store_true",
            help="Start each process as a new interpreter, not as a fork of one that has loaded the project.",
        )
        parser.add_argument("--drain", action="store_true", help="Stop when no message is ready or pending.")
        parser.add_argument("--autoreload", action="store_true", help="Restart when code changes, for development.")
        parser.add_argument(
            "--health-port",
            type=address,
            metavar="[HOST:]PORT",
            help="Serve /live, /ready and /startup for probes over HTTP, without a host on all addresses.",
        )
        parser.add_argument(
            "--metrics-port",
            type=address,
            metavar="[HOST:]PORT",
            help="Serve /metrics of these processes for Prometheus, without a host on all addresses.",
        )
        parser.add_argument("--log-format", choices=["text", "json"], default="text", help="Format of log lines.")
        # The launch spec of a process that a supervisor starts.
        parser.add_argument("--orders", help=argparse.SUPPRESS)
        # Used by Probe to check new code.
        parser.add_argument("--fingerprint", action="store_true", help=argparse.SUPPRESS)

    def execute(self, *args: Any, **options: Any) -> str | None:
        """See BaseCommand.execute(). With JSON, checks and errors are log records, too."""
        configure_logs(options["log_format"], verbosity=options["verbosity"])
        if options["log_format"] != "json":
            return super().execute(*args, **options)
        self.stdout = OutputWrapper(LogStream(logging.INFO))
        self.stderr = OutputWrapper(LogStream(logging.WARNING))
        try:
            return super().execute(*args, **options)
        except CommandError as error:
            LogStream(logging.ERROR).write(str(error))
            raise SystemExit(error.returncode) from error

    def check(self, *args: Any, **options: Any) -> None:
        """See BaseCommand.check(). The checks load the URLs and all views, so that they run in a process that ends."""
        if not preflight.succeeds_in_child(partial(super().check, *args, **options)):
            super().check(*args, **options)

    def handle(self, *args: Any, **options: Any) -> None:
        """See BaseCommand.handle()."""
        if not hasattr(os, "fork"):
            raise CommandError(NEEDS_POSIX)
        if test_mode.is_on():
            try:
                test_state.use()
            except MQError as error:
                raise CommandError(str(error)) from error
        import_declaring_loudly()
        if options["orders"]:
            raise SystemExit(main.run(LaunchSpec.of(options["orders"])))
        try:
            queues = self._queues(options["queues"], housekeeping=options["housekeeping"])
            if options["fingerprint"]:
                self.stdout.write(show(queues))
                offer_template()
            elif options["autoreload"]:
                hangups.release()
                # The reloader shows errors of its thread as tracebacks.
                check_ports(options)
                run_with_reloader(self._run, queues, options)
            else:
                self._run(queues, options)
        except MQError as error:
            raise CommandError(str(error)) from error

    def _queues(self, names: list[str], *, housekeeping: bool) -> list[QueueConfig]:
        """Return the queues and groups with these names, or all; those to consume first.

        A topic means all its groups in code.
        """
        config = get_config()
        selected = [groups(name) if name in config.topics else [name] for name in names]
        # `check` reports an app that is installed and not configured.
        every = [*config.queues, *(name for topic in config.topics for name in groups(topic))]
        found = list(dict.fromkeys(chain.from_iterable(selected))) if names else every
        if not found:
            raise CommandError("No queue is configured, and no topic has a subscriber.")
        # Checked here, so that a reload is refused, too, and the old consumers continue.
        if len(found) > MAX_FETCHERS:
            raise CommandError(TOO_MANY.format(count=len(found), most=MAX_FETCHERS))
        configs = [part for name in found for part in self._config(config, name, housekeeping=housekeeping).each_part]
        if len(configs) > MAX_QUEUES:
            raise CommandError(TOO_MANY_PARTITIONS.format(count=len(configs), most=MAX_QUEUES))
        if housekeeping:
            return [replace(part, external=True) for part in configs]
        # Consumers have the same numbers for their queues as their supervisor.
        return sorted(configs, key=lambda queue: queue.external)

    @staticmethod
    def _config(config: Config, name: str, *, housekeeping: bool) -> QueueConfig:
        found, (topic, _, group) = config.queue(name), name.partition(GROUP_SEPARATOR)
        if not housekeeping and _is_foreign_group(name):
            known = listing(groups(topic))
            raise UnknownGroup(f"Topic {topic!r} has no subscriber with the group {group!r}; known: {known}")
        return found

    def _run(self, queues: list[QueueConfig], options: dict[str, Any]) -> None:
        consumed = [config.name for config in queues if not config.external]
        if options["drain"] and not consumed:
            raise CommandError("--drain needs a queue to consume.", returncode=2)
        given = {name: options[name] for name in ("threads", "grace", "drain", "max_messages", "max_memory")}
        worker_options = WorkerOptions(queues=consumed, **given)
        # Before there is a thread, a port or a connection.
        launcher = self._launcher(options, forks=bool(consumed))
        # First, because signals that arrived during execv() are blocked until then.
        with SignalPipe() as signals:
            with launcher, serving_ports(options) as (health, measured), notifying(health):
                if measured is not None:
                    launcher.measure(measured.module, measured.environment)
                supervisor = self._prepare(queues, options, worker_options, launcher, signals, health)
                code = 0 if supervisor is None else supervisor.run()
            # The ports are closed, and the signals are held, before the program is executed again.
            if supervisor is not None and supervisor.restarts and signals.hold():
                self._restart()
        if code:
            raise SystemExit(code)

    @staticmethod
    def _launcher(options: Mapping[str, Any], *, forks: bool) -> Launcher:
        """Return what starts the consumers, with a template if this process can be forked."""
        forks &= not (options["no_fork"] or options["autoreload"])
        first: Template | None = None
        # With metrics it is an interpreter that measures what the project does as it is loaded.
        if forks and not options["metrics_port"]:
            try:
                first = begin(environment())
            except CannotFork as error:
                logger.info(NOT_FORKED, error)
        return Launcher(
            first,
            arguments=["--log-format", options["log_format"], "--verbosity", str(options["verbosity"])],
            selection=[*options["queues"], *(["--housekeeping"] if options["housekeeping"] else [])],
            forks=forks,
        )

    def _prepare(
        self,
        queues: list[QueueConfig],
        options: dict[str, Any],
        worker_options: WorkerOptions,
        launcher: Launcher,
        signals: SignalPipe,
        health: Health,
    ) -> Supervisor | None:
        """Return the supervisor when Redis can be reached; None when asked to stop before."""
        if not preflight.await_server(queues, signals, patience=preflight.PATIENCE if options["drain"] else math.inf):
            return None
        preflight.require_groups([queue.name for queue in queues if _is_foreign_group(queue.name)])
        every, queues = queues, preflight.with_known_partitions(queues, all_of_them=options["drain"])
        worker_options = replace(worker_options, queues=[config.name for config in queues if not config.external])
        preflight.check_inbox(queues)
        for sentence in small_pools(worker_options.threads):
            logger.warning("%s", sentence)
        preflight.examine_servers(queues)
        # This imports all middleware: what a supervisor logs may be reported by it, as to Sentry.
        publishing_chain()
        supervisor = Supervisor(
            queues,
            processes=options["processes"],
            worker_options=worker_options,
            launcher=launcher,
            signals=signals,
            probe=Probe(every, launcher),
            health=health,
            watchers=[*watchers(), *([] if options["no_relay"] else outbox_services())],
        )
        _warn_without_handler(worker_options.queues)
        if options["verbosity"]:
            self.stdout.write(f"{_summary(worker_options.queues, queues)} Stop with Ctrl-C.")
        return supervisor

    def _restart(self) -> None:
        try:
            execute_again()
        except OSError as error:
            raise CommandError(f"The consumers have stopped and could not be restarted: {error}") from error


def _is_foreign_group(name: str) -> bool:
    """Return whether this is a group without a subscriber, or a handler that names the group in place of a queue."""
    return GROUP_SEPARATOR in name and name not in groups() and not own_names(name)


def _summary(consumed: Sequence[str], queues: Sequence[QueueConfig]) -> str:
    """Return which queues are handled, and of which only the housekeeping is done."""
    others = [config.name for config in queues if config.external]
    found = [("Handling", consumed), ("Housekeeping only for", others)]
    return " ".join(f"{what} {', '.join(listed(names))}." for what, names in found if names)


def _warn_without_handler(consumed: Sequence[str]) -> None:
    # A subscriber to all names of a topic is known by the empty name.
    if unknown := [name for name in consumed if not list(handled_names(name))]:
        logger.warning(NO_HANDLER, ", ".join(listed(unknown)))


def watchers() -> list[Service]:
    """Return the services that the project needs.

    One watches for problems, if the project has receivers. One takes samples for the metrics of the
    admin, if it is installed. One repairs runs of workflows: which modules start them is not known
    here, and without runs it asks Redis once a minute.
    """
    needed = {
        "ProblemWatcher": bool(problem_began.receivers or problem_ended.receivers),
        "Sampler": apps.is_installed("django.contrib.admin"),
        "RunRepairer": True,
    }
    return [import_string(f"{WATCHERS}.{name}")() for name, is_needed in needed.items() if is_needed]
