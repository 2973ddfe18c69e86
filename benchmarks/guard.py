"""The regression guard: ratios to the raw limit of the same minute, loose enough that noise does not fail it."""

import sys

from benchmarks import runner
from benchmarks.contenders import HANDLERS, RAW, TASKS
from benchmarks.targets import GUARDED, LOOSE

STEPS = ("publish", "bulk", "handle")


#: Other work on the machine can slow down one side of a ratio for a whole run. What is slow by itself is so twice.
RUNS = 2


def slow() -> set[str]:
    """Measure, print each ratio beside its floor, and return what is below."""
    record = runner.run([RAW, HANDLERS, TASKS], [step for step in runner.STEPS if step.name in STEPS])
    figures, found = record.medians(), set()
    for target in GUARDED:
        value, floor = target.value(figures) or 0.0, target.bound * LOOSE
        if value < floor:
            found.add(target.what)
        print(f"{'SLOW' if value < floor else 'ok  '} {target.what}: {value:.2f}, floor {floor:.2f}")
    return found


def main() -> int:
    """Return 1 when a ratio is below its floor each time."""
    below = {target.what for target in GUARDED}
    for _ in range(RUNS):
        below &= slow()
        if not below:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
