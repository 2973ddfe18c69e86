"""The verb `consumers` of the command `mq`."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.core.management.base import CommandError

from mq_django.core.visible import escape
from mq_django.inspector import processes
from mq_django.management.as_dict import as_dict

#: The output of a verb: JSON values, and lines of text.
Output = tuple[Any, Sequence[str]]


def add_verbs(add: Callable[[str, str], argparse.ArgumentParser]) -> None:
    """Add the verbs to the command, each by `add(name, help)`."""
    consumers = add("consumers", "Show consumers and their running messages, or ask one to go quiet or to stop.")
    asking = consumers.add_mutually_exclusive_group()
    whom = "The id of a consumer or a supervisor."
    asking.add_argument("--quiet", metavar="id", help=f"{whom} It stops fetching, and finishes the messages it holds.")
    asking.add_argument("--stop", metavar="id", help=f"{whom} It stops when its running handlers have finished.")


def consumers(options: Mapping[str, Any]) -> Output:
    """Show consumers, or ask one to go quiet or to stop."""
    who = options["quiet"] or options["stop"]
    if who:
        queues = processes.ask(who, "quiet" if options["quiet"] else "stop")
        if not queues:
            raise CommandError(f"There is no consumer or supervisor {escape(who)}.")
        return {"asked": who, "queues": queues}, ["asked"]
    found = [
        as_dict(supervisor, process)
        for supervisor in processes.everybody().supervisors
        for process in supervisor.processes
    ]
    lines = [line for row in found for line in _lines(row)]
    return found, lines or ["No consumers."]


def _lines(row: Mapping[str, Any]) -> list[str]:
    queues = ",".join(row["queues"])
    state = f"{row['state']}  handled {row['handled']}  failed {row['failed']}  heartbeat {row['heartbeat_s']} s ago"
    return [
        f"{escape(row['consumer'])}  {state}  {queues}",
        *(
            f"    {escape(item['name'])}  {escape(item['id'])}  {item['queue']}  for {item['ms'] / 1000:.1f} s"
            for item in row["running"]
        ),
    ]
