"""Commands of manage.py, one after the other in one process.

Each line that it reads is the arguments of a command as JSON; each that it writes is what the command printed, or its
error.
"""

import json
import sys
from contextlib import redirect_stdout
from io import StringIO

import django
from django.core.management import call_command


def run() -> None:
    for line in sys.stdin:
        out, error = StringIO(), ""
        try:
            with redirect_stdout(out):
                call_command(*json.loads(line), stdout=out)
        except Exception as found:  # noqa: BLE001 - the test reads it
            error = repr(found)
        print(json.dumps([out.getvalue(), error]), file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    django.setup()
    run()
