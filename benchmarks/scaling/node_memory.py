"""Bytes of a message in each of its places, and of a key that has a line, by the growth of `used_memory`."""

import json
import os
import subprocess
import sys

from benchmarks.contenders import Contender
from benchmarks.keyed_queues import with_options
from benchmarks.trees import ROOT
from benchmarks.trial import Failed, Trial
from benchmarks.workloads import Figures

#: Messages of each place.
COUNT = 20_000
READY, DELAYED, IN_LINE = "node: bytes a ready message", "node: bytes a delayed message", "node: bytes in a line"
#: What each message in a line costs more where it is the only one of its key.
LINE = "node: bytes a key with a line"


def bytes_by_place(contender: Contender) -> Figures:
    """Fill a queue with messages of each kind, and see how the server's memory grows."""
    keyed = with_options(contender, {"FAIR": True})
    one, each = (_filled(keyed, "lined", keys) for keys in (1, COUNT))
    return {
        READY: _filled(contender, "ready", 0),
        DELAYED: _filled(contender, "delayed", 0),
        IN_LINE: one,
        LINE: each - one,
    }


def _filled(contender: Contender, place: str, keys: int) -> float:
    """Return the bytes a message."""
    with Trial(contender) as trial:
        command = [sys.executable, "-m", "benchmarks.ours.filler", place, str(COUNT), str(keys)]
        env = {**os.environ, **trial.environment()}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise Failed(f"no messages were {place}: {done.stderr[-1000:]}")
    return float(json.loads(done.stdout)["bytes"]) / COUNT
