"""The tiers: which servers, how long, and what is shown at the end."""

import argparse
import json
import os
import random
import secrets
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.chaos.checker import Verdict, Violation, late_handovers
from tests.chaos.scenarios import SCENARIOS
from tests.chaos.settings import STORES
from tests.chaos.surroundings import servers

#: Seconds until a campaign on one server is taken for stuck.
STUCK = 1500
#: Lines of stories that are repeated at the end.
STORY = 40
_telling = threading.Lock()
ROW = "{:<14} {:<18} {:>8} {:>6} {:>4} {:>5} {:>5} {:>5} {:>6} {:>6} {:>7} {:>5}\n"
HEAD = ("server", "scenario", "messages", "faults", "lost", "dup", "/flt", "early", "leaked", "stale", "p99 s", "s")


def main(arguments: Sequence[str]) -> int:
    """Run a tier, write a table and one JSON line, and return the exit code."""
    options = _parse(arguments)
    say = sys.stdout.write
    say(f"seed {options.seed}  (again: make chaos CHAOS_SEED={options.seed})\n")
    say(ROW.format(*HEAD))
    whole, began = Verdict(), time.monotonic()
    for turn in range(10_000):
        _play_everywhere(whole, options, f"{options.seed}/{turn}" if turn else options.seed)
        if time.monotonic() - began > options.minutes * 60:
            break
    whole.violations += late_handovers(whole)
    # Once more near the end, where whoever reads only the end of a long log finds it.
    for violation in whole.violations:
        say(f"VIOLATION {violation.invariant}: {violation.sentence}\n")
    for line in whole.stories[:STORY]:
        say(f"VIOLATION     {line}\n")
    say(json.dumps(_summary(whole)) + "\n")
    return 1 if whole.violations else 0


def _play_everywhere(whole: Verdict, options: argparse.Namespace, seed: str) -> None:
    """Play on all servers side by side: one waits for most of the time."""
    programs = options.servers or servers()
    if not programs:
        raise SystemExit("There is no Redis here to play on.")
    playing: list[subprocess.Popen[str]] = []
    ending = threading.Event()

    def play(number: int, program: Path) -> None:
        for store in options.stores or _stores(options.tier, number, len(programs)):
            if ending.is_set():
                return
            names = _scenarios(store, options, seed, number, len(programs))
            for told in _campaign(program, seed, store, options, names, playing):
                _take_in(whole, _version(program), store, told)

    with ThreadPoolExecutor(len(programs)) as pool:
        try:
            for done in [pool.submit(play, number, program) for number, program in enumerate(programs)]:
                done.result()
        finally:
            ending.set()
            for process in playing:
                process.terminate()


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--tier", choices=["ci", "nightly"], default="ci")
    parser.add_argument("--store", dest="stores", action="append", choices=STORES, default=[])
    parser.add_argument("--minutes", type=float, default=0.0, help="Begin no new turn after so long.")
    parser.add_argument("--seed", default="")
    parser.add_argument("--server", dest="servers", action="append", type=Path, default=[])
    options = parser.parse_args(arguments)
    options.seed = options.seed or secrets.token_hex(4)
    options.times = 3 if options.tier == "nightly" else 1
    return options


def _stores(tier: str, number: int, programs: int) -> list[str]:
    """Return what is tried on one of some servers: in the CI tier, each store beside the default one on one of them."""
    if tier == "nightly":
        return list(STORES)
    first, *others = STORES
    return [first, *(store for place, store in enumerate(others) if place % programs == number)]


def _scenarios(store: str, options: argparse.Namespace, seed: str, number: int, programs: int) -> list[str]:
    """Return the names of what is played on one of some servers; none for all.

    The CI tier plays each scenario on one of the servers; on which one depends on the seed.
    """
    if options.scenarios or options.tier == "nightly" or options.stores:
        return list(options.scenarios)
    if store != STORES[0]:
        return ["mixed"]
    names = [scenario.name for scenario in SCENARIOS if store in scenario.stores and scenario.is_in_ci]
    first = random.Random(seed).randrange(programs)
    return names[(number + first) % programs :: programs]


def _version(program: Path) -> str:
    told = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=True, timeout=280).stdout
    return " ".join(told.split()[:1]) + " " + next(word[2:] for word in told.split() if word.startswith("v="))


def _campaign(
    program: Path,
    seed: str,
    store: str,
    options: argparse.Namespace,
    names: Sequence[str],
    playing: list["subprocess.Popen[str]"],
) -> Iterator[dict[str, Any]]:
    """Yield what each scenario came to, played in a process of its own, so that it always ends."""
    code = "import sys, django; django.setup(); from tests.chaos.campaign import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, str(program), seed, str(options.times), *names]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "CHAOS_STORE": store})
    playing.append(process)
    limit = threading.Timer(STUCK * options.times, process.terminate)
    limit.daemon = True
    limit.start()
    assert process.stdout is not None
    try:
        for line in process.stdout:
            yield json.loads(line)
        code_of_end = process.wait(60)
        if code_of_end:
            yield {"scenario": "campaign", "broken": f"it ended with {code_of_end}"}
    finally:
        limit.cancel()
        process.terminate()
        process.wait(30)


def _take_in(whole: Verdict, server: str, store: str, told: dict[str, Any]) -> None:
    with _telling:
        _tell(whole, server, store, told)


def _tell(whole: Verdict, server: str, store: str, told: dict[str, Any]) -> None:
    name, say = told["scenario"], sys.stdout.write
    if store != "stream":
        name = f"{store} {name}"
    if "unavailable" in told:
        say(f"{server:<14} {name:<18} left out: {told['unavailable']}\n")
    elif "broken" in told:
        say(f"{server:<14} {name:<18} BROKEN: {told['broken']}\n")
        whole.violations.append(Violation("I11", told["broken"]))
    else:
        words = told["verdict"]
        found = Verdict(**{**words, "violations": [Violation(*item) for item in words["violations"]]})
        say(ROW.format(server, name, *_figures(found), round(told["seconds"])))
        found.violations[:] = [
            Violation(each.invariant, f"{each.sentence} ({name}, {server})") for each in found.violations
        ]
        for violation in found.violations:
            say(f"    {violation.invariant}: {violation.sentence}\n")
        for line in found.stories:
            say(f"        {line}\n")
        whole.add(found)
    sys.stdout.flush()


def _figures(found: Verdict) -> tuple[Any, ...]:
    return (
        *(found.messages, found.faults, found.lost, found.duplicates, found.duplicates_per_fault_max),
        *(found.early, found.leaked, found.stale, f"{_p99(found.recoveries):.2f}"),
    )


def _p99(seconds: Sequence[float]) -> float:
    if len(seconds) < 2:
        return max(seconds, default=0.0)
    return statistics.quantiles(seconds, n=100, method="inclusive")[98]


def _summary(whole: Verdict) -> dict[str, Any]:
    return {
        **{name: value for name, value in vars(whole).items() if isinstance(value, int)},
        "violations": len(whole.violations),
        "recovery_p99_s": round(_p99(whole.recoveries), 3),
        "handover_p99_s": round(_p99(whole.handovers), 3),
    }
