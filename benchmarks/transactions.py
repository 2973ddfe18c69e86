"""What it costs to publish with a transaction on PostgreSQL: by the outbox, at the commit, and in other queues."""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from benchmarks import environments
from benchmarks.contenders import Contender
from benchmarks.messages import NOTES
from benchmarks.trees import ROOT
from benchmarks.trial import START, Failed, Note, Trial, percentile
from benchmarks.workloads import Figures
from tests.databases.database_servers import postgresql

#: Transactions that are timed, and messages whose latency counts.
TRANSACTIONS, PACED = 200, 100
#: Seconds in which a backlog must be handled.
PATIENCE = 120.0

#: All figures begin like this.
IN_DJANGO = "in Django: "
ALONE, PUBLISHED = f"{IN_DJANGO}transaction ms, a row alone", f"{IN_DJANGO}transaction ms, a row and a publish"
BY_ALONE = f"{IN_DJANGO}transaction by a row alone"
P50, P99 = f"{IN_DJANGO}commit to handler p50 ms", f"{IN_DJANGO}commit to handler p99 ms"
HANDLED = f"{IN_DJANGO}handled /s"


def costs(contender: Contender) -> Figures:
    """Measure the transactions of a project, and the handling of what they publish.

    Raises:
        Failed: there is no PostgreSQL here, or not all was handled in time.
    """
    try:
        with postgresql(durable=True) as options, Trial(_in_django(contender, options)) as trial:
            return _of_trial(trial)
    except pytest.skip.Exception as reason:
        raise Failed(str(reason)) from reason


def _in_django(contender: Contender, options: dict[str, Any]) -> Contender:
    own = {"DJANGO_SETTINGS_MODULE": "benchmarks.in_django.settings"} if contender.is_peer else {}
    return replace(contender, variables={**contender.variables, **own, "BENCH_DATABASE": json.dumps(options)})


def _of_trial(trial: Trial) -> Figures:
    contender = trial.contender
    alone, published = _write(trial, "costs", TRANSACTIONS)
    _write(trial, "fill", contender.handled)
    with trial.consumer(processes=contender.processes_for_eight):
        rate = rate_of(_noted(trial, contender.handled, PATIENCE))
        trial.client.delete(NOTES)
        committed: list[int] = _write(trial, "pace", PACED)
        late = [(note.handled - committed[note.number] / 1e9) * 1000 for note in _noted(trial, PACED, START)]
    return {
        ALONE: alone,
        PUBLISHED: published,
        BY_ALONE: published / alone,
        P50: percentile(late, 50),
        P99: percentile(late, 99),
        HANDLED: rate,
    }


def rate_of(notes: Sequence[Note]) -> float:
    """Return how many messages were handled in a second, after the first fifth."""
    first = notes[len(notes) // 5]
    return (len(notes) - len(notes) // 5 - 1) / (notes[-1].handled - first.handled)


def _noted(trial: Trial, count: int, timeout: float) -> list[Note]:
    notes = sorted(trial.wait_for_notes(count, timeout=timeout), key=lambda note: note.handled)
    if len(notes) < count:
        raise Failed(f"{trial.contender.name}: {len(notes)} of {count} messages of transactions were handled in time")
    return notes


def _write(trial: Trial, verb: str, count: int) -> Any:
    """Run the program that writes, and return what it has found."""
    contender = trial.contender
    python = environments.command(contender)[0]
    command = [python, "-m", "benchmarks.in_django.writer", contender.module, verb, str(count)]
    env = {**os.environ, **trial.environment()}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise Failed(f"{contender.name}: {verb} of transactions has failed: {done.stderr[-1000:]}")
    return json.loads(done.stdout.splitlines()[-1])
