"""The verbs `limit` and `repartition` of the command `mq`: changed limits, and another number of partitions."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from django.core.management.base import CommandError

from mq_django import inspect
from mq_django.conf import QueueConfig, get_config
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.limits import LIMITS, LimitChange, LimitName, Limits
from mq_django.core.options import MAX_PARTITIONS
from mq_django.core.texts import escape
from mq_django.inspector.problem_sentences import changed_limit
from mq_django.management.terminal import Options, Terminal, VerbResult, columns, confirm, table, user_name
from mq_django.stores.activity import Effect, Given, recorded
from mq_django.stores.repartitioning import Repartitioning
from mq_django.transport.connections import open_transport

#: The options, with their help.
OPTIONS: Mapping[LimitName, str] = {
    "rate": 'The rate of the queue, such as 10/s or 5/10s; "none": no limit.',
    "concurrency": 'The most deliveries at once of the queue, or "none".',
    "key_rate": 'The rate of each key, or "none".',
    "key_concurrency": 'The most deliveries at once of each key, or "none".',
}


def limit(options: Options, _: Terminal) -> VerbResult:
    """Change limits of a queue until they are changed back, or list those that are not as in the settings."""
    queue, values = options["queue"], {name: options[name] for name in LIMITS if options[name] is not None}
    reset = () if options["reset"] is None else options["reset"] or LIMITS
    if twice := values.keys() & {*reset}:
        raise CommandError(f"--reset contradicts --{min(twice).replace('_', '-')}.", returncode=2)
    values |= dict.fromkeys(reset, "settings")
    if values or options["reason"]:
        if queue is None:
            raise CommandError("Give a queue.", returncode=2)
        changed = inspect.set_limits(queue, **values, who=user_name(), reason=options["reason"])
        return VerbResult({"changed": changed}, ["changed" if changed else "was as in the settings"])
    views = inspect.queues([] if queue is None else [queue])
    rows = [
        {"queue": view.name, **changed_row(change, get_config().queue(view.name).limits)}
        for view in views
        for change in view.limit_changes.values()
    ]
    lines = table([{key: value for key, value in row.items() if key != "sentence"} for row in rows])
    if queue is not None and not get_config().queue(queue).limits.changeable:
        lines = [f"Queue {queue} has no limits in the settings that could be changed."]
    return VerbResult(rows, lines or ["All limits are as in the settings."])


def changed_row(change: LimitChange, limits: Limits) -> dict[str, Any]:
    """Return a changed limit of a queue with these limits in the settings."""
    setting = str(getattr(limits, change.limit) or "none")
    row = {**columns(change, "limit value"), "setting": setting, **columns(change, "who? reason? since_ms")}
    return {**row, "sentence": changed_limit(change, limits)}


#: Seconds between two looks at what handlers still hold.
LOOK = 0.2

#: Partitions that an error names.
MAX_NAMED = 5


@dataclass(slots=True, kw_only=True)
class Repartitioned:
    """What this run of the command has moved."""

    #: Messages, claims of unique keys, and notes of workflows, as far as this process has moved them.
    moved: int = 0
    #: Claims of unique keys whose messages had ended, and perhaps had a key: they could not be moved.
    forgotten: int = 0
    #: Results of tasks that had ended.
    results: int = 0
    #: Schedules whose state, or definition, was in another partition.
    schedules: int = 0
    #: Messages that producers have meanwhile published to the queue without partitions.
    strays: int = 0


def repartition(options: Options, terminal: Terminal) -> VerbResult:
    """Change the number of partitions of a queue."""
    config, number = get_config().queue(options["queue"]), options["number"]
    _check(config, number, is_abort=options["abort"])
    found = Repartitioning(config, open_transport("chores", config.connection))
    if options["abort"]:
        return _abort(found)
    state, name = found.state, escape(config.name)
    if state.phase == "open":
        strays = found.in_plain() if state.recorded == number != 1 else 0
        if state.recorded == number and not strays:
            return VerbResult(asdict(Repartitioned()), [f"Queue {name} has this number of partitions already."])
        _confirm(options, found)
        found.begin(number, of_plain=strays > 0)
    elif state.new != number:
        raise CommandError(
            f"The number of partitions of queue {name} is being changed from {state.old} to {state.new}. Go on with "
            f"`mq repartition {name} {state.new}`{_abort_hint(found)}.",
            returncode=2,
        )
    done = _run(found, terminal, options["timeout"])
    return _result(config, number, done)


def _check(config: QueueConfig, number: int | None, *, is_abort: bool) -> None:
    if (number is None) != is_abort:
        raise CommandError("Give the new number of partitions, or --abort.", returncode=2)
    if number is not None and number > MAX_PARTITIONS:
        raise CommandError(f"A queue has at most {MAX_PARTITIONS} partitions.", returncode=2)
    if GROUP_SEPARATOR in config.name:
        raise CommandError(
            "The number of partitions of a topic does not change. Publish to a topic with another name.", returncode=2
        )
    if config.store != "stream":
        raise CommandError("Queues in RSMQ's format have no partitions.", returncode=2)
    if config.is_partition:
        name = escape(config.public_name)
        raise CommandError(f"{escape(config.name)} is a partition: name the queue, {name}.", returncode=2)


def _confirm(options: Options, found: Repartitioning) -> None:
    name, old, new = escape(options["queue"]), found.state.recorded, options["number"]
    confirm(
        options,
        f"This closes queue {name}, moves all that is in it from {old} to {new} partitions, and opens it. Processes "
        f"with another PARTITIONS than {new} can then no longer publish to it.",
    )


def _abort(found: Repartitioning) -> VerbResult:
    if found.state.phase == "open":
        return VerbResult({"aborted": False}, ["The number of partitions is not being changed."])
    if found.state.phase != "pausing":
        raise CommandError(f"Messages may have moved. Go on: run the command again with {found.state.new}.")
    found.abort()
    return VerbResult({"aborted": True}, ["aborted"])


def _abort_hint(found: Repartitioning) -> str:
    return ", or end that with --abort" if found.state.phase == "pausing" else ""


def _moved(given: Given, _: Repartitioned) -> Effect:
    return Effect(1, f"to {given['found'].state.new} partitions")


@recorded("repartition", queue=lambda given: given["found"].old.name, effect=_moved)
def _run(found: Repartitioning, terminal: Terminal, timeout: float) -> Repartitioned:
    """Go on from the state that the change is in, to the end."""
    done, who = Repartitioned(), user_name()
    if found.state.phase == "pausing":
        found.pause(who)
        _wait(found, terminal, timeout)
        found.close(who)
    if found.state.phase == "taking":
        found.close(who)
        _take(found, terminal, timeout)
    if found.state.phase == "putting":
        _put(found, terminal, done)
        done.results = found.copy_results()
        done.schedules = found.move_schedules()
    is_of_plain = found.state.old == 1
    found.open()
    terminal.end_progress()
    done.strays = found.in_plain() if is_of_plain else 0
    return done


def _wait(found: Repartitioning, terminal: Terminal, timeout: float) -> None:
    """Wait until consumers hold no messages."""
    ends = time.monotonic() + timeout
    while held := found.held():
        total = sum(count for consumers in held.values() for count in consumers.values())
        if time.monotonic() > ends:
            raise CommandError(_held_text(found, held, total, timeout))
        terminal.progress(0, total, f"waiting for {total} messages that consumers hold")
        time.sleep(LOOK)


def _held_text(found: Repartitioning, held: dict[str, dict[str, int]], total: int, timeout: float) -> str:
    parts = [
        f"{escape(part)}: " + ", ".join(f"{count} by {escape(consumer)}" for consumer, count in consumers.items())
        for part, consumers in list(held.items())[:MAX_NAMED]
    ]
    more = "; …" if len(held) > MAX_NAMED else ""
    again = f"Go on with `mq repartition {escape(found.old.name)} {found.state.new}`{_abort_hint(found)}."
    who = "; ".join(parts) + more
    return (
        f"After {timeout:g} s consumers still hold {total} messages ({who}). The queue stays paused. {again} Messages "
        "of consumers that died return when a `runconsumer` of the queue has noticed that."
    )


def _take(found: Repartitioning, terminal: Terminal, timeout: float) -> None:
    """Put everything on its way. Consumers hold nothing, except after somebody has resumed the queue meanwhile."""
    total = 0
    while True:
        taken, left, held = found.take()
        total += taken
        if not (taken or left or held):
            break
        if held and not taken:
            _wait(found, terminal, timeout)
        terminal.progress(0, total, f"{total} collected")
    found.all_taken()


def _put(found: Repartitioning, terminal: Terminal, done: Repartitioned) -> None:
    """Put everything into its new partition."""
    total = found.left()
    for part in found.old.each_part:
        while True:
            moved, forgotten = found.put(part)
            if moved == 0:
                break
            done.moved += moved - forgotten
            done.forgotten += forgotten
            terminal.progress(done.moved, total, f"{done.moved} of {total} moved")


def _result(config: QueueConfig, number: int, done: Repartitioned) -> VerbResult:
    name = escape(config.name)
    counts = f"moved: {done.moved}, results: {done.results}, schedules: {done.schedules}"
    lines = [f"Queue {name} has {number} partitions now. {counts}"]
    if done.forgotten:
        lines.append(f"{done.forgotten} claims of unique keys were forgotten: their messages have ended.")
    note = ""
    if done.strays:
        note = (
            f"{done.strays} messages were published meanwhile by producers without PARTITIONS. When these have ended, "
            "run the command again: it moves them."
        )
    elif config.partitions != number:
        note = (
            f"The settings here say PARTITIONS {config.partitions}: change them to {number} and restart all processes."
        )
    return VerbResult(asdict(done), lines, note=note)
