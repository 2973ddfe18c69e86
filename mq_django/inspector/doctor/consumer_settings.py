"""Looks at the settings with which consumers were started, as far as their supervisors announce these."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from mq_django.conf import QueueConfig, get_config
from mq_django.core.numbers import score
from mq_django.core.version import VERSION
from mq_django.core.visible import escape
from mq_django.inspector.doctor.consumer_facts import QueueFacts
from mq_django.inspector.doctor.findings import DoctorFinding, Look, named
from mq_django.inspector.queue_view import QueueView
from mq_django.registry import find, names


def _of_options(facts: QueueFacts) -> Iterator[DoctorFinding]:
    """Report consumers that were started with other settings."""
    different = {}
    for queue in facts.readable:
        config = get_config().queue(queue.name)
        live = [one for one in (*queue.consumers, *queue.housekeepers) if one.alive]
        found = {name for one in live for name in _different(config, one.announced)}
        if found:
            different[queue.name] = sorted(found)
    if different:
        shown = named(f"{name} ({', '.join(options)})" for name, options in different.items())
        yield DoctorFinding(
            code="D304",
            level="warning",
            seen=f"Consumers were started with other settings than those of this process: {shown}.",
            advice="If this is not a rolling deploy, restart runconsumer, or send it SIGHUP.",
        )


def _different(config: QueueConfig, announced: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options of a queue that a supervisor has with another value."""
    visibility = announced.get("visibility_ms")
    if visibility is not None and visibility != round(config.visibility_timeout.total_seconds() * 1000):
        yield "VISIBILITY_TIMEOUT"
    digests = announced.get("options")
    # Versions may differ in their defaults. That they differ is a finding of its own.
    if isinstance(digests, dict) and announced.get("version") == VERSION:
        own = get_config().digests_of(config)
        for name in own.keys() | digests.keys():
            if own.get(name) != digests.get(name):
                yield escape(name)[:40]


def _of_grace(facts: QueueFacts) -> Iterator[DoctorFinding]:
    """Report handlers that may run for longer than they get when their process stops."""
    found = []
    for queue in facts.readable:
        longest, grace = _longest(queue.name), _shortest_grace(queue)
        if longest is not None and grace is not None and longest.total_seconds() > grace:
            found.append(f"{queue.name} ({longest.total_seconds():g} s, --grace {grace:g})")
    if found:
        yield DoctorFinding(
            code="D307",
            level="note",
            seen="Handlers may run for longer than runconsumer waits for them when it stops, as at each deploy: "
            f"{named(found)}. Their messages are then handled again from the beginning.",
            advice="Start runconsumer with a --grace of at least the longest timeout, and give it 25 s more to stop: "
            "TimeoutStopSec= of systemd, stop_grace_period of Compose, terminationGracePeriodSeconds of Kubernetes.",
        )


def _longest(queue: str) -> timedelta | None:
    """Return the longest timeout of the handlers of a queue; None if none has one."""
    handlers = [handler for name in names(queue) if (handler := find(queue, name))]
    of_queue = get_config().queue(queue).timeout
    timeouts = [of_queue, *(handler.timeout for handler in handlers)]
    return max((timeout for timeout in timeouts if timeout is not None), default=None)


def _shortest_grace(queue: QueueView) -> float | None:
    found = [score(one.announced.get("grace")) for one in queue.consumers if one.alive]
    return min((seconds for seconds in found if seconds is not None), default=None)


SETTING_LOOKS: tuple[Look[QueueFacts], ...] = (
    Look("settings of consumers", ("D304",), _of_options),
    Look("grace periods", ("D307",), _of_grace),
)
