"""Run several commands as one tree: `python -m benchmarks.several rq worker a + rq worker b`."""

import itertools
import signal
import subprocess
import sys
from collections.abc import Iterable


def split(words: Iterable[str]) -> list[list[str]]:
    """Return the commands that stand between '+'."""
    groups = itertools.groupby(words, lambda word: word == "+")
    return [list(command) for is_sign, command in groups if not is_sign]


def main() -> None:
    """Start the commands, and end them all when asked to, or when one ends."""
    running = [subprocess.Popen(command) for command in split(sys.argv[1:])]

    def stop(*_: object) -> None:
        for process in running:
            process.terminate()

    signal.signal(signal.SIGTERM, stop)
    running[0].wait()
    stop()
    for process in running:
        process.wait()


if __name__ == "__main__":
    main()
