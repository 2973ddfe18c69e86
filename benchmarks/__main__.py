"""`make bench`: run the suite, print its report, and write it into a folder."""

import argparse
import sys
from pathlib import Path

from benchmarks import chart, environments, report, runner
from benchmarks.contenders import BYTES, HANDLERS, PEERS, RAW, TASKS, Contender
from benchmarks.trees import ROOT

RESULTS = ROOT / "benchmarks" / "results"


def _chosen(names: str) -> list[Contender]:
    """Return the contenders: ours and the raw limit always, of the peers those that were asked for and can be run."""
    chosen = [RAW, BYTES, HANDLERS, TASKS]
    wanted = [name.strip().lower() for name in names.split(",")]
    for peer in PEERS:
        if "all" in wanted or peer.environment in wanted:
            reason = environments.prepare(peer)
            if reason:
                print(f"{peer.name} is left out: {reason}", file=sys.stderr)
            else:
                chosen.append(peer)
    return chosen


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--peers", default="all", help="all, none, or names such as rq,celery")
    parser.add_argument("--only", default="", help="names of steps, separated by commas; all when empty")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    wanted = [name.strip() for name in options.only.split(",") if name.strip()]
    steps = [step for step in runner.STEPS if not wanted or step.name in wanted]
    contenders = _chosen(options.peers)
    results = runner.run(contenders, steps)
    report.save(results, options.out, contenders)
    (options.out / "chart.svg").write_text(chart.svg(results.medians()), encoding="utf-8")
    print(report.markdown(results, contenders))


if __name__ == "__main__":
    main()
