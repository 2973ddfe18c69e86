"""The regression guard: ratios to the raw limit of the same minute, loose enough that noise does not fail it."""

import sys

from benchmarks import runner
from benchmarks.contenders import HANDLERS, RAW, TASKS
from benchmarks.targets import GUARDED, LOOSE

STEPS = ("publish", "bulk", "handle")


def main() -> int:
    """Measure, print each ratio beside its floor, and return 1 when one is below."""
    record = runner.run([RAW, HANDLERS, TASKS], [step for step in runner.STEPS if step.name in STEPS])
    figures, code = record.medians(), 0
    for target in GUARDED:
        value, floor = target.value(figures) or 0.0, target.bound * LOOSE
        slow = value < floor
        code = code or int(slow)
        print(f"{'SLOW' if slow else 'ok  '} {target.what}: {value:.2f}, floor {floor:.2f}")
    return code


if __name__ == "__main__":
    sys.exit(main())
