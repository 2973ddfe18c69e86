"""The verb `stack` of the command `mq`."""

import argparse
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError

from mq_django.core.stacks import Stack, Stacks
from mq_django.core.visible import escape
from mq_django.inspector import processes
from mq_django.inspector.processes import ProcessView
from mq_django.inspector.stack_views import WAIT, ask_for_stacks, find_process, read_answer
from mq_django.management.tables import away_text, table
from mq_django.management.terminal import Heading, Terminal
from mq_django.management.verb import Options, Verb, VerbResult

NO_ANSWER = (
    "{consumer} did not answer within {wait:g} s. A handler may hold the GIL, in a call that is not Python; or the "
    "process is suspended, or is starting."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("consumer", help="The id of a consumer, as `mq consumers` lists it.")


def stack(options: Options, _: Terminal) -> VerbResult:
    """Ask a consumer for its stacks, and show them."""
    consumer = options["consumer"]
    found = find_process(consumer)
    request = None if found is None else ask_for_stacks(consumer, found[1].queues)
    if found is None or request is None:
        away = away_text(processes.everybody().errors)
        raise CommandError(f"There is no consumer {escape(consumer)}. {away}".rstrip())
    answer = read_answer(request, seconds=WAIT)
    if answer is None:
        running = _running(found[1])
        lines = [Heading("By the last heartbeat it runs:"), *table(running)] if running else []
        said = NO_ANSWER.format(consumer=escape(consumer), wait=WAIT)
        return VerbResult({"consumer": consumer, "stacks": None, "running": running}, lines, said)
    return VerbResult(
        {"consumer": consumer, "stacks": [_fields(one) for one in answer.stacks], "more": answer.more},
        list(_lines(answer)),
    )


def _running(process: ProcessView) -> list[dict[str, Any]]:
    return [
        {
            "queue": item.queue,
            "id": item.entry.message.id,
            "name": item.entry.message.name,
            "seconds": item.ms // 100 / 10,
        }
        for item in process.running
    ]


def _fields(one: Stack) -> dict[str, Any]:
    message = {"queue": one.queue or None, "id": one.id or None, "name": one.name or None}
    frames = [frame._asdict() for frame in one.frames]
    return {"kind": one.kind, **message, "ms": one.ms, "frames": frames, "left_out": one.left_out, "others": one.others}


def _lines(answer: Stacks) -> Iterator[str]:
    """Yield the lines of all stacks, each in the form of a traceback."""
    if not answer.stacks:
        yield "It runs nothing."
    for number, one in enumerate(answer.stacks):
        if number:
            yield ""
        yield Heading(_title(one))
        if one.left_out:
            yield f"  ... {one.left_out} outer frames are left out"
        if not one.frames:
            yield "  It has no frames: the handler is about to start, or has just ended."
        for frame in one.frames:
            yield f'  File "{escape(frame.file)}", line {frame.line}, in {escape(frame.function)}'
            if frame.code:
                yield f"    {escape(frame.code)}"
        if one.others:
            yield f"  ... and {one.others} more tasks that it awaits at the same time"
    if answer.more:
        yield ""
        yield f"{answer.more} more stacks are left out."


def _title(one: Stack) -> str:
    if one.kind == "task":
        return "A task on the event loop that no handler awaits"
    if one.kind == "sync":
        return "What a coroutine runs in another thread, with sync_to_async"
    named = f"{escape(one.name)}  {escape(one.id)}  of queue {escape(one.queue)}"
    return f"{named}, in a {one.kind} for {one.ms / 1000:.1f} s"


VERBS = (Verb("stack", "Show where each handler is that a consumer runs, without values.", stack, add_options),)
