"""How long the pages of the admin take with very many messages, and how many commands they send."""

import json
import os
import subprocess
import sys

from benchmarks.contenders import Contender
from benchmarks.trees import ROOT
from benchmarks.trial import Failed, Trial
from benchmarks.workloads import Figures

WAITING, DEAD, QUEUES = 1_000_000, 100_000, 50

#: What figures of pages begin with.
PAGE = "page "
#: The p95 of the slowest page, and the most commands that a page sends beside two for each queue that it shows.
SLOWEST, MOST = "slowest page p95 ms", "commands of a page over 2 a queue"


def every_page(contender: Contender) -> Figures:
    """Fill queues, and ask for every page again and again."""
    with Trial(contender, queues=QUEUES) as trial:
        command = [sys.executable, "-m", "benchmarks.ours.admin_pages", str(WAITING), str(DEAD)]
        env = {**os.environ, **trial.environment()}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode:
        raise Failed(f"the pages could not be measured: {done.stderr[-1000:]}")
    found = json.loads(done.stdout)
    figures = {
        f"{PAGE}{page} {name}": value
        for page, figures in found.items()
        for name, value in (
            ("p50 ms", figures["p50"]),
            ("p95 ms", figures["p95"]),
            ("commands", figures["commands"]),
        )
    }
    return {
        **figures,
        SLOWEST: max(page["p95"] for page in found.values()),
        MOST: max(page["over"] for page in found.values()),
    }
