"""The verb `schedules` of the command `mq`."""

import argparse
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError

from mq_django.conf import QueueConfig, get_config
from mq_django.core.jsontext import loads
from mq_django.core.texts import escape
from mq_django.core.wire import moment
from mq_django.errors import ConnectionLost, ConnectionRejected, DecodeError, StoreError
from mq_django.inspector import plans
from mq_django.inspector.message_views import moment_text
from mq_django.management.argument_types import page_size
from mq_django.management.as_dict import as_dict
from mq_django.management.terminal import Options, Terminal, Verb, VerbResult, add_parser, away_text, table, user_name
from mq_django.producers.schedules import schedules

#: Options of a schedule that are JSON, and their help.
_JSON = {
    "data": "Data of the message: JSON.",
    "args": "Arguments of the task: a JSON list.",
    "kwargs": "A JSON object.",
}
#: The other ones, with their types and help.
_OPTIONS: dict[str, tuple[Callable[[str], Any], str]] = {
    "cron": (str, "A cron expression, such as '0 7 * * mon-fri'."),
    "timezone": (str, "With --cron: such as Europe/Berlin. Default: the project's TIME_ZONE."),
    "every": (float, "Instead of --cron: seconds."),
    "message": (str, "The name of the message."),
    "task": (str, "Instead of --message: the path of a task."),
    "priority": (int, "-100 to 100."),
    "key": (str, "The key of the message."),
    "expires": (float, "Seconds after its tick in which a message may be handled."),
    "starts": (str, "The time before which it does not fire, such as 2026-11-01T06:00Z."),
    "ends": (str, "The time after which it does not fire."),
}


def add_actions(parser: argparse.ArgumentParser) -> None:
    """Add the actions of the verb."""
    actions = parser.add_subparsers(
        dest="action", metavar="list|next|create|change|pause|resume|skip|fire|delete|forget"
    )
    listing = add_parser(actions, "list", "Show the schedules of code, settings and run time, with secrets replaced.")
    listing.add_argument("--queue", help="A queue. Default: all queues.")
    coming = _named(add_parser(actions, "next", "Show the next times at which a schedule fires."))
    coming.add_argument("--count", type=page_size, default=5, help="Default: 5. At most 500.")
    creating = _named(add_parser(actions, "create", "Create a schedule."))
    creating.add_argument("--paused", action="store_true", help="It does not fire until it is resumed.")
    changing = _named(add_parser(actions, "change", "Change a schedule that was created at run time."))
    names = [*_OPTIONS, *_JSON]
    changing.add_argument("--remove", action="append", choices=names, default=[], help="Remove this option.")
    for each in (creating, changing):
        for name, (kind, what) in _OPTIONS.items():
            each.add_argument(f"--{name}", type=kind, dest=_dest(name), metavar=name.upper(), help=what)
        for name, what in _JSON.items():
            each.add_argument(f"--{name}", dest=_dest(name), metavar=name.upper(), help=what)
    _named(add_parser(actions, "pause", "Pause a schedule."))
    _named(add_parser(actions, "resume", "Resume a schedule from its next tick on."))
    skipping = _named(add_parser(actions, "skip", "Let one tick of a schedule pass without a message."))
    skipping.add_argument(
        "--tick", metavar="TIME", help="A later tick, such as 2026-11-24T03:00Z. Default: the next one."
    )
    skipping.add_argument("--undo", action="store_true", help="Let it fire. Default: the first tick that is skipped.")
    _named(add_parser(actions, "fire", "Publish the message of a schedule now."))
    deleting = _named(add_parser(actions, "delete", "Delete a schedule that was created at run time."))
    forgetting = _named(add_parser(actions, "forget", "Delete the state of a schedule that was removed from the code."))
    for each in (deleting, forgetting):
        each.add_argument("--yes", action="store_true", help="Confirm without prompting.")


def _dest(option: str) -> str:
    """Return the name of an option's value. Django has a use of its own for `args`."""
    return f"schedule_{option}"


def _named(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("name", help="The name of the schedule.")
    parser.add_argument("--queue", default="default", help="Its queue. Default: default.")
    return parser


def run(options: Options, _: Terminal) -> VerbResult:
    """Do an action; without one, list."""
    action, name = options.get("action") or "list", options.get("name", "")
    if action == "list":
        return _list(options.get("queue"))
    queue: str = options["queue"]
    who = f"{user_name()}, mq"
    match action:
        case "create":
            made = schedules.create(name, queue=queue, by=who, paused=options["paused"], **_given(options))
            return VerbResult(as_dict(made), ["created"])
        case "change":
            changes: Any = {**_given(options), **dict.fromkeys(options["remove"])}
            if not changes:
                raise CommandError("Give an option to change, or --remove.", returncode=2)
            return VerbResult(as_dict(schedules.update(name, queue=queue, by=who, **changes)), ["changed"])
        case "pause":
            changed = schedules.pause(name, queue=queue, by=who)
            return VerbResult({"paused": True, "changed": changed}, ["paused" if changed else "was already paused"])
        case "resume":
            changed = schedules.resume(name, queue=queue)
            return VerbResult({"paused": False, "changed": changed}, ["resumed" if changed else "was not paused"])
        case "skip":
            return _skip(name, queue, options["tick"], who, undo=options["undo"])
        case "fire":
            message_id = schedules.fire(name, queue=queue)
            return VerbResult({"id": message_id}, [message_id])
        case "next":
            return _next(name, queue, options["count"])
        case _:
            remove = {"delete": _delete, "forget": _forget}[action]
            return remove(name, queue, is_confirmed=options["yes"])


def _list(queue: str | None) -> VerbResult:
    """Show the schedules of a queue, or of all queues: those of a server that cannot be reached have its error."""
    configs = [config for config in get_config().queues.values() if config.has_schedules]
    rows, away = _of(configs) if queue is None else (list(map(as_dict, schedules.get_all(queue))), {})
    lines = table([{key: row[key] for key in _SHOWN} for row in rows]) or ["No schedules."]
    found = [*rows, *({"queue": name, "error": error} for name, error in away.items())]
    return VerbResult(found, lines, away_text(away))


def _of(configs: Sequence[QueueConfig]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the schedules of queues, and the errors of those that cannot be reached."""
    rows: list[dict[str, Any]] = []
    away: dict[str, StoreError] = {}
    for config in configs:
        try:
            # One timeout is enough to know that a server cannot be reached.
            if config.connection not in away:
                rows += map(as_dict, schedules.get_all(config.name))
        except (ConnectionLost, ConnectionRejected) as error:
            away[config.connection] = error
    return rows, {config.name: str(away[config.connection]) for config in configs if config.connection in away}


def _delete(name: str, queue: str, *, is_confirmed: bool) -> VerbResult:
    if not is_confirmed:
        raise CommandError("The schedule never fires again. Confirm with --yes.", returncode=2)
    schedules.delete(name, queue=queue)
    return VerbResult({"deleted": True}, ["deleted"])


def _skip(name: str, queue: str, tick: str | None, who: str, *, undo: bool) -> VerbResult:
    if undo:
        return _unskip(name, queue, tick)
    skipped = _text(schedules.skip(name, queue=queue, tick=tick, by=who))
    status = schedules.get(name, queue=queue)
    following = moment_text(status.next_ms)
    what = "is paused" if status.paused else f"fires next at {following}" if following else "has no other tick"
    return VerbResult({"skipped": skipped, "next": following}, [f"{skipped} is skipped. The schedule {what}."])


def _unskip(name: str, queue: str, tick: str | None) -> VerbResult:
    found = schedules.unskip(name, queue=queue, tick=tick)
    if found is None:
        return VerbResult({"unskipped": None}, ["was not skipped"])
    return VerbResult({"unskipped": _text(found)}, [f"{_text(found)} is no longer skipped"])


def _text(tick: datetime) -> str:
    return moment(round(tick.timestamp() * 1000))


def _next(name: str, queue: str, count: int) -> VerbResult:
    """Show the next ticks, and those that are skipped before the last of them. A paused schedule has none."""
    found = schedules.get(name, queue=queue)
    ticks = plans.next_ticks(queue, name, count=count)
    times = [moment(tick) for tick in ticks]
    skipped = [moment(skip.tick_ms) for skip in found.skips if ticks and skip.tick_ms < ticks[-1]]
    lines = sorted([*times, *(f"{time}  skipped" for time in skipped)])
    why = "It is paused." if found.paused else found.problem or "It has ended."
    return VerbResult({"queue": queue, "name": name, "next": times, "skipped": skipped}, lines or [escape(why)])


def _forget(name: str, queue: str, *, is_confirmed: bool) -> VerbResult:
    plan = plans.find(queue, name, plans.Origin.REMOVED)
    if plan is None:
        raise CommandError(f"Queue {escape(queue)} has no state of a removed schedule {escape(name)}.")
    if not is_confirmed:
        raise CommandError("If it returns to the code, it starts anew. Confirm with --yes.", returncode=2)
    plans.forget(plan)
    return VerbResult({"forgotten": True}, ["forgotten"])


#: The columns of the table.
_SHOWN = ("queue", "name", "origin", "when", "message", "state", "next", "skips", "fired", "problem")


def _given(options: Options) -> Any:
    """Return the options of a schedule that were given."""
    found = {name: options[_dest(name)] for name in (*_OPTIONS, *_JSON) if options[_dest(name)] is not None}
    for name in found.keys() & _JSON.keys():
        try:
            found[name] = loads(found[name].encode(errors="surrogateescape"))
        except DecodeError as error:
            raise CommandError(f"--{name} is {error}", returncode=2) from error
    return found


VERBS = (Verb("schedules", "Show schedules; create, change, pause and delete them.", run, add_actions),)
