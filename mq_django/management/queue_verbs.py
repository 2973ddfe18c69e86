"""The verbs `status`, `pause`, `resume`, `hold`, `release` and `line` of `mq`: queues, and the keys with limits."""

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from math import isinf
from shlex import quote
from typing import Any, get_args

from django.core.management.base import CommandError

from mq_django import inspect
from mq_django.conf import QueueConfig, get_config
from mq_django.core import clock
from mq_django.core.breakers import Hold
from mq_django.core.limits import Limits, Rate
from mq_django.core.message_format import moment
from mq_django.core.partitions import public_name
from mq_django.core.project import Problem, Thresholds
from mq_django.core.redaction import redact_forms
from mq_django.core.texts import escape, truncate
from mq_django.errors import ConnectionLost, MQError, StoreError
from mq_django.inspector import actions, key_lines, plans
from mq_django.inspector.actions import Switched
from mq_django.inspector.explain import head_words
from mq_django.inspector.key_lines import KeyLine, LineHead
from mq_django.inspector.message_views import moment_text
from mq_django.inspector.outbox_views import OutboxView, outboxes_of
from mq_django.inspector.plans import LimitUse
from mq_django.inspector.problem_sentences import sentence
from mq_django.inspector.queue_view import RECENT, Activity, NameActivity, QueueView
from mq_django.inspector.queues import PartitionRow, groups_left_out, partitions
from mq_django.management.capacity_verbs import changed_row
from mq_django.management.job_verbs import result_of
from mq_django.management.terminal import (
    Heading,
    Options,
    Terminal,
    VerbResult,
    away_text,
    columns,
    confirm,
    left_out_text,
    read_each,
    table,
    user_name,
    with_away,
)

# `mq status --limits`: how far the limits of queues are used; and the verb `line`: what a key waits for.


def limits(options: Options, _: Terminal) -> VerbResult:
    """Show the limits of queues, their use, and the keys with parked messages."""
    config = get_config()
    configs = [config.queue(name) for name in options["queues"] or sorted(config.queues)]
    limited = [found for found in configs if found.limits]
    uses, away = read_each(limited, lambda found: plans.limits(found.name, count=options["keys"]))
    rows = [_limit_row(config.queue(name), use) for name, use in uses.items() if use is not None]
    return with_away(rows, [*_lines(rows)], "No queue has limits.", away)


def _limit_row(config: QueueConfig, use: LimitUse) -> dict[str, Any]:
    found, noisy = use.limits, plans.noisiest(config.name) if use.parked else ()
    counts = [_count("concurrency", found.concurrency, use.concurrent), *_of_keys(found)]
    rates = [_rate("rate", found.rate, use.granted), _rate("rate of each key", found.key_rate)]
    return {
        "queue": config.name,
        "limits": [limit for limit in (*rates, *counts) if limit],
        "changed": [changed_row(change, config.limits) for change in use.changes.values()],
        "parked": use.parked,
        "parked_keys": use.keys,
        "keys": [
            {"key": redact_forms(key.key), **columns(key, "parked granted concurrent next_check_ms")}
            for key in use.page
        ],
        "noisy": [{"key": redact_forms(each.key), "share": round(each.share, 3)} for each in noisy],
    }


def _of_keys(limits: Limits) -> Iterator[dict[str, Any]]:
    """Yield what the messages of a key wait for besides a rate."""
    if limits.ordered:
        yield _count("one message of each key at a time, in order", 1)
    else:
        yield _count("concurrency of each key", limits.key_concurrency)
    if limits.fair is not None:
        weights = ", ".join(f"{key}: {weight:g}" for key, weight in limits.fair)
        yield {"limit": f"keys take turns{weights and f' ({weights})'}", "most": None, "window_s": None, "used": None}


def _rate(name: str, rate: Rate | None, used: int | None = None) -> dict[str, Any]:
    if rate is None:
        return {}
    return {"limit": name, "most": rate.count, "window_s": rate.window.total_seconds(), "used": used}


def share_words(share: float) -> str:
    """Return the share of a key of the parked messages."""
    return f"about {share * 100:.0f} % of the parked messages"


def _count(name: str, most: int | None, used: int | None = None) -> dict[str, Any]:
    return {} if most is None else {"limit": name, "most": most, "window_s": None, "used": used}


def _lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield from table([{"queue": row["queue"], **limit} for row in rows for limit in row["limits"]])
    keys = [{"queue": row["queue"], **key} for row in rows for key in row["keys"]]
    if keys:
        yield ""
        yield from table(keys)
    for row in rows:
        yield from (f"{row['queue']}: {escape(each['sentence'])}" for each in row["changed"])
    for row in rows:
        for each in row["noisy"]:
            yield f"{row['queue']}: key {escape(each['key'])} has {share_words(each['share'])}."
    for row in rows:
        if row["parked_keys"] > len(row["keys"]):
            yield f"{row['queue']} has {row['parked']} parked messages of {row['parked_keys']} keys."


# The verb `line` of the command `mq`: what the messages of a key wait for.


def line(options: Options, _: Terminal) -> VerbResult:
    """Show what the messages of a key wait for, or let the key go on."""
    found = key_lines.key_line(options["queue"], options["key"])
    if options["skip"]:
        return _skip(found, options)
    if options["redrive"]:
        return _redrive(found, options)
    return VerbResult(_line_row(found), _line_text(found))


def _skip(found: KeyLine, options: Options) -> VerbResult:
    head = _head(found)
    if not head.can_be_skipped:
        raise CommandError(f"It cannot be skipped. The next messages wait for {head_words(head, found.now_ms)}")
    name = escape(head.id)
    confirm(options, f"This lets the next messages of the key run before message {name}, which is then out of order.")
    word = key_lines.skip(found.queue, found.hash, head.token)
    if word != "SKIPPED":
        line = key_lines.line_of(found.queue, found.hash)
        now = "the key waits for no message."
        if line.blocking is not None:
            now = f"the next messages wait for {head_words(line.blocking, line.now_ms)}"
        raise CommandError(f"Nothing was skipped, because the line has changed meanwhile: {now}")
    said = f"skipped message {name}: it stays where it is ({head.state}), and is out of order from now on"
    return VerbResult({"skipped": head.id, "state": head.state}, [said])


def _redrive(found: KeyLine, options: Options) -> VerbResult:
    head = _head(found)
    if head.state != "dead":
        waits = f"The next messages wait for {head_words(head, found.now_ms)}"
        raise CommandError(f"There is no dead letter to redrive. {waits}")
    confirm(options, f"This redrives the dead letter {escape(head.id)}, before the other messages of its key.")
    return result_of(key_lines.redrive_head(found.queue, head), "redriven", ids=1)


def _head(found: KeyLine) -> LineHead:
    if found.blocking is None:
        why = "has no message that the others wait for" if found.ordered else "is in a queue without ORDERED"
        raise CommandError(f"Nothing holds up this key: it {why}.")
    return found.blocking


def _line_row(found: KeyLine) -> dict[str, Any]:
    return {
        **columns(found, "queue key? ordered parked tokens"),
        "first": [columns(message, "id name published_ms") for message in found.first],
        "heads": [columns(head, "id name attempt state consumer? since_ms due_ms") for head in found.heads],
    }


def _line_text(found: KeyLine) -> Iterator[str]:
    row = _line_row(found)
    if found.blocking is not None and found.parked:
        yield f"The parked messages wait for {head_words(found.blocking, found.now_ms)}"
        yield ""
    if found.heads:
        yield from table(row["heads"])
        yield ""
    yield from table(row["first"])
    yield f"{found.parked} parked"


# The verbs `status`, `pause` and `resume` of the command `mq`: queues.

#: The counts of a queue, as its attributes.
COUNTS = "ready pending delayed unhandled parked dead"

#: What is counted of the messages that pass.
PASSED = ("published", "handled", "retried", "buried")

#: The name of a queue's total in the table.
TOTAL = "(all)"

#: The most hours: the counters are kept for a week.
MAX_HOURS = 168

#: Sequences for the terminal: use another screen and hide the cursor; undo that; go to the top; clear to the end.
ENTER, LEAVE, HOME, CLEAR = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l", "\x1b[H", "\x1b[J"
#: Clears a line to its end.
CLEAR_RIGHT = "\x1b[K"

_PROBLEMS = get_args(Problem)

#: When it is a problem, by the thresholds of `--check`.
PROBLEMS = {
    "max_age": "the oldest message that has not started has waited for longer, for example 90, 5m or 2h",
    "max_ready": "more messages have not started",
    "max_dead": "there are more dead letters",
    "max_buried": "more messages became dead letters in the last half hour",
    "max_unhandled": "more messages have no handler",
    "max_growth": "the queue has grown by more messages in ten minutes",
    "max_outbox_age": "the oldest message in an outbox has waited for longer, for example 90, 5m or 2h",
}


def status(options: Options, terminal: Terminal) -> VerbResult | None:
    """Show the number of messages by queue, or how queues are otherwise."""
    if not options["watch"]:
        return _chosen(options, terminal)
    if terminal.as_json or not terminal.is_terminal:
        words = "--watch needs a terminal, and no --json. Without it, the status is printed once."
        raise CommandError(words, returncode=2)
    terminal.write(ENTER, ending="")
    try:
        while True:
            _draw(options, terminal)
            time.sleep(options["interval"])
    except KeyboardInterrupt:
        return None
    finally:
        terminal.write(LEAVE, ending="")
        terminal.flush()


def _chosen(options: Options, terminal: Terminal) -> VerbResult:
    forms = {"check": _check, "rates": _rates, "partitions": _partitions}
    if options["limits"]:
        return limits(options, terminal)
    return next((form for name, form in forms.items() if options[name]), _status)(options)


def _left_out(options: Options) -> str:
    """Return how many groups of topics are not shown, if all queues are."""
    return "" if options["queues"] else left_out_text(groups_left_out())


def _draw(options: Options, terminal: Terminal) -> None:
    """Draw what there is over what was drawn before, cut to the size of the terminal."""
    width, height = shutil.get_terminal_size()
    try:
        found = _chosen(options, terminal)
        lines = [*found.lines, *filter(None, (found.error, found.note))]
    except MQError as error:
        lines = [escape(str(error))]
    shown = [Heading(moment(clock.now_ms())[:19].replace("T", " ") + " UTC"), "", *lines]
    cut = [type(line)(truncate(line, width - 1)) for line in shown[: max(1, height - 1)]]
    if len(shown) > len(cut):
        cut[-1] = f"{len(shown) - len(cut) + 1} more lines"
    terminal.write(HOME + "\n".join(terminal.styled(line) + CLEAR_RIGHT for line in cut) + CLEAR, ending="")
    terminal.flush()


def _status(options: Options) -> VerbResult:
    """Show the messages of queues by their states."""
    names = options["queues"]
    views = [inspect.queue(name) for name in names] if names else inspect.queues()
    if options["watch"]:
        views = sorted(views, key=_worst_first)
    muted = _muted()
    found = [_queue(view, muted) for view in views]
    # The partitions of queues that were named have rows of their own.
    for view, row in zip(views, found, strict=True) if names else ():
        if view.parts:
            row["partitions"] = [_queue(part, muted) for part in view.parts]
    rows = [_row(each, muted) for view in views for each in (view, *(view.parts if names else ()))]
    lines = table(rows) or ["No queue is configured."]
    lines += [_busy_line(view) for view in views if view.is_starved]
    held: tuple[tuple[Problem, Sequence[Hold]], ...]
    for view in views:
        held = (("breaker", view.open_breakers), ("hold", view.held_by_people))
        lines += [f"{view.name} {sentence(view, kind)}" for kind, found in held if found]
    found_outboxes = outboxes_of(names or ())
    are_several = len({each.database for each in found_outboxes}) > 1
    lines += [line for each in found_outboxes for line in _outbox_lines(each, is_named=are_several)]
    return VerbResult(found, lines, away_text(_away(views)), note=_left_out(options))


def _worst_first(view: QueueView) -> tuple[int, int, str]:
    worst = min((_PROBLEMS.index(problem) for problem in view.problems()), default=len(_PROBLEMS))
    return worst, -view.ready, view.name


def _away(views: Sequence[QueueView]) -> Mapping[str, str]:
    return {name: error for view in views for name, error in view.errors.items()}


def _muted() -> Mapping[tuple[str, str], object]:
    """Return which problems are muted; none if that cannot be read: their server may be the problem."""
    with suppress(StoreError):
        return inspect.mutes()
    return {}


def _queue(view: QueueView, muted: Mapping[tuple[str, str], object]) -> dict[str, Any]:
    """Return a queue as JSON values, without problems that are muted."""
    problems = [each for each in view.problems() if (public_name(view.name), each) not in muted]
    counts = columns(view, f"{COUNTS} consumers=alive fetched")
    busy, threads = view.threads or (None, None)
    slots = {"threads": threads, "busy": busy, "busy_with": _busy_with(view)}
    seconds = None if view.waited_ms is None else view.waited_ms // 1000
    known = {**columns(view, "paused external"), **counts, **slots, "oldest_s": seconds}
    row = {"queue": view.name, **({"error": view.error} if view.error else known), "problems": problems}
    if (pause := view.pause) is not None:
        since = moment_text(pause.since_ms)
        row |= {"paused_by": pause.who, "paused_since": since, "paused_reason": pause.reason}
        row |= {"paused_name": pause.name} if pause.name else {}
    if found := [*view.open_breakers, *view.held_by_people]:
        row |= {"holds": [_held(each) for each in found]}
    return row


#: The facts of a queue that JSON has and its row does not: lines below the table say them.
_NOT_CELLS = ("paused", "external", "busy_with", "fetched", "holds")


def _row(view: QueueView, muted: Mapping[tuple[str, str], object]) -> dict[str, Any]:
    """Return the cells of a queue."""
    found = {"queue": view.name, "state": _state(view), **_queue(view, muted)}
    return {key: value for key, value in found.items() if key not in _NOT_CELLS}


def _state(view: QueueView) -> str:
    states = {
        "paused": view.paused,
        f"{view.paused_parts} of {len(view.parts)} partitions paused": view.paused_parts and not view.paused,
        "breaker open": view.open_breakers,
        "some held": view.held_by_people,
        "starved": view.is_starved and not view.paused,
        "handled by others": view.external and not view.error,
    }
    return ", ".join(state for state, applies in states.items() if applies)


def _busy_with(view: QueueView) -> dict[str, Any] | None:
    """Return the handler that holds all threads or coroutines of a queue's consumers while its messages wait."""
    found = view.blocker
    if found is None:
        return None
    return {"slots": found.kind, "handler": found.name, "queue": found.queue, "ms": found.ms}


def _busy_line(view: QueueView) -> str:
    found = view.blocker
    if found is None:
        return ""
    slots = f"all {found.threads} threads" if found.threads else "all coroutines"
    runs = f"{escape(found.name)} of queue {escape(found.queue)} for {found.ms // 1000} s"
    return f"{view.name} makes no progress: {slots} of its consumers are busy with {runs}"


def _outbox_lines(view: OutboxView, *, is_named: bool) -> Iterator[str]:
    """Yield what the outbox of a queue or topic has; nothing while it is empty. `is_named`: with the database."""
    name = escape(view.destination or view.database)
    outbox = f"the outbox of database {escape(view.database)}" if is_named and view.destination else "the outbox"
    if why := view.error or view.stopped:
        yield f"{name}: {outbox} {'cannot be read' if view.error else 'is stopped'}: {escape(why)}"
    more = "+" if view.is_more else ""
    if view.waiting:
        waited = (view.waited_ms or 0) // 1000
        yield f"{name}: {view.waiting}{more} in {outbox}, the oldest for {waited} s"
    if view.set_aside:
        yield f"{name}: {view.set_aside}{more} in {outbox} cannot be published"


#: The fields of a problem with --json.
_PROBLEM = "queue kind severity sentence figure threshold "


def _check(options: Options) -> VerbResult:
    """Return the problems of queues, and a line for each. Without a server that can be reached, that is the problem."""
    given = {each.name: options[each.name] for each in fields(Thresholds) if options[each.name] is not None}
    thresholds = replace(get_config().thresholds, **given)
    try:
        ignore = options["ignore"] or ()
        every = inspect.problems(*options["queues"], thresholds=thresholds, ignore=ignore, muted=True)
    except StoreError as error:
        unreachable = {**dict.fromkeys(_PROBLEM.split()), "kind": "unreadable", "severity": "critical"}
        unreachable["sentence"] = str(error)
        return VerbResult([unreachable], [f"[unreadable] {escape(str(error))}"], code=1)
    found = [problem for problem in every if problem.mute is None]
    shown = [f"[{problem.kind}] {escape(problem.sentence)}" for problem in found] or ["OK: no problems."]
    muted = f"Muted: {len(every) - len(found)}." if len(every) > len(found) else ""
    rows = [columns(problem, _PROBLEM + "since_ms") for problem in found]
    return VerbResult(rows, shown, code=1 if found else 0, note=" ".join(filter(None, (muted, _left_out(options)))))


def mute(options: Options, _: Terminal) -> VerbResult:
    """Mute a kind of problem of a queue for a time, unmute it, or list all mutes."""
    queue, kind = options["of"], options["kind"]
    if queue is None:
        rows = [
            {"queue": of, "kind": kind, "until": moment_text(until_ms), "who": who or None, "reason": reason or None}
            for (of, kind), (until_ms, who, reason) in sorted(inspect.mutes().items())
        ]
        return VerbResult(rows, table(rows) or ["Nothing is muted."])
    if kind is None:
        raise CommandError("Give the kind of problem.", returncode=2)
    if options["off"]:
        changed = inspect.unmute(queue, kind)
        return VerbResult({"muted": False, "changed": changed}, ["unmuted" if changed else "was not muted"])
    inspect.mute(queue, kind, seconds=options["for"], who=user_name(), reason=options["reason"])
    return VerbResult({"muted": True, "changed": True}, ["muted"])


def _partitions(options: Options) -> VerbResult:
    """Show the partitions of queues: what each has, and where it is."""
    names = options["queues"] or [name for name, config in get_config().queues.items() if config.parts]
    rows = [_partition(each) for name in names for each in partitions(name)]
    away = {str(row["partition"]): str(row["error"]) for row in rows if "error" in row}
    return VerbResult(rows, table(rows) or ["No queue has partitions."], away_text(away))


def _partition(found: PartitionRow) -> dict[str, Any]:
    view = found.view
    counts: dict[str, Any] = {"error": view.error} if view.error else columns(view, COUNTS)
    seconds = None if view.waited_ms is None else round(view.waited_ms / 1000, 1)
    where = {"tag": found.tag, "node": found.node, "preferred": found.preferred}
    return {"partition": view.name, **counts, "waited_s": seconds, "paused": view.paused, **where}


# How many messages are published and handled, and how fast.


def _rates(options: Options) -> VerbResult:
    """Show the counts per minute of all queues, or the counts and times of some by name."""
    hours, names = options["hours"], options["queues"]
    if hours and (not names or hours > MAX_HOURS):
        raise CommandError("--hours needs a queue." if hours <= MAX_HOURS else "--hours: at most 168.", returncode=2)
    if not names:
        views = inspect.queues()
        rows: list[dict[str, Any]] = [_per_minute(view) for view in views if not view.error]
        return with_away(rows, table(rows), "No queue is configured.", _away(views), note=_left_out(options))
    rows, since, left_out = [], None, []
    for name in names:
        # The counters of one hour are by the minute.
        found = inspect.activity(name, hours=hours) if hours and hours > 1 else inspect.queue(name).activity
        total = {what: sum(getattr(found, what)) for what in PASSED}
        rows.append({"queue": name, "name": None, **total, **_times(found)})
        rows += [
            {"queue": name, "name": each.name, **{what: getattr(each, what) for what in PASSED}, **_times(each)}
            for each in found.names
        ]
        since = moment_text(found.since_ms)
        left_out += [name] * found.names_left_out
    lines = table([{**row, "name": row["name"] or TOTAL} for row in rows])
    note = f"There are too many figures to list the names of: {', '.join(left_out)}." if left_out else ""
    return VerbResult([{**row, "since": since} for row in rows], [*lines, f"Since {since}."], note=note)


def _per_minute(view: QueueView) -> dict[str, Any]:
    share = view.error_share
    return {
        "queue": view.name,
        **{f"{what}_min": round(view.activity.per_minute(what), 1) for what in ("published", "handled")},
        **{f"{what}_{RECENT}min": sum(getattr(view.activity, what)[-RECENT:]) for what in PASSED},
        "failed_share": None if share is None else round(share, 3),
    }


def _times(found: Activity | NameActivity) -> Mapping[str, float | None]:
    """Return percentiles of handling times, and of latencies from ready to the handler's start, in seconds."""
    times = {f"{what}_{p}": getattr(getattr(found, what), p) for what in ("took", "waited") for p in ("p50", "p95")}
    # JSON has no infinity: the time is in the last bucket, which has no upper bound.
    return {name: None if at is None or isinf(at) else round(at, 5) for name, at in times.items()}


# The verbs `hold` and `release`.


def hold(options: Options, _: Terminal) -> VerbResult:
    """Hold the messages of a name or a key of a queue, or list what is held."""
    queue, about, probe = options["queue"], {"name": options["name"], "key": options["key"]}, options["probe"]
    is_named = any(value is not None for value in about.values())
    if queue is None or not (is_named or probe is not None):
        if is_named or any(options[name] for name in ("for", "reason", "probe")):
            raise CommandError("Give a queue, and --name or --key.", returncode=2)
        return _holds([queue] if queue is not None else [view.name for view in inspect.queues() if view.holds])
    given = {**about, "who": user_name(), "reason": options["reason"]}
    if probe is None:
        inspect.hold(queue, lasts=options["for"], **given)
        return VerbResult({"held": True}, ["held"])
    if options["for"] is not None:
        raise CommandError("A breaker has no end of its own: give --for or --probe.", returncode=2)
    inspect.open_breaker(queue, probe=probe, **given)
    return VerbResult({"held": True}, ["opened a breaker"])


def _holds(queues: Sequence[str]) -> VerbResult:
    rows = [
        {"queue": name, **_held(each), "messages": each.messages} for name in queues for each in inspect.holds(name)
    ]
    return VerbResult(rows, table(rows) or ["Nothing is held."])


def _held(found: Hold) -> dict[str, Any]:
    return columns(found, "kind value? state who? reason? error? since_ms until_ms next_probe=next_ms")


def release(options: Options, _: Terminal) -> VerbResult:
    """End a hold, or close a breaker: its messages become ready."""
    changed = inspect.end_hold(options["queue"], name=options["name"], key=options["key"])
    return VerbResult({"held": False, "changed": changed}, ["released" if changed else "was not held"])


# The verbs `pause` and `resume`.


def pause(options: Options, _: Terminal) -> VerbResult:
    """Pause a queue, or all queues."""
    who, reason, queue = user_name(), options["reason"], _one(options)
    words = ("paused", "was already paused")
    if queue is None:
        name = options["name"] or actions.offered_name()
        note = f"To resume exactly these: manage.py mq resume --all --name {quote(escape(name))}"
        return _all(actions.pause_all(who=who, reason=reason, name=name), words, paused=True, note=note)
    changed = inspect.pause(queue, who=who, reason=reason)
    return VerbResult({"paused": True, "changed": changed}, [words[not changed]])


def resume(options: Options, _: Terminal) -> VerbResult:
    """Resume a paused queue, or all queues."""
    queue, name, words = _one(options), options["name"], ("resumed", "was not paused")
    if queue is None:
        found = actions.resume_all(name=name)
        if name is not None and not found.changed and not found.errors:
            raise CommandError("No queue is paused by this name.")
        # Others may be paused.
        return _all(replace(found, unchanged=[]) if name is not None else found, words, paused=False)
    changed = inspect.resume(queue)
    return VerbResult({"paused": False, "changed": changed}, [words[not changed]])


def _one(options: Options) -> str | None:
    """Return the given queue, or None for all."""
    queue: str | None = options["queue"]
    if (queue is None) != options["all"]:
        raise CommandError("Give a queue, or --all.", returncode=2)
    return queue


def _all(found: Switched, words: tuple[str, str], *, paused: bool, note: str = "") -> VerbResult:
    if found.errors:
        # After a lost connection it is not known whether the command ran.
        failed = "; ".join(
            f"{name} {'may not be' if isinstance(error, ConnectionLost) else 'is not'}: {error}"
            for name, error in found.errors.items()
        )
        raise CommandError(f"All other queues are {'paused' if paused else 'running'}, but {failed}")
    changes = {**dict.fromkeys(found.changed, True), **dict.fromkeys(found.unchanged, False)}
    rows = [{"queue": name, "paused": paused, "changed": changes[name]} for name in sorted(changes)]
    lines = table([{"queue": row["queue"], "state": words[not row["changed"]]} for row in rows])
    return VerbResult(rows, lines or ["No queue is configured."], note=note if found.changed else "")
