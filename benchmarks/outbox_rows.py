"""What the outbox costs: rows relayed a second, the time from a commit to the handler, and that of a transaction.

The databases are private servers that write each commit to the disk, as in production.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.contenders import Contender
from benchmarks.trees import ROOT, Tree, wait_until
from benchmarks.trial import START, Failed, Trial, percentile
from benchmarks.workloads import Figures, warm
from tests.databases.database_servers import KINDS

#: How the databases are called in figures.
NAMES = {"postgresql": "PostgreSQL", "sqlite": "SQLite", "mariadb": "MariaDB"}
#: Rows that are relayed, of which the first fifth does not count; messages whose latency counts; transactions.
ROWS, PACED, TRANSACTIONS = 20_000, 200, 200
#: Seconds in which all rows must be relayed.
PATIENCE = 120.0
#: Files that are flushed to the disk, to see how long that takes.
FLUSHES = 200

#: All figures of a database begin like this, with its name and a colon.
OUTBOX = "outbox, "
FSYNC = "ms of an fsync"
#: What is timed in a transaction, in the order of `ours.outbox_writer.costs()`: for one message, and for a thousand.
FORMS = ("a row alone", "and a publish at the commit", "and a publish by the outbox")
OF_MANY = "1,000 messages: "


#: What is measured of each database, in the words of its row.
RELAYED, OVER_DISK = "rows relayed /s", "commit to handler p50 ms, without 3 fsyncs"
P50, P99 = "commit to handler p50 ms", "commit to handler p99 ms"
TRANSACTION, BY_ALONE = "transaction ms: ", "by a row alone: "


def name_of(kind: str, what: str) -> str:
    """Return the name of a figure of a database."""
    return f"{OUTBOX}{NAMES[kind]}: {what}"


def costs(contender: Contender) -> Figures:
    """Measure the outbox of each kind of database that can be started here."""
    fsync = fsync_ms()
    figures = dict[str, float]()
    for kind in NAMES:
        try:
            figures |= {name_of(kind, what): value for what, value in _of_database(contender, kind, fsync).items()}
        except pytest.skip.Exception as reason:
            print(f"outbox of {NAMES[kind]} is left out: {reason}", file=sys.stderr)
    return figures


def fsync_ms() -> float:
    """Return the median of the ms that it takes to flush some bytes to the disk on which the databases are."""
    found = []
    with tempfile.NamedTemporaryFile(prefix="mq-bench-", dir="/tmp") as file:
        for _ in range(FLUSHES):
            file.write(bytes(512))
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            found.append((time.perf_counter() - began) * 1000)
    return statistics.median(found)


def _of_database(contender: Contender, kind: str, fsync: float) -> Figures:
    with KINDS[kind](durable=True) as options:
        variables = {"BENCH_DATABASE": json.dumps(options), "BENCH_OPTIONS": json.dumps({"OUTBOX": True})}
        ours = replace(contender, variables={**contender.variables, **variables})
        rate, late, times = _rate(ours), _latency(ours), _transactions(ours)
    p50, p99 = percentile(late, 50), percentile(late, 99)
    return {RELAYED: rate, P50: p50, P99: p99, FSYNC: fsync, OVER_DISK: p50 - 3 * fsync, **of_transactions(times)}


def of_transactions(times: Sequence[float]) -> Figures:
    """Return the figures of `ours.outbox_writer.costs()`: the ms, and their ratios to a row alone."""
    forms = [*FORMS, *(OF_MANY + form for form in FORMS)]
    found = {TRANSACTION + form: ms for form, ms in zip(forms, times, strict=True)}
    alone = dict.fromkeys(FORMS, times[0]) | dict.fromkeys(forms[len(FORMS) :], times[len(FORMS)])
    ratios = {
        BY_ALONE + form: ms / alone[form] for form, ms in zip(forms, times, strict=True) if not form.endswith(FORMS[0])
    }
    return {**found, **ratios}


def _rate(contender: Contender) -> float:
    """Have a relay publish many rows, and return how many in a second."""
    with Trial(contender) as trial:
        _write(trial, "fill", ROWS)
        command = [sys.executable, "-m", "django", "mq", "outbox", "--relay"]
        with Tree(command, trial.environment(), trial.log):
            return relay_rate(trial.remaining, ROWS)


def relay_rate(published: Callable[[], int], count: int) -> float:
    """Return how many rows are published in a second, after the first fifth."""
    started = _moment(published, count // 5)
    return (count - count // 5) / (_moment(published, count) - started)


def _moment(published: Callable[[], int], count: int) -> float:
    if not wait_until(lambda: published() >= count, timeout=PATIENCE, step=0.002):
        raise Failed(f"{published()} of {count} rows were published in time")
    return time.monotonic()


def _latency(contender: Contender) -> list[float]:
    """Return the ms from the commit to the handler, of messages with pauses between them."""
    with Trial(contender) as trial:
        _write(trial, "fill", 1)
        with trial.consumer():
            warm(trial)
            committed: list[int] = _write(trial, "pace", PACED)
            notes = trial.wait_for_notes(PACED, timeout=START)
    if len(notes) < PACED:
        raise Failed(f"{len(notes)} of {PACED} messages of the outbox were handled")
    return [(note.handled - committed[note.number] / 1e9) * 1000 for note in notes]


def _transactions(contender: Contender) -> list[float]:
    """Return the ms of transactions: see `ours.outbox_writer.costs()`."""
    with Trial(contender) as trial:
        found: list[float] = _write(trial, "costs", TRANSACTIONS)
    return found


def _write(trial: Trial, verb: str, count: int) -> Any:
    """Run the program that writes, and return what it has found."""
    command = [sys.executable, "-m", "benchmarks.ours.outbox_writer", verb, str(count)]
    env = {**os.environ, **trial.environment()}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise Failed(f"{verb} of the outbox has failed: {done.stderr[-1000:]}")
    return json.loads(done.stdout.splitlines()[-1])
