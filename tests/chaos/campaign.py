"""All scenarios on one server, in a process of its own."""

import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mq_django.transport.private_server import ServerBinary
from tests.chaos.checker import Verdict
from tests.chaos.scenarios import SCENARIOS, Scenario
from tests.chaos.settings import STORE
from tests.chaos.stage import staged
from tests.chaos.surroundings import Unavailable


def play(scenario: Scenario, binary: ServerBinary, seed: str, *, times: int = 1) -> Verdict:
    """Play a scenario and return the verdict.

    Raises:
        Unavailable: this machine, or this server, cannot stage it.
    """
    with (
        scenario.around(binary) as surroundings,
        staged(
            binary,
            f"{seed}/{scenario.name}",
            rate=scenario.rate,
            ms=scenario.ms,
            settings=scenario.settings,
            road=scenario.road,
            surroundings=surroundings,
            kind=scenario.stage,
        ) as stage,
    ):
        stage.start_trees(scenario.trees)
        if scenario.before:
            scenario.before(stage)
        if scenario.publishes:
            stage.producer.start()
        return scenario.play(stage, scenario.rounds * times) or stage.finish()[0]


def chosen(names: Sequence[str]) -> list[Scenario]:
    """Return the scenarios of these names, or all when there is none."""
    return [found for found in SCENARIOS if STORE in found.stores and (not names or found.name in names)]


def campaign(binary: ServerBinary, seed: str, names: Sequence[str], *, times: int = 1) -> Iterator[dict[str, Any]]:
    """Yield what each scenario came to."""
    for scenario in chosen(names):
        began = time.monotonic()
        try:
            verdict = play(scenario, binary, seed, times=times)
        except Unavailable as why:
            yield {"scenario": scenario.name, "unavailable": str(why)}
        else:
            yield {"scenario": scenario.name, "seconds": time.monotonic() - began, "verdict": asdict(verdict)}


def main(arguments: Sequence[str]) -> None:
    """Write a JSON line a scenario to stdout. Arguments: the server's program, a seed, how many rounds, scenarios."""
    # So that what a scenario started ends with it, whoever asks.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    program, seed, times, *names = arguments
    binary = ServerBinary(path=Path(program), origin="chosen")
    for told in campaign(binary, seed, names, times=int(times)):
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
