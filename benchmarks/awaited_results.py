"""How long a process waits for the result of a task. Target, at p50: twice the time from the call to the handler."""

import json
import os
import subprocess
import sys

from benchmarks.contenders import Contender
from benchmarks.trees import ROOT
from benchmarks.trial import Failed, Trial, percentile
from benchmarks.workloads import Figures

#: Tasks that are enqueued and waited for, one after another, after some that do not count.
COUNT, WARM_UP = 500, 50

#: From the call of enqueue() to the start of the task, and to the return of wait().
STARTED_P50, WAITED_P50 = "wait(): task started p50 ms", "wait(): returned p50 ms"
WAITED_P99 = "wait(): returned p99 ms"
#: The ratio of these two in one run, on the same tasks.
RATIO = "wait(): returned, by task started, p50"


def latency(contender: Contender) -> Figures:
    """Enqueue tasks one by one on a queue at rest, and wait for each.

    The target of RATIO is 2, because the way back has the same parts as the way there. Both are measured on the same
    tasks of the same process, so the load of the machine does not change the ratio much.
    """
    with Trial(contender) as trial, trial.consumer():
        command = [sys.executable, "-m", "benchmarks.ours.waiter", str(COUNT), str(WARM_UP)]
        env = {**os.environ, **trial.environment()}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise Failed(f"the results were not waited for: {done.stderr[-1000:]}")
    found = json.loads(done.stdout)
    started, waited = ([ns / 1e6 for ns in found[name]] for name in ("started", "waited"))
    return {
        STARTED_P50: percentile(started, 50),
        WAITED_P50: percentile(waited, 50),
        WAITED_P99: percentile(waited, 99),
        RATIO: percentile(waited, 50) / percentile(started, 50),
    }
