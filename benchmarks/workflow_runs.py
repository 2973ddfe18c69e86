"""What a step of a workflow costs, in small and large runs, and how long the scripts of workflows take."""

import json
import os
import subprocess
import sys

from benchmarks.contenders import Contender
from benchmarks.trees import ROOT
from benchmarks.trial import Failed, Trial
from benchmarks.workloads import Figures

#: Steps of the two runs whose costs by step are compared, of those that all wait for all, and of a chain.
SMALL, LARGE, CROSSED, CHAINED = 1000, 10_000, 1000, 300
#: Runs of which the slowest script is looked for. Another process that gets the core makes any command of one slow.
LOOKS, LOOKED = 5, 2000

PER_STEP, CHAIN_STEP = "workflow: ms a step of 10,000", "workflow: ms a step of a chain"
#: The first as a share of the same of a run of 1,000 steps; and of 1,000 steps of which each waits for 1,000 others.
GROWTH = "workflow: a step of 10,000 by one of 1,000"
CROSSED_GROWTH = "workflow: a step of 1,000 after 1,000 by one of 1,000"
#: Of the run in which it was shortest.
SLOWEST_SCRIPT = "workflow: slowest script ms"


def costs(contender: Contender) -> Figures:
    """Run workflows of no-op tasks in one consumer process, which has the machine with the starter and Redis."""
    with Trial(contender) as trial, trial.consumer():
        small, large, crossed, chained = _run(
            trial, f"mapped={SMALL}", f"mapped={LARGE}", f"crossed={CROSSED}", f"chained={CHAINED}"
        )
        slowest = min(_slowest(trial) for _ in range(LOOKS))
    return {
        PER_STEP: large / LARGE * 1000,
        CHAIN_STEP: chained / CHAINED * 1000,
        GROWTH: (large / LARGE) / (small / SMALL),
        CROSSED_GROWTH: (crossed / (2 * CROSSED)) / (small / SMALL),
        SLOWEST_SCRIPT: slowest,
    }


def _run(trial: Trial, *shapes: str) -> list[float]:
    """Return the seconds that a run of each shape takes."""
    command = [sys.executable, "-m", "benchmarks.ours.workflow_starter", *shapes]
    env = {**os.environ, **trial.environment()}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise Failed(f"the runs did not succeed: {done.stderr[-1000:]}")
    found: list[float] = json.loads(done.stdout)
    return found


def _slowest(trial: Trial) -> float:
    """Return the milliseconds of the slowest script of one run."""
    trial.client.config_set("slowlog-log-slower-than", 500)
    trial.client.config_set("slowlog-max-len", 10_000)
    trial.client.slowlog_reset()
    _run(trial, f"mapped={LOOKED}")
    slow = trial.client.slowlog_get(10_000)
    return max((each["duration"] / 1000 for each in slow if each["command"].startswith(b"EVAL")), default=0.0)
