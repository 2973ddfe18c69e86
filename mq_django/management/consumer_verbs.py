"""What the command `mq` does with consumers. It returns what it found, and that as lines."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.core.management.base import CommandError

from mq_django.core.visible import escape
from mq_django.inspector import processes
from mq_django.inspector.processes import ProcessView, SupervisorView

#: What a verb found, as JSON can say it and as lines for people.
Told = tuple[Any, Sequence[str]]


def add_verbs(add: Callable[[str, str], argparse.ArgumentParser]) -> None:
    """Add the verbs to the command, each through `add(name, what it does)`."""
    consumers = add("consumers", "Show who consumes and what each handles, or ask one to go quiet or to stop.")
    asking = consumers.add_mutually_exclusive_group()
    whom = "A consumer or a supervisor, by its id."
    asking.add_argument("--quiet", metavar="id", help=f"Let it fetch no more and finish what it has. {whom}")
    asking.add_argument("--stop", metavar="id", help=f"Let it stop when what it runs has finished. {whom}")


def consumers(options: Mapping[str, Any]) -> Told:
    """Tell who consumes, or ask one for something."""
    who = options["quiet"] or options["stop"]
    if who:
        queues = processes.ask(who, "quiet" if options["quiet"] else "stop")
        if not queues:
            raise CommandError(f"There is no consumer or supervisor {escape(who)}.")
        return {"asked": who, "queues": queues}, ["asked"]
    found = [
        _told(supervisor, process)
        for supervisor in processes.everybody().supervisors
        for process in supervisor.processes
    ]
    lines = [line for row in found for line in _lines(row)]
    return found, lines or ["Nobody consumes."]


def _told(supervisor: SupervisorView, process: ProcessView) -> dict[str, Any]:
    seen = supervisor.seen_ms_ago
    return {
        "consumer": process.id,
        "supervisor": supervisor.id,
        "state": process.state if supervisor.alive else "gone",
        "asked": process.asked,
        "host": supervisor.host,
        "pid": process.pid,
        "version": supervisor.version,
        "since_ms": process.since_ms,
        "heartbeat_s": None if seen is None else round(seen / 1000, 1),
        "threads": process.threads,
        "queues": list(process.queues),
        "handled": process.handled,
        "failed": process.failed,
        "running": [
            {"queue": item.queue, "id": item.entry.message.id, "name": item.entry.message.name, "ms": item.ms}
            for item in process.running
        ],
    }


def _lines(row: Mapping[str, Any]) -> list[str]:
    queues = ",".join(row["queues"])
    told = f"{row['state']}  handled {row['handled']}  failed {row['failed']}  heartbeat {row['heartbeat_s']} s ago"
    return [
        f"{escape(row['consumer'])}  {told}  {queues}",
        *(
            f"    {escape(item['name'])}  {escape(item['id'])}  {item['queue']}  for {item['ms'] / 1000:.1f} s"
            for item in row["running"]
        ),
    ]
