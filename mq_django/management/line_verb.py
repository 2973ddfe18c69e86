"""The verb `line` of the command `mq`: what the messages of a key wait for."""

import argparse
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError

from mq_django.core.visible import escape
from mq_django.inspector import key_lines
from mq_django.inspector.cause_sentences import head_words
from mq_django.inspector.key_lines import KeyLine, LineHead
from mq_django.management.as_dict import moment_text
from mq_django.management.job_runs import result_of
from mq_django.management.limits_verb import share_words
from mq_django.management.tables import table
from mq_django.management.terminal import Terminal
from mq_django.management.verb import Options, Verb, VerbResult


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("key", nargs="?", help="Default: the messages without a key, which take turns with FAIR.")
    parser.add_argument(
        "--skip",
        action="store_true",
        help="Let the key go on without the message that it waits for, which is then out of order.",
    )
    parser.add_argument(
        "--redrive", action="store_true", help="Redrive the dead letter that the key waits for, in place."
    )
    parser.add_argument("--yes", action="store_true", help="With --skip or --redrive: confirm without prompting.")


def line(options: Options, _: Terminal) -> VerbResult:
    """Show the line of a key, or let the key go on."""
    if options["skip"] and options["redrive"]:
        raise CommandError("Give --skip or --redrive, not both.", returncode=2)
    found = key_lines.key_line(options["queue"], options["key"])
    if options["skip"]:
        return _skip(found, is_confirmed=options["yes"])
    if options["redrive"]:
        return _redrive(found, is_confirmed=options["yes"])
    return VerbResult(_row(found), _lines(found))


def _skip(found: KeyLine, *, is_confirmed: bool) -> VerbResult:
    head = _head(found)
    if not head.can_be_skipped:
        raise CommandError(f"It cannot be skipped. The next messages wait for {head_words(head, found.now_ms)}")
    name = escape(head.id)
    if not is_confirmed:
        what = f"This lets the next messages of the key run before message {name}, which is then out of order."
        raise CommandError(f"{what} Confirm with --yes.", returncode=2)
    word = key_lines.skip(found.queue, found.hash, head.token)
    if word != "SKIPPED":
        line = key_lines.line_of(found.queue, found.hash)
        now = "the key waits for no message."
        if line.blocking is not None:
            now = f"the next messages wait for {head_words(line.blocking, line.now_ms)}"
        raise CommandError(f"Nothing was skipped, because the line has changed meanwhile: {now}")
    said = f"skipped message {name}: it stays where it is ({head.place}), and is out of order from now on"
    return VerbResult({"skipped": head.id, "place": head.place}, [said])


def _redrive(found: KeyLine, *, is_confirmed: bool) -> VerbResult:
    head = _head(found)
    if head.place != "dead":
        waits = f"The next messages wait for {head_words(head, found.now_ms)}"
        raise CommandError(f"There is no dead letter to redrive. {waits}")
    if not is_confirmed:
        what = f"This redrives the dead letter {escape(head.id)}, before the other messages of its key."
        raise CommandError(f"{what} Confirm with --yes.", returncode=2)
    return result_of(key_lines.redrive_head(found.queue, head), "redriven", ids=1)


def _head(found: KeyLine) -> LineHead:
    if found.blocking is None:
        why = "has no message that the others wait for" if found.ordered else "is in a queue without ORDERED"
        raise CommandError(f"Nothing holds up this key: it {why}.")
    return found.blocking


def _row(found: KeyLine) -> dict[str, Any]:
    return {
        "queue": found.queue,
        "key": found.key or None,
        "ordered": found.ordered,
        "parked": found.parked,
        "first": [
            {"id": message.id, "name": message.name, "published": moment_text(message.published_ms)}
            for message in found.first
        ],
        "tokens": found.tokens,
        "heads": [
            {
                "id": head.id,
                "name": head.name,
                "attempt": head.attempt,
                "place": head.place,
                "consumer": head.consumer or None,
                "since": moment_text(head.since_ms),
                "due": moment_text(head.due_ms),
            }
            for head in found.heads
        ],
        "share": None if found.share is None else round(found.share, 3),
    }


def _lines(found: KeyLine) -> Iterator[str]:
    row = _row(found)
    if found.blocking is not None and found.parked:
        yield f"The parked messages wait for {head_words(found.blocking, found.now_ms)}"
        yield ""
    if found.heads:
        yield from table(row["heads"])
        yield ""
    yield from table(row["first"])
    yield f"{found.parked} parked"
    if found.share is not None:
        yield f"The key has {share_words(found.share)}."


VERBS = (
    Verb("line", "Show what the messages of a key wait for, or let the key go on.", line, add_options, has_queue=True),
)
