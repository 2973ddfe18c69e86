"""What slow handlers cost a full core, by what they cost at a low rate: python -m benchmarks.scaling.full_core

Sixteen threads cannot fill the core of Redis. So it is filled with other commands, whose cost is known and taken off.
"""

import time

from benchmarks.contenders import HANDLERS
from benchmarks.scaling.node_costs import FAIR, ORDERED, PLAIN, ROUNDS, SLOW_COUNT, Kind, kinds
from benchmarks.scaling.replay import replay
from benchmarks.scaling.server_use import ServerUse
from benchmarks.trees import wait_until
from benchmarks.trial import START, Failed, Trial

#: Commands that fill the core.
PINGS = [b"*1\r\n$4\r\nPING\r\n"] * 500
#: Seconds of each of both measurements.
TOOK = 1.5
#: Messages whose handlers are slow: enough for both.
COUNT = SLOW_COUNT * 3 // 2


def compared(kind: Kind) -> tuple[float, float]:
    """Return the microseconds that a message of slow handlers costs at a low rate, and on a full core."""
    if kind.fill_slow is None:
        raise Failed(f"{kind.name}: has no slow handlers")
    with Trial(kind.contender) as trial:
        kind.configure(trial)
        alone = replay(trial.url, PINGS, seconds=TOOK)
        kind.fill_slow(trial, COUNT)
        with trial.consumer(processes=2):
            if not wait_until(lambda: trial.remaining() <= COUNT * 9 // 10, timeout=START, step=0.2):
                raise Failed(f"{kind.name}: {trial.remaining()} of {COUNT} messages were left")
            before, left = ServerUse.of(trial.client), trial.remaining()
            time.sleep(TOOK)
            low = ServerUse.of(trial.client).since(before).cpu / (left - trial.remaining()) * 1e6
            left, began = trial.remaining(), time.perf_counter()
            full = replay(trial.url, PINGS, seconds=TOOK)
            rate = (left - (now_left := trial.remaining())) / (time.perf_counter() - began)
            if not now_left:
                raise Failed(f"{kind.name}: all messages were handled too early")
    return low, (full.micros - alone.micros) * full.rate / rate


def main() -> None:
    """Print both figures of each round, for each kind of queue."""
    chosen = [kind for kind in kinds(HANDLERS) if kind.name in {PLAIN, ORDERED, FAIR}]
    for kind in chosen * ROUNDS:
        low, full = compared(kind)
        print(f"{kind.name}: {low:.1f} us at a low rate, {full:.1f} us on a full core: {full / low:.2f}", flush=True)


if __name__ == "__main__":
    main()
