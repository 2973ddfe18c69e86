"""The verb `outbox` of the command `mq`: the outboxes of the databases, and what was set aside."""

import argparse
from typing import Any

from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS

from mq_django.conf import get_config
from mq_django.core.exceptions import repr_of
from mq_django.core.visible import escape
from mq_django.inspector import outbox_rows
from mq_django.inspector.outbox_rows import OutboxRow
from mq_django.inspector.outbox_views import OutboxView, outbox_databases, outboxes
from mq_django.management.argument_types import page_size, whole
from mq_django.management.as_dict import moment_text
from mq_django.management.tables import table
from mq_django.management.terminal import Terminal
from mq_django.management.verb import Options, Verb, VerbResult
from mq_django.outbox.retained_rows import forget, republish, retained_count

#: Messages that are shown without --limit.
SHOWN = 20


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("destination", nargs="?", default="", help="Only messages for this queue or topic.")
    parser.add_argument(
        "--database", help="The alias of the database. Default: default; without another option, all databases."
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--waiting", action="store_true", help="List messages that wait for their publication.")
    what.add_argument("--set-aside", action="store_true", help="List messages that cannot be published.")
    what.add_argument(
        "--retry", action="store_true", help="Let messages that were set aside be published again, by --row or --all."
    )
    what.add_argument("--discard", action="store_true", help="Delete messages that were set aside, by --row or --all.")
    what.add_argument(
        "--republish",
        action="store_true",
        help="Publish the messages of a queue again whose rows are kept, because Redis has lost them.",
    )
    what.add_argument(
        "--forget", action="store_true", help="Delete the rows of a queue that are kept: Redis has their messages."
    )
    what.add_argument(
        "--renew",
        action="store_true",
        help="Give the outbox of a copied database an identity of its own, and let it go on where it is stopped.",
    )
    parser.add_argument(
        "--row",
        action="append",
        type=whole,
        metavar="NUMBER",
        help="With --retry or --discard: the number of a row, as --set-aside shows it. May be repeated.",
    )
    parser.add_argument("--all", action="store_true", help="With --retry or --discard: all that were set aside.")
    parser.add_argument("--yes", action="store_true", help="Confirm what deletes or publishes, without prompting.")
    parser.add_argument("--after", type=whole, default=0, metavar="NUMBER", help="List rows after this one.")
    parser.add_argument("--limit", type=page_size, default=SHOWN, help=f"Default: {SHOWN} messages. At most 500.")


def outbox(options: Options, _: Terminal) -> VerbResult:
    """Show the outboxes, list messages of one, or act on those that were set aside."""
    given = options["database"]
    options = {**options, "database": DEFAULT_DB_ALIAS if given is None else given}
    if options["renew"]:
        return _renew(options["database"], is_confirmed=options["yes"])
    if options["republish"] or options["forget"]:
        return _act_on_retained(options)
    acts = options["retry"] or options["discard"]
    if not acts and (options["row"] or options["all"]):
        raise CommandError("--row and --all need --retry or --discard.", returncode=2)
    if acts and bool(options["row"]) == options["all"]:
        raise CommandError("Give --row, or --all.", returncode=2)
    if not (acts or options["waiting"] or options["set_aside"]):
        return _overview(options["destination"], given)
    _check_database(options["database"])
    return _act(options) if acts else _list(options)


def _check_database(alias: str) -> None:
    if alias not in outbox_databases():
        known = ", ".join(outbox_databases()) or "none"
        message = f"The database {repr_of(escape(alias))} has no outbox. Databases with one: {known}."
        raise CommandError(message, returncode=2)


def _renew(alias: str, *, is_confirmed: bool) -> VerbResult:
    _check_database(alias)
    if not is_confirmed:
        message = f"Stop all relays of {alias} first. This publishes its rows to the same Redis. Confirm with --yes."
        raise CommandError(message, returncode=2)
    count = outbox_rows.renew(alias)
    return VerbResult({"continued": count}, [f"continued {count}"], "")


def _act_on_retained(options: Options) -> VerbResult:
    """Publish messages again whose rows are kept, or delete these rows."""
    queue, alias = get_config().queues.get(options["destination"]), options["database"]
    if queue is None:
        raise CommandError("Name the queue whose rows are kept.", returncode=2)
    if options["row"] or options["all"]:
        raise CommandError("--row and --all need --retry or --discard.", returncode=2)
    _check_database(alias)
    if not options["yes"]:
        does = "publishes messages again" if options["republish"] else "deletes rows of messages"
        count = retained_count(alias, queue.name)
        raise CommandError(f"This {does}, {count} at most. Confirm with --yes.", returncode=2)
    if options["republish"]:
        count, done = republish(alias, queue), "republished"
    else:
        count, done = forget(alias, queue.name), "forgotten"
    return VerbResult({done: count}, [f"{done} {count}"], "")


def _overview(destination: str, alias: str | None) -> VerbResult:
    """Show the outboxes of all databases, or of one."""
    if alias is not None:
        _check_database(alias)
    found = outboxes(at_most=None, database=alias)
    views = [view for view in found if destination in ("", view.destination)]
    rows = [_view(view) for view in views]
    lines = table([{key: value for key, value in row.items() if key not in ("stopped", "error")} for row in rows])
    lines += [f"{row['destination']}: {escape(row['stopped'])}" for row in rows if row["stopped"]]
    broken = " ".join(f"Cannot read the database {view.database}: {escape(view.error)}" for view in views if view.error)
    return VerbResult(rows, lines or ["No messages in an outbox."], broken)


def _view(view: OutboxView) -> dict[str, Any]:
    return {
        "database": view.database,
        "destination": view.destination or None,
        "waiting": view.waiting,
        "oldest_s": None if view.waited_ms is None else view.waited_ms // 1000,
        "set_aside": view.set_aside,
        "retained": view.retained,
        "stopped": view.stopped or None,
        "error": view.error or None,
    }


def _list(options: Options) -> VerbResult:
    found = outbox_rows.page_of(
        options["database"],
        options["destination"],
        set_aside=options["set_aside"],
        after=options["after"],
        limit=options["limit"],
    )
    rows = [_row(row) for row in found.rows]
    note = "" if found.after is None else f"There are more: --after {found.after}"
    return VerbResult(rows, table(rows) or ["No messages."], note=note)


def _row(row: OutboxRow) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "row": row.id,
        "destination": row.destination,
        "id": row.message_id,
        "name": row.name,
        "published": moment_text(row.published_ms),
        "due": moment_text(row.due_ms),
    }
    if row.failed_ms is not None:
        shown |= {"set_aside": moment_text(row.failed_ms), "error": row.error}
    return shown


def _act(options: Options) -> VerbResult:
    rows, database, destination = options["row"] or (), options["database"], options["destination"]
    if options["retry"]:
        count, done = outbox_rows.retry(database, rows, destination=destination), "retried"
    elif not options["yes"]:
        which = f"{len(rows)} messages" if rows else "all messages that were set aside"
        raise CommandError(f"This deletes {which}. Confirm with --yes.", returncode=2)
    else:
        count, done = outbox_rows.discard(database, rows, destination=destination), "discarded"
    missing = max(0, len(set(rows)) - count)
    error = f"{missing} were not set aside" if missing else ""
    return VerbResult({done: count}, [f"{done} {count}"], error)


VERBS = (Verb("outbox", "Show the outboxes, and retry or discard what cannot be published.", outbox, add_options),)
