"""The verb `schedules` of the command `mq`."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError

from mq_django.conf import get_config
from mq_django.core.jsontext import loads
from mq_django.core.message_format import moment
from mq_django.core.redaction import redact
from mq_django.core.texts import escape
from mq_django.errors import DecodeError
from mq_django.inspector import plans
from mq_django.inspector.message_views import moment_text
from mq_django.management.terminal import (
    Options,
    Terminal,
    VerbResult,
    columns,
    confirm,
    read_each,
    table,
    user_name,
    with_away,
)
from mq_django.management.verb_types import duration, priority
from mq_django.producers.schedules import config_of, schedules
from mq_django.stores.schedule_status import ScheduleStatus

#: Schedules of a queue that are listed, the first ones by name. Other programs may have written any number.
MAX_LISTED = 5000

#: The options of a schedule that are JSON.
JSON_OPTIONS = ("data", "args", "kwargs")

#: The prefix of the names of its options' values.
PREFIX = "schedule_"

#: The options of a schedule, with their types and help. Django has a use of its own for `args`.
OPTIONS: dict[str, tuple[Callable[[str], Any], str]] = {
    "cron": (str, "A cron expression, such as '0 7 * * mon-fri'."),
    "timezone": (str, "With --cron: such as Europe/Berlin. Default: the project's TIME_ZONE."),
    "every": (duration, "Instead of --cron: seconds."),
    "message": (str, "The name of the message."),
    "task": (str, "Instead of --message: the path of a task."),
    "priority": (priority, "-100 to 100, or high, normal, low."),
    "key": (str, "The key of the message."),
    "expires": (duration, "Seconds after its tick in which a message may be handled."),
    "starts": (str, "The time before which it does not fire, such as 2026-11-01T06:00Z."),
    "ends": (str, "The time after which it does not fire."),
    "data": (str, "Data of the message: JSON."),
    "args": (str, "Arguments of the task: a JSON list."),
    "kwargs": (str, "A JSON object."),
}

#: The columns of the table.
_SHOWN = ("queue", "name", "origin", "when", "message", "state", "next", "skips", "fired", "problem")


def show(options: Options, _: Terminal) -> VerbResult:
    """Show the schedules of code, settings and run time, with secrets replaced."""
    queue = options["queue"]
    if queue is None:
        configs = [config for config in get_config().queues.values() if config.has_schedules]
        views, away = read_each(configs, lambda config: plans.schedules(config.name, limit=MAX_LISTED))
    else:
        views, away = {queue: plans.schedules(config_of(queue).name, limit=MAX_LISTED)}, {}
    rows = [_row(plan) for view in views.values() for plan in view.found]
    lines = table([{key: row[key] for key in _SHOWN} for row in rows])
    more = {name: view.total - len(view.found) for name, view in views.items() if view.total > len(view.found)}
    note = " ".join(f"Queue {name} has {count} more schedules, which are not shown." for name, count in more.items())
    return with_away(rows, lines, "No schedules.", away, note=note)


def _row(status: ScheduleStatus) -> dict[str, Any]:
    """Return a schedule with secrets replaced."""
    options = {name: redact(value) if name in JSON_OPTIONS else value for name, value in status.options.items()}
    state = "removed" if status.origin == "removed" else "paused" if status.paused else "on"
    known = "fired_ms problem? paused_by? paused_ms created_by? created_ms changed_by? changed_ms"
    return {
        **columns(status, "queue name origin message next_ms"),
        "when": None if status.when is None else str(status.when),
        "state": "invalid" if status.problem else state,
        "skips": [moment_text(tick.tick_ms) for tick in status.skips],
        **columns(status, known),
        "options": options or None,
        "override": _override(status),
    }


def _override(status: ScheduleStatus) -> dict[str, Any] | None:
    """Return what overrides the times of a schedule."""
    found = status.override
    if found is None:
        return None
    row = columns(found, "code_before code_changed=is_outdated by=set_by at=set_ms reason")
    return {"code": str(found.code), **row}


def create(options: Options, _: Terminal) -> VerbResult:
    """Create a schedule."""
    paused = options["paused"]
    made = schedules.create(options["name"], queue=options["queue"], by=user_name(), paused=paused, **_given(options))
    return VerbResult(_row(made), ["created"])


def change(options: Options, _: Terminal) -> VerbResult:
    """Change a schedule that was created at run time."""
    changes: Any = {**_given(options), **dict.fromkeys(options["remove"] or ())}
    if not changes:
        raise CommandError("Give an option to change, or --remove.", returncode=2)
    changed = schedules.update(options["name"], queue=options["queue"], by=user_name(), **changes)
    return VerbResult(_row(changed), ["changed"])


def _given(options: Options) -> Any:
    """Return the options of a schedule that were given."""
    found = {
        name.removeprefix(PREFIX): value
        for name, value in options.items()
        if name.startswith(PREFIX) and value is not None
    }
    for name in found.keys() & {*JSON_OPTIONS}:
        try:
            found[name] = loads(found[name].encode(errors="surrogateescape"))
        except DecodeError as error:
            raise CommandError(f"--{name} is {error}", returncode=2) from error
    return found


def pause(options: Options, _: Terminal) -> VerbResult:
    """Pause a schedule."""
    changed = schedules.pause(options["name"], queue=options["queue"], by=user_name())
    return VerbResult({"paused": True, "changed": changed}, ["paused" if changed else "was already paused"])


def resume(options: Options, _: Terminal) -> VerbResult:
    """Resume a schedule from its next tick on."""
    changed = schedules.resume(options["name"], queue=options["queue"])
    return VerbResult({"paused": False, "changed": changed}, ["resumed" if changed else "was not paused"])


def override(options: Options, _: Terminal) -> VerbResult:
    """Let a schedule in code or settings fire at other times until it is restored."""
    about = {"queue": options["queue"], "by": user_name(), "reason": options["reason"] or ""}
    status = schedules.override(options["name"], **about, **_given(options))
    following = moment_text(status.next_ms) or "none"
    return VerbResult(_row(status), [f"overridden: {status.when}. The next tick is {following}."])


def restore(options: Options, _: Terminal) -> VerbResult:
    """Let the times in code or settings count again."""
    was = schedules.restore(options["name"], queue=options["queue"])
    return VerbResult({"restored": was}, ["restored" if was else "was not overridden"])


def fire(options: Options, _: Terminal) -> VerbResult:
    """Publish the message of a schedule now."""
    message_id = schedules.fire(options["name"], queue=options["queue"])
    return VerbResult({"id": message_id}, [message_id])


def delete(options: Options, _: Terminal) -> VerbResult:
    """Delete a schedule that was created at run time."""
    confirm(options, "The schedule never fires again.")
    schedules.delete(options["name"], queue=options["queue"])
    return VerbResult({"deleted": True}, ["deleted"])


def skip(options: Options, _: Terminal) -> VerbResult:
    """Let one tick of a schedule pass without a message."""
    name, queue, tick = options["name"], options["queue"], options["tick"]
    if options["undo"]:
        found = schedules.unskip(name, queue=queue, tick=tick)
        if found is None:
            return VerbResult({"unskipped": None}, ["was not skipped"])
        return VerbResult({"unskipped": _text(found)}, [f"{_text(found)} is no longer skipped"])
    skipped = _text(schedules.skip(name, queue=queue, tick=tick, by=user_name()))
    status = schedules.get(name, queue=queue)
    following = moment_text(status.next_ms)
    what = "is paused" if status.paused else f"fires next at {following}" if following else "has no other tick"
    return VerbResult({"skipped": skipped, "next": following}, [f"{skipped} is skipped. The schedule {what}."])


def _text(tick: datetime) -> str:
    return moment(round(tick.timestamp() * 1000))


def coming(options: Options, _: Terminal) -> VerbResult:
    """Show the next times at which a schedule fires."""
    name, queue = options["name"], options["queue"]
    found = schedules.get(name, queue=queue)
    ticks = plans.next_ticks(queue, name, count=options["count"])
    times = [moment(tick) for tick in ticks]
    skipped = [moment(skip.tick_ms) for skip in found.skips if ticks and skip.tick_ms < ticks[-1]]
    lines = sorted([*times, *(f"{time}  skipped" for time in skipped)])
    why = "It is paused." if found.paused else found.problem or "It has ended."
    return VerbResult({"queue": queue, "name": name, "next": times, "skipped": skipped}, lines or [escape(why)])


def forget(options: Options, _: Terminal) -> VerbResult:
    """Delete the state of a schedule that was removed from the code."""
    name, queue = options["name"], options["queue"]
    plan = plans.find(queue, name, plans.Origin.REMOVED)
    if plan is None:
        raise CommandError(f"Queue {escape(queue)} has no state of a removed schedule {escape(name)}.")
    confirm(options, "If it returns to the code, it starts anew.")
    plans.forget(plan)
    return VerbResult({"forgotten": True}, ["forgotten"])
