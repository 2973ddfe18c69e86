"""The commands of a page, run in this process, with their output compared."""

import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from io import StringIO

from django.core.management import call_command, load_command_class

#: What a page may show. Those that go on until they are ended are only parsed.
PARSED = {"runconsumer": "mq_django", "check": "django.core", "migrate": "django.core"}
ENDLESS = {"metrics", "doctor"}


def run_commands(example):
    """Run each command of a box, and compare what it prints if the box shows that."""
    commands = re.findall(r"^\$ (.*)\n?((?:(?!\$ ).*\n?)*)", example.parsed, re.MULTILINE)
    assert commands, "no line begins with '$ '"
    for line, shown in commands:
        program, command, *arguments = shlex.split(line, comments=True)
        assert program == "manage.py"
        if command in PARSED:
            load_command_class(PARSED[command], command).create_parser("manage.py", command).parse_args(arguments)
            continue
        assert command == "mq"
        load_command_class("mq_django", "mq").create_parser("manage.py", "mq").parse_args(arguments)
        if arguments and arguments[0] not in ENDLESS:
            printed = output_of(arguments, may_fail=bool(shown.strip()))
            fits = OutputChecker().check_output(shown.strip(), printed.strip(), ELLIPSIS | NORMALIZE_WHITESPACE)
            assert fits or not shown.strip(), f"{line}\n{printed}"


def output_of(arguments, may_fail):
    written = StringIO()
    with redirect_stdout(written), redirect_stderr(StringIO()):
        try:
            call_command("mq", *arguments)
        except SystemExit:
            # A check that finds a problem ends with a code. The page shows what it has found.
            if not may_fail:
                raise
    return written.getvalue()
