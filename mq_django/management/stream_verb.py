"""The verb `tail` of the command `mq`: what the handler of a message streams."""

import json
from base64 import b64encode

from django.core.management.base import CommandError

from mq_django import inspect
from mq_django.conf import get_config
from mq_django.core.message_streams import Chunk
from mq_django.core.texts import escape
from mq_django.errors import NotSupported, StreamNotFound, WaitTimeout
from mq_django.inspector.message_stream import stream_of, without_secrets
from mq_django.management.message_verbs import SECONDS, not_searched, unknown
from mq_django.management.terminal import Options, Terminal, columns
from mq_django.producers.message_streams import read_stream

#: The exit codes if no end is known, and of Ctrl-C: that of a program which SIGINT ends.
UNKNOWN, INTERRUPTED = 2, 130


def tail(options: Options, terminal: Terminal) -> None:
    """Print what the handler of a message streams as it comes, until its end.

    Raises:
        CommandError: the message was not handled, nothing is known of it, or nothing came for long.
    """
    printer, chunk = _Printer(terminal), None
    try:
        _check_known(options["id"], options["queue"])
        how = {name: options[name] for name in ("queue", "after", "timeout")}
        for chunk in read_stream(options["id"], **how):
            printer.show(without_secrets(chunk))
    except KeyboardInterrupt:
        printer.end_line()
        raise SystemExit(INTERRUPTED) from None
    except (NotSupported, StreamNotFound, WaitTimeout) as error:
        printer.end_line()
        raise CommandError(str(error), returncode=UNKNOWN) from error
    if chunk is not None and chunk.outcome != "handled":
        raise CommandError("The message was not handled.")


def _check_known(message_id: str, queue: str | None) -> None:
    """Refuse an id of which nothing is known: its stream would be waited for in vain.

    Raises:
        CommandError: neither a stream nor the message is found.
    """
    configs = [*(get_config().each_part() if queue is None else get_config().queue(queue).each_part)]
    if not any(stream_of(config.name, message_id) for config in configs):
        search = inspect.find_everywhere(message_id, seconds=SECONDS)
        if not search.found and not not_searched(search):
            raise CommandError(unknown(message_id, search), returncode=UNKNOWN)


class _Printer:
    """Prints chunks: texts one after the other, anything else in lines. What is not streamed goes to stderr."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._is_in_line = False

    def show(self, chunk: Chunk) -> None:
        """Print a chunk at once."""
        value = b64encode(chunk.value).decode() if chunk.kind == "bytes" else chunk.value
        if self._terminal.as_json:
            row = columns(chunk, "id kind value attempt number outcome? error?")
            self._terminal.write(json.dumps({**row, "value": value}))
        elif chunk.kind == "text":
            self._terminal.write(escape(value, lines=True), ending="")
            self._is_in_line = not value.endswith("\n") if value else self._is_in_line
        else:
            self.end_line()
            self._line(chunk, value)
        self._terminal.flush()

    def end_line(self) -> None:
        """Begin a new line if text stands in this one."""
        if self._is_in_line:
            self._terminal.write("")
            self._is_in_line = False

    def _line(self, chunk: Chunk, value: object) -> None:
        match chunk.kind:
            case "restart":
                self._terminal.report(f"Restarted: attempt {chunk.attempt}")
            case "end":
                self._terminal.report(f"Ended: {chunk.outcome}{f', {escape(chunk.error)}' if chunk.error else ''}")
            case "json":
                self._terminal.write(escape(json.dumps(value, ensure_ascii=False)))
            case _:
                self._terminal.write(escape(str(value)))
