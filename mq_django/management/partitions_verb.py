"""The verb `partitions` of the command `mq`."""

import argparse
from typing import Any

from mq_django.inspector.partition_rows import PartitionRow, partitions
from mq_django.management.as_dict import PLACES
from mq_django.management.tables import away_text, table
from mq_django.management.terminal import Terminal
from mq_django.management.verb import Options, Verb, VerbResult


def list_partitions(options: Options, _: Terminal) -> VerbResult:
    """Show the partitions of a queue: what each has, and where it is."""
    found = [_row(each) for each in partitions(options["queue"])]
    away = {str(row["partition"]): str(row["error"]) for row in found if "error" in row}
    return VerbResult(found, table(found), away_text(away))


def _row(found: PartitionRow) -> dict[str, Any]:
    view = found.view
    counts: dict[str, Any] = {"error": view.error} if view.error else {place: getattr(view, place) for place in PLACES}
    seconds = None if view.waited_ms is None else round(view.waited_ms / 1000, 1)
    where = {"tag": found.tag, "node": found.node, "preferred": found.preferred}
    return {"partition": view.name, **counts, "waited_s": seconds, "paused": view.paused, **where}


def add_options(_: argparse.ArgumentParser) -> None:
    """Add no arguments: the queue is all."""


VERBS = (Verb("partitions", "Show the partitions of a queue.", list_partitions, add_options, has_queue=True),)
