"""The verb `consumers` of the command `mq`."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import CommandError

from mq_django.core.visible import escape
from mq_django.inspector import processes
from mq_django.inspector.progress_views import progress_line
from mq_django.management.as_dict import as_dict
from mq_django.management.tables import away_text, table
from mq_django.management.terminal import Terminal
from mq_django.management.verb import Options, Verb, VerbResult


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    asking = parser.add_mutually_exclusive_group()
    whom = "The id of a consumer or a supervisor."
    asking.add_argument("--quiet", metavar="id", help=f"{whom} It stops fetching, and finishes the messages it holds.")
    asking.add_argument("--stop", metavar="id", help=f"{whom} It stops when its running handlers have finished.")


def consumers(options: Options, _: Terminal) -> VerbResult:
    """Show consumers, or ask one to go quiet or to stop."""
    who = options["quiet"] or options["stop"]
    if who:
        queues = processes.ask(who, "quiet" if options["quiet"] else "stop")
        if not queues:
            away = away_text(processes.everybody().errors)
            raise CommandError(f"There is no consumer or supervisor {escape(who)}. {away}".rstrip())
        return VerbResult({"asked": who, "queues": queues}, ["asked"])
    everybody = processes.everybody()
    supervisors = everybody.supervisors
    found = [as_dict(supervisor, process) for supervisor in supervisors for process in supervisor.processes]
    found += [as_dict(supervisor) for supervisor in supervisors if supervisor.housekeeping]
    lines = _lines(found) or ["No consumers."]
    found += ({"queue": name, "error": error} for name, error in everybody.errors.items())
    return VerbResult(found, lines, away_text(everybody.errors))


def _lines(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a table of consumers, and one of their running messages."""
    columns = ("consumer", "state", "handled", "failed", "heartbeat_s", "queues")
    running = [
        {
            "consumer": row["consumer"],
            **{key: item[key] for key in ("queue", "name", "id")},
            "seconds": item["ms"] // 100 / 10,
            **({"progress": progress_line(**item["progress"])} if "progress" in item else {}),
        }
        for row in found
        for item in row["running"]
    ]
    lines = table([{column: row[column] for column in columns} for row in found])
    return [*lines, "", *table(running)] if running else lines


VERBS = (
    Verb(
        "consumers",
        "Show consumers and their running messages, or ask one to go quiet or to stop.",
        consumers,
        add_options,
    ),
)
