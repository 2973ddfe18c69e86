"""Run a management command of the example project."""

import os
import sys
from pathlib import Path

from django.core.management import execute_from_command_line


def main() -> None:
    """Run the command named on the command line."""
    # Started as a script, Python looks for modules beside this file: `shop` would then be importable
    # under two names, and each model would exist twice.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
