"""Inspect and manage queues from a terminal."""

import os
import sys
from datetime import UTC
from typing import Any, TextIO

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.translation import override

from mq_django.core.texts import repr_of
from mq_django.discovery import import_declaring
from mq_django.errors import MQError, UnknownQueue
from mq_django.inspector.problem_sentences import times_in
from mq_django.inspector.queues import require_queue
from mq_django.management.terminal import OutputError, Terminal, user_name, writing
from mq_django.management.verbs import VERBS
from mq_django.stores.activity import acting

#: The exit code if the reader of the output has closed it, as that of a program that SIGPIPE ends.
CLOSED = 141


def _discard(*streams: TextIO) -> None:
    """Let what these streams still write go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream.fileno())


class Command(BaseCommand):
    """`manage.py mq VERB`."""

    help = "Inspect and manage queues."

    def add_arguments(self, parser: CommandParser) -> None:
        """See BaseCommand.add_arguments()."""
        parser.add_argument("--json", action="store_true", help="Print JSON.")
        below = parser.add_subparsers(dest="verb", metavar="|".join(VERBS))
        for name, verb in VERBS.items():
            verb.add_to(below, name)

    def run_from_argv(self, argv: list[str]) -> None:
        """See BaseCommand.run_from_argv(). Without a traceback if the output is closed, as by `| head`, or full."""
        if sys.stdout is None:
            raise SystemExit("CommandError: The output is closed.")
        try:
            try:
                super().run_from_argv(argv)
            finally:
                # Here, because an error of the interpreter's own flush is printed.
                with writing():
                    sys.stdout.flush()
        except BrokenPipeError:
            _discard(sys.stdout, sys.stderr)
            raise SystemExit(CLOSED) from None
        except OutputError as error:
            _discard(sys.stdout)
            raise SystemExit(f"CommandError: {error}") from None

    # The output is English and in UTC: sentences of the admin stand among it. Times that are typed are in TIME_ZONE.
    @override("en")
    def handle(self, *args: Any, **options: Any) -> None:
        """See BaseCommand.handle()."""
        import_declaring()
        terminal = Terminal(self, as_json=options["json"], force_color=bool(options.get("force_color")))
        try:
            for queue in (options.get("queue"), *(options.get("queues") or ())):
                if queue is not None:
                    require_queue(queue)
            with acting(user_name(), "mq"), times_in(UTC):
                result = VERBS[options["verb"] or "status"].run_with(options, terminal)
            if result is not None:
                terminal.show(result.found, result.lines)
                if result.note:
                    terminal.report(result.note)
        except MQError as error:
            # Of a check, 1 means that there are problems.
            is_argument = isinstance(error, (ValueError, TypeError, *([UnknownQueue] if options.get("check") else [])))
            raise CommandError(str(error), returncode=2 if is_argument else 1) from error
        except UnicodeEncodeError as error:
            raise CommandError(f"An argument is no UTF-8 text: {repr_of(error.object)}", returncode=2) from error
        if result is not None and result.error:
            raise CommandError(result.error)
        if result is not None and result.code:
            raise SystemExit(result.code)
