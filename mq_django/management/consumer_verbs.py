"""The verb `consumers` of the command `mq`."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.core.management.base import CommandError

from mq_django.core.stacks import Stack, Stacks
from mq_django.core.texts import escape
from mq_django.inspector import processes
from mq_django.inspector.message_views import progress_line
from mq_django.inspector.processes import WAIT, ProcessView, ask_for_stacks, find_process, read_answer
from mq_django.management.as_dict import as_dict
from mq_django.management.terminal import Heading, Options, Terminal, Verb, VerbResult, away_text, table


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    asking = parser.add_mutually_exclusive_group()
    whom = "The id of a consumer or a supervisor."
    asking.add_argument("--quiet", metavar="id", help=f"{whom} It stops fetching, and finishes the messages it holds.")
    asking.add_argument("--stop", metavar="id", help=f"{whom} It stops when its running handlers have finished.")


def consumers(options: Options, _: Terminal) -> VerbResult:
    """Show consumers, or ask one to go quiet or to stop."""
    who = options["quiet"] or options["stop"]
    if who:
        queues = processes.ask(who, "quiet" if options["quiet"] else "stop")
        if not queues:
            away = away_text(processes.everybody().errors)
            raise CommandError(f"There is no consumer or supervisor {escape(who)}. {away}".rstrip())
        return VerbResult({"asked": who, "queues": queues}, ["asked"])
    everybody = processes.everybody()
    supervisors = everybody.supervisors
    found = [as_dict(supervisor, process) for supervisor in supervisors for process in supervisor.processes]
    found += [as_dict(supervisor) for supervisor in supervisors if supervisor.housekeeping]
    lines = _lines(found) or ["No consumers."]
    found += ({"queue": name, "error": error} for name, error in everybody.errors.items())
    return VerbResult(found, lines, away_text(everybody.errors))


def _lines(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a table of consumers, and one of their running messages."""
    columns = ("consumer", "state", "handled", "failed", "heartbeat_s", "queues")
    running = [
        {
            "consumer": row["consumer"],
            **{key: item[key] for key in ("queue", "name", "id")},
            "seconds": item["ms"] // 100 / 10,
            **({"progress": progress_line(**item["progress"])} if "progress" in item else {}),
        }
        for row in found
        for item in row["running"]
    ]
    lines = table([{column: row[column] for column in columns} for row in found])
    return [*lines, "", *table(running)] if running else lines


# The verb `stack` of the command `mq`.

NO_ANSWER = (
    "{consumer} did not answer within {wait:g} s. A handler may hold the GIL, in a call that is not Python; or the "
    "process is suspended, or is starting."
)


def add_stack_options(parser: argparse.ArgumentParser) -> None:
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
        list(_stack_lines(answer)),
    )


def _running(process: ProcessView) -> list[dict[str, Any]]:
    return [
        {
            "queue": item.queue,
            "id": item.message.id,
            "name": item.message.name,
            "seconds": item.ms // 100 / 10,
        }
        for item in process.running
    ]


def _fields(one: Stack) -> dict[str, Any]:
    message = {"queue": one.queue or None, "id": one.id or None, "name": one.name or None}
    frames = [frame._asdict() for frame in one.frames]
    return {"kind": one.kind, **message, "ms": one.ms, "frames": frames, "left_out": one.left_out, "others": one.others}


def _stack_lines(answer: Stacks) -> Iterator[str]:
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


VERBS = (
    Verb(
        "consumers",
        "Show consumers and their running messages, or ask one to go quiet or to stop.",
        consumers,
        add_options,
    ),
    Verb("stack", "Show where each handler is that a consumer runs, without values.", stack, add_stack_options),
)
