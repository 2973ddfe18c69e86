"""`make bench`: run the suite, print its report, and write it into a folder."""

import argparse
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from benchmarks import chart, documents, environments, headings, report, runner
from benchmarks.contenders import AT_COMMIT, BY_OUTBOX, BYTES, HANDLERS, RAW, TASKS, Contender
from benchmarks.record import Record
from benchmarks.trees import ROOT
from benchmarks.trial import redis_version

RESULTS = ROOT / "benchmarks" / "results"
#: Always measured.
MINE = (RAW, BYTES, HANDLERS, TASKS, BY_OUTBOX, AT_COMMIT)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _steps(wanted: Collection[str]) -> list[runner.Step]:
    unknown = set(wanted) - {step.name for step in runner.STEPS}
    if unknown:
        sys.exit(f"There is no step {', '.join(sorted(unknown))}; there are {', '.join(s.name for s in runner.STEPS)}.")
    return [step for step in runner.STEPS if not wanted or step.name in wanted]


def _known() -> list[Contender]:
    return [*headings.peers(), *headings.in_django()]


def _peers(wanted: Collection[str], steps: Sequence[runner.Step]) -> list[Contender]:
    """Return the peers that were asked for, take part in a step, and can be run here; say of the others why not."""
    known = [peer for peer in _known() if any(step.takes(peer, everything=True) for step in steps)]
    unknown = set(wanted) - {"all", "none"} - {peer.environment for peer in known}
    if unknown:
        sys.exit(f"There is no peer {', '.join(sorted(unknown))}; there are {', '.join(_names(known))}.")
    reasons: dict[str, str] = {}
    server = redis_version()
    for peer in known:
        if peer.environment not in reasons and ("all" in wanted or peer.environment in wanted):
            reasons[peer.environment] = environments.prepare(peer, server)
            if reasons[peer.environment]:
                print(f"{peer.name} is left out: {reasons[peer.environment]}", file=sys.stderr)
    return [peer for peer in known if reasons.get(peer.environment) == ""]


def _names(peers: Sequence[Contender]) -> list[str]:
    return list(dict.fromkeys(peer.environment for peer in peers))


def _contenders(record: Record) -> list[Contender]:
    return [one for one in [*MINE, *_known()] if one.name in record.contenders]


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--peers", default="all", help="all, none, or names such as rq,celery")
    parser.add_argument("--only", default="", help="names of steps, separated by commas; all when empty")
    parser.add_argument("--everything", action="store_true", help="long steps for peers, too; takes twice the time")
    parser.add_argument("--write-docs", action="store_true", help="renew the figures in the README and in docs/")
    parser.add_argument("--again", type=Path, metavar="JSON", help="no measuring: report what this file has")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    only = _words(options.only)
    if options.write_docs and not set(only) <= documents.OF_STEPS.keys():
        parser.error(f"most pages show whole runs: with --write-docs, --only names {' or '.join(documents.OF_STEPS)}")
    if options.again:
        record = Record.load(options.again)
    else:
        steps = _steps(only)
        record = runner.run([*MINE, *_peers(_words(options.peers), steps)], steps, everything=options.everything)
    contenders = _contenders(record)
    options.out.mkdir(parents=True, exist_ok=True)
    record.save(options.out / "results.json")
    told = report.markdown(record, contenders)
    (options.out / "results.md").write_text(told, encoding="utf-8")
    (options.out / "chart.svg").write_text(chart.svg(record.medians()), encoding="utf-8")
    if options.write_docs:
        documents.write(record, contenders, steps=only)
    print(told)


if __name__ == "__main__":
    main()
