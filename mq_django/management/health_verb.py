"""The verb `health` of the command `mq`: a probe that a container or a process manager executes."""

import argparse
import socket
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mq_django import inspector
from mq_django.consumers.machine import has_ended, here
from mq_django.core.visible import escape
from mq_django.errors import MQError
from mq_django.inspector.consumers import ConsumerView
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import require_queue
from mq_django.management.argument_types import period
from mq_django.management.terminal import Terminal
from mq_django.management.verb import Options, Verb, VerbResult
from mq_django.transport.budgets import within


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    # Not `queues`, which the command itself looks for in Redis: that must end in time, too.
    parser.add_argument("served", nargs="*", metavar="queues", help="The queues that must be served. Default: any.")
    parser.add_argument(
        "--housekeeping", action="store_true", help="Accept a runconsumer that only does the housekeeping of a queue."
    )
    parser.add_argument(
        "--timeout", type=period, default=5.0, help="Seconds for the answer of Redis. Default: 5. For example 2 or 1m."
    )


def health(options: Options, _: Terminal) -> VerbResult:
    """Return whether a live supervisor of this machine serves the queues with consumers that are ready.

    Raises:
        UnknownQueue: a queue is not configured.
    """
    is_healthy, sentence = _in_time(options["served"], options["timeout"], housekeeping=options["housekeeping"])
    found = {"healthy": is_healthy, "sentence": sentence}
    return VerbResult(found, [escape(sentence)], code=0 if is_healthy else 1)


def _in_time(names: Sequence[str], seconds: float, *, housekeeping: bool) -> tuple[bool, str]:
    """Return the result, or that there is none in time: looking up a host name, for example, has no timeout."""
    results: list[tuple[bool, str]] = []
    errors: list[Exception] = []

    def look() -> None:
        try:
            with within(seconds):
                for name in names:
                    require_queue(name)
                results.append(_judge(inspector.overview(names, minutes=0), names, housekeeping=housekeeping))
        except Exception as error:  # noqa: BLE001 - raised below, if it is none of ours
            errors.append(error)

    # A daemon, so that the process may end before it.
    thread = threading.Thread(target=look, name="mq_django health", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors and (isinstance(errors[0], LookupError) or not isinstance(errors[0], MQError)):
        raise errors[0]
    if errors:
        return False, str(errors[0])
    return results[0] if results else (False, f"Redis has not answered within {seconds:g} s.")


def _judge(views: Sequence[QueueView], names: Sequence[str], *, housekeeping: bool) -> tuple[bool, str]:
    """Return whether the queues, or without names any queue, are served from here, and a sentence about that."""
    ready: dict[str, list[ConsumerView]] = {}
    failures = []
    for view in views:
        found = list(_here(view.consumers))
        ready[view.name] = [one for one in found if one.is_ready]
        if housekeeping or not view.consume:
            ready[view.name] += _here(view.housekeepers)
        if view.error:
            failures.append(f"Queue {view.name} cannot be read: {view.error}")
        elif not ready[view.name]:
            failures.append(_why_not(view.name, found))
    served = [name for name, found in ready.items() if found]
    if not served and not names:
        return False, failures[0] if len(failures) == 1 else "No runconsumer of this machine has a ready consumer."
    if names and failures:
        return False, " ".join(failures)
    supervisors = sorted({one.supervisor for found in ready.values() for one in found})
    return True, f"Served by {', '.join(supervisors)}: {', '.join(served)}."


def _why_not(queue: str, found: Sequence[ConsumerView]) -> str:
    if any(one.is_starting for one in found):
        return f"The consumers of queue {queue} are starting."
    if found:
        return f"The consumers of queue {queue} are stopping, or were asked to go quiet."
    return f"No live runconsumer of this machine serves queue {queue}."


def _here(consumers: Iterable[ConsumerView]) -> Iterable[ConsumerView]:
    """Yield those whose supervisor runs on this machine, in this container, and has sent a heartbeat recently."""
    return (one for one in consumers if one.alive and _runs_here(one.announced))


def _runs_here(announced: Mapping[str, Any]) -> bool:
    machine = here()
    if machine is None:
        return announced.get("host") == socket.gethostname()
    pid, moment = announced.get("pid"), announced.get("started")
    is_here = (announced.get("boot"), announced.get("pids")) == machine
    return is_here and not (isinstance(pid, int) and pid > 0 and isinstance(moment, str) and has_ended(pid, moment))


VERBS = (Verb("health", "Tell whether a runconsumer of this machine is ready, for exec probes.", health, add_options),)
