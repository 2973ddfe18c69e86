"""The verb `outbox` of the command `mq`: the outboxes of the databases, and what was set aside."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS

from mq_django.conf import get_config
from mq_django.consumers.supervisor.outbox_service import OutboxService, destinations_of, outbox_services
from mq_django.core.texts import escape, listing, repr_of
from mq_django.inspector import outbox_views
from mq_django.inspector.outbox_views import OutboxRow, OutboxView, outbox_databases, outboxes
from mq_django.management.terminal import Options, Terminal, VerbResult, columns, confirm, table
from mq_django.outbox.insertion import outbox_aliases
from mq_django.outbox.stored_rows import count_pending, count_set_aside, forget, republish, retained_count


def outbox(options: Options, terminal: Terminal) -> VerbResult | None:
    """Show the outboxes, publish what waits, and retry or discard what cannot be published."""
    given = options["database"]
    if options["relay"]:
        if options["destination"] or given is not None:
            raise CommandError("--relay publishes the rows of all databases.", returncode=2)
        return _relay(options, terminal)
    options = {**options, "database": DEFAULT_DB_ALIAS if given is None else given}
    if options["renew"]:
        return _renew(options)
    if options["republish"] or options["forget"]:
        return _act_on_retained(options)
    acts = options["retry"] or options["discard"]
    if acts and bool(options["row"]) == options["all"]:
        raise CommandError("Give --row, or --all.", returncode=2)
    if not (acts or options["waiting"] or options["set_aside"]):
        return _overview(options["destination"], given)
    _check_database(options["database"])
    return _act(options) if acts else _list(options)


def _check_database(alias: str) -> None:
    if alias not in outbox_databases():
        known = listing(outbox_databases())
        message = f"The database {repr_of(escape(alias))} has no outbox. Databases with one: {known}."
        raise CommandError(message, returncode=2)


def _renew(options: Options) -> VerbResult:
    alias = options["database"]
    _check_database(alias)
    confirm(options, f"Stop all relays of {alias} first. This publishes its rows to the same Redis.")
    count = outbox_views.renew(alias)
    return VerbResult({"continued": count}, [f"continued {count}"], "")


def _act_on_retained(options: Options) -> VerbResult:
    """Publish messages again whose rows are kept, or delete these rows."""
    queue, alias = get_config().queues.get(options["destination"]), options["database"]
    if queue is None:
        raise CommandError("Name the queue whose rows are kept.", returncode=2)
    _check_database(alias)
    does = "publishes messages again" if options["republish"] else "deletes rows of messages"
    confirm(options, f"This {does}, {retained_count(alias, queue.name)} at most.")
    if options["republish"]:
        count, done = republish(alias, queue), "republished"
    else:
        count, done = forget(alias, queue.name), "forgotten"
    return VerbResult({done: count}, [f"{done} {count}"], "")


def _overview(destination: str, alias: str | None) -> VerbResult:
    """Show the outboxes of all databases, or of one."""
    if alias is not None:
        _check_database(alias)
    views = [view for view in outboxes(at_most=None, database=alias) if destination in ("", view.destination)]
    rows = [_view(view) for view in views]
    lines = table([{key: value for key, value in row.items() if key not in ("stopped", "error")} for row in rows])
    lines += [f"{row['destination']}: {escape(row['stopped'])}" for row in rows if row["stopped"]]
    broken = " ".join(f"Cannot read the database {view.database}: {escape(view.error)}" for view in views if view.error)
    return VerbResult(rows, lines or ["No messages in an outbox."], broken)


def _view(view: OutboxView) -> dict[str, Any]:
    seconds = None if view.waited_ms is None else view.waited_ms // 1000
    row = {**columns(view, "database destination? waiting"), "oldest_s": seconds}
    return row | columns(view, "set_aside retained stopped? error?")


def _list(options: Options) -> VerbResult:
    how = {name: options[name] for name in ("set_aside", "after", "limit")}
    found = outbox_views.page_of(options["database"], options["destination"], **how)
    rows = [_row(row) for row in found.rows]
    note = "" if found.after is None else f"There are more: --after {found.after}"
    return VerbResult(rows, table(rows) or ["No messages."], note=note)


def _row(row: OutboxRow) -> dict[str, Any]:
    failed = "" if row.failed_ms is None else " set_aside=failed_ms error"
    return columns(row, f"row=id destination id=message_id name published_ms due_ms{failed}")


def _act(options: Options) -> VerbResult:
    rows, database, destination = options["row"] or (), options["database"], options["destination"]
    if options["retry"]:
        count, done = outbox_views.retry(database, rows, destination=destination), "retried"
    else:
        confirm(options, f"This deletes {f'{len(rows)} messages' if rows else 'all messages that were set aside'}.")
        count, done = outbox_views.discard(database, rows, destination=destination), "discarded"
    missing = max(0, len(set(rows)) - count)
    error = f"{missing} were not set aside" if missing else ""
    return VerbResult({done: count}, [f"{done} {count}"], error)


# Its option `--relay`: publish the rows of outboxes, until it is stopped, or all there are.

#: Seconds until a service must have ended its round.
STOPS = 10.0


def _relay(options: Options, terminal: Terminal) -> VerbResult | None:
    """Publish the rows of the outboxes of all databases."""
    if options["drain"]:
        return _drain(options["timeout"])
    services = outbox_services()
    with _stopped() as stopped:
        for service in services:
            service.start()
        terminal.report("Publishing the rows of outboxes. Stop with Ctrl-C.")
        stopped.wait()
        for service in services:
            service.stop()
        for service in services:
            service.join(STOPS)
    return None


def _drain(seconds: float) -> VerbResult:
    """Publish until nothing is left, or the time is over."""
    services = [each for each in outbox_services() if isinstance(each, OutboxService)]
    names, ends = [each.name for each in destinations_of(get_config())], time.monotonic() + seconds
    left = _count(names)
    try:
        while left and time.monotonic() < ends:
            pause = min([service.run_once() for service in services])
            left = _count(names)
            if left and pause:
                time.sleep(min(pause, 0.2))
    finally:
        for service in services:
            service.close()
    aside = sum(count_set_aside(alias, names) for alias in outbox_aliases())
    empty = "No row waits in the outbox." if aside else "The outbox is empty."
    lines = [f"{_rows(left)} left in the outbox." if left else empty]
    if aside:
        lines.append(f"{_rows(aside)} set aside and cannot be published: see manage.py mq outbox --set-aside.")
    return VerbResult({"left": left, "set_aside": aside}, lines, code=1 if left else 0)


def _rows(count: int) -> str:
    return "1 row is" if count == 1 else f"{count} rows are"


def _count(names: list[str]) -> int:
    return sum(count_pending(alias, names) for alias in outbox_aliases())


@contextmanager
def _stopped() -> Iterator[threading.Event]:
    """Yield what is set by SIGINT and SIGTERM."""
    found = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        found.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield found
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
