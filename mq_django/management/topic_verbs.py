"""The verbs of the command `mq` for topics and their groups."""

import re
from datetime import datetime
from functools import partial
from typing import Any

from django.core.management.base import CommandError
from django.utils.module_loading import import_string

from mq_django.core.clock import aware
from mq_django.core.keys import GROUP_SEPARATOR
from mq_django.core.offsets import Offset
from mq_django.core.texts import escape
from mq_django.inspector import message_lists
from mq_django.inspector import topics as inspected
from mq_django.inspector.topics import GroupStats
from mq_django.management.message_verbs import SELECTING, filter_of, listed
from mq_django.management.terminal import (
    Options,
    Terminal,
    VerbResult,
    away_text,
    columns,
    confirm,
    left_out_text,
    table,
)
from mq_django.producers import topics

#: Matches what begins like a date, and a bare year or month, which are refused. Entry ids begin with more digits.
_DATE = re.compile(r"\d{4}-\d\d-|\d{4}(-\d\d)?$|[^-]*T", re.ASCII)


def show(_options: Options, _: Terminal) -> VerbResult:
    """Show the lag of the groups of topics."""
    found: list[dict[str, Any]] = []
    views = inspected.topics()
    for view in views:
        if view.error:
            found.append({"topic": view.name, "error": view.error})
        found += [_group(group) for group in view.groups if group.subscribed]
    away = away_text({row["topic"]: row["error"] for row in found if "error" in row})
    note = left_out_text({view.name: view.left_out for view in views if view.left_out})
    return VerbResult(found, table(found) or ["No group has subscribed."], away, note=note)


def _group(group: GroupStats) -> dict[str, Any]:
    share = None if group.share is None else round(group.share, 3)
    row = {**columns(group, "group=queue offset lag"), "lag_s": group.lag_ms // 1000, "pending": group.pending}
    return {**row, "retention": share, **columns(group, "alarm lost?")}


def log(options: Options, _: Terminal) -> VerbResult:
    """Show messages of a topic's log, with secrets replaced."""
    span: dict[str, Any] = {name: position(options[name]) for name in ("since", "until")}
    where = filter_of(options, SELECTING[:3])
    read = partial(message_lists.in_log, options["topic"], where, newest_first=options["newest_first"], **span)
    return listed(read, options)


def seek(options: Options, _: Terminal) -> VerbResult:
    """Move a group of a topic to another position, while consumers run."""
    topic, group = _topic_and_group(options)
    where = position(options["position"])
    preview, is_dry = inspected.preview(topic, group, where), options["dry_run"]
    if not is_dry:
        inspected.seek(topic, group, where, repeat=options["repeat"])
    output = {"moved": not is_dry, **preview._asdict()}
    more = " or more" if preview.more else ""
    what = f"{preview.replayed}{more} delivered again, {preview.skipped}{more} skipped, {preview.pending} pending"
    return VerbResult(output, [f"{'Would move' if is_dry else 'Moved'} {options['group']}: {what}"])


def unsubscribe(options: Options, _: Terminal) -> VerbResult:
    """Remove a group of a topic with its retries and dead letters."""
    topic, group = _topic_and_group(options)
    confirm(options, "This deletes the group's retries and dead letters.")
    if not inspected.unsubscribe(topic, group):
        raise CommandError(f"Topic {topic} has no group {escape(group)}.")
    return VerbResult({"removed": True}, ["removed"])


def replay(options: Options, _: Terminal) -> VerbResult:
    """Run a part of a log through a handler in this process, without moving the group."""
    topic, group = _topic_and_group(options)
    since, until = position(options["since"]), position(options["until"])
    handler = None
    if options["handler"]:
        try:
            handler = import_string(options["handler"])
        except ImportError as error:
            raise CommandError(str(error)) from error
    of_group, dry, repeat = topics[topic].group(group), options["dry_run"], options["repeat"]
    done = of_group.replay(handler, since=since, until=until, dry=dry, repeat=repeat)
    failed = [{"id": message.id, "error": error} for message, error in done.failed]
    failed += [{"id": entry, "error": reason} for entry, reason in done.undecodable]
    output = {"dry": dry, "handled": [message.id for message in done.handled], "failed": failed}
    lines = [f"{len(done.handled)} {'would be handled' if dry else 'handled'}, {len(failed)} failed"]
    return VerbResult(output, [*lines, *table(failed)])


def position(text: str) -> Offset:
    """Parse a position in a log: a date or a time, or else a word or an entry id."""
    if not _DATE.match(text):
        return text
    try:
        return aware(datetime.fromisoformat(text))
    except (ValueError, OverflowError) as error:
        raise CommandError(f"Not a valid time: {text!r}. Write it as 2026-11-01T06:00Z.", returncode=2) from error


def _topic_and_group(options: Options) -> tuple[str, str]:
    topic, separator, group = options["group"].partition(GROUP_SEPARATOR)
    if not separator:
        raise CommandError(f"Name the group as topic:group, not {topic!r}.", returncode=2)
    return topic, group
