"""`python -m tests.chaos`: keep the promise under faults, and show it.

python -m tests.chaos [--tier ci|nightly] [--minutes N] [--seed TEXT] [--server PROGRAM]... [SCENARIO]...
"""

import os
import signal
import sys

import django

if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.chaos.settings"
    django.setup()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    from tests.chaos import report

    sys.exit(report.main(sys.argv[1:]))
