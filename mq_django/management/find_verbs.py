"""The verbs `find`, `why` and `show` of the command `mq`: one message."""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from django.core.management.base import CommandError

from mq_django.conf import get_config
from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.core.messages import Place
from mq_django.core.redaction import redact_forms
from mq_django.core.texts import escape
from mq_django.inspector import explain, message_lists
from mq_django.inspector.explain import why
from mq_django.inspector.message_views import MessageView, moment_text, progress_line, progress_of
from mq_django.inspector.queues import queue as look_at
from mq_django.inspector.readers import Ended, ended
from mq_django.inspector.whereabouts import FoundMessageIn, TaskEnding, Whereabouts, find_everywhere
from mq_django.management.as_dict import as_dict, progress_fields
from mq_django.management.terminal import Heading, Options, Terminal, Verb, VerbResult, table

# Find a message in all queues, for the verbs `find`, `why` and `show` of the command `mq`.

#: Seconds for which ready and pending messages are searched.
SECONDS = 10.0


def find_in_all(message_id: str) -> VerbResult:
    """Return where a message is in all queues.

    Raises:
        CommandError: nothing is known of it.
    """
    search = _search(message_id)
    rows = [_row(message_id, one) for one in search.found]
    found = {"found": rows, "not_searched": list(search.not_searched), "errors": dict(search.errors)}
    return VerbResult(found, table(rows), note=_left_out(search))


def queue_of(message_id: str) -> str:
    """Return the queue that a message is in.

    Raises:
        CommandError: nothing is known of it, or it is in several queues.
    """
    search = _search(message_id)
    names = list(dict.fromkeys(one.queue for one in search.found if one.place not in ("log", "result")))
    if len(names) != 1:
        places = ", ".join(f"{one.queue} ({one.place})" for one in search.found)
        raise CommandError(f"Name the queue of message {escape(message_id)}. It is in {escape(places)}.")
    return names[0]


def _search(message_id: str) -> Whereabouts:
    search = find_everywhere(message_id, seconds=SECONDS)
    if not search.found:
        left_out = _left_out(search)
        what = f"No queue has a message {escape(message_id)}"
        raise CommandError(
            f"{what} in what was searched. {left_out}"
            if left_out
            else f"{what}: it was handled, cancelled, replaced or purged, or it never existed."
        )
    return search


def _left_out(search: Whereabouts) -> str:
    """Return what was not searched, as sentences; "" if everything was."""
    sentences = []
    if search.not_searched:
        names = ", ".join(map(escape, search.not_searched))
        sentences.append(f"Not all ready and pending messages were searched in {SECONDS:.0f} s: {names}.")
    sentences += [f"{escape(queue)} cannot be read: {escape(error)}." for queue, error in search.errors.items()]
    return " ".join(sentences)


def _row(message_id: str, one: FoundMessageIn) -> dict[str, Any]:
    row = {"queue": one.queue, "place": one.place}
    match one.view:
        case Ended() as gone:
            return {**row, "id": message_id, "at": moment_text(gone.ms)}
        case TaskEnding() as task:
            return {**row, "id": message_id, "name": task.name, "status": task.status, "at": moment_text(task.ms)}
    return {**row, **as_dict(one.view)}


# The verbs `find`, `why` and `show` of the command `mq`: one message.

#: A message, or what became of it.
Found = MessageView | Ended


#: What became of a message, as a sentence with the time.
_ENDS = {
    Place.EXPIRED: "It was discarded at {}, because it had expired.",
    Place.REPLACED: "It was replaced at {} by another message with its unique key.",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verbs."""
    parser.add_argument("queue", nargs="?", help="A queue, or the group of a topic as topic:group. Default: all.")
    parser.add_argument("id", help="A message id, or u: and the unique key of a waiting message.")

    def parse(args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        # Before 3.13 argparse takes the first of two positional arguments with an option between them for the id.
        del parser.parse_known_args
        try:
            return parser.parse_known_intermixed_args(args, namespace)
        finally:
            parser.parse_known_args = parse  # type: ignore[assignment,method-assign]

    parser.parse_known_args = parse  # type: ignore[assignment,method-assign]


def find(options: Options, _: Terminal) -> VerbResult:
    """Tell where a message is, or what became of it; without a queue, search all of them."""
    if options["queue"] is None:
        return find_in_all(options["id"])
    queue = _part_of(options["queue"], options["id"])
    place, found = _find(queue, options["id"])
    known = {"id": options["id"], "at": moment_text(found.ms)} if isinstance(found, Ended) else as_dict(found)
    row = {"place": place, **known, **_progress(queue, found)}
    shown = {name: _shown(name, value) if name == "progress" else value for name, value in row.items()}
    return VerbResult(row, table([shown]))


def explain_why(options: Options, _: Terminal) -> VerbResult:
    """Tell why a message is not running."""
    queue = _part_of(options["queue"], options["id"]) if options["queue"] else queue_of(options["id"])
    place, found = _find(queue, options["id"])
    row = {"place": place, "id": options["id"], **_cause(queue, found)}
    return VerbResult(row, [row["sentence"]])


def show(options: Options, terminal: Terminal) -> VerbResult:
    """Show all attributes of a message."""
    queue = _part_of(options["queue"], options["id"]) if options["queue"] else queue_of(options["id"])
    place, found = _find(queue, options["id"])
    if isinstance(found, Ended):
        return find({**options, "queue": queue}, terminal)
    found = message_lists.get_message(queue, found.state, found.ref) or found
    row = {"place": place, "why": _cause(queue, found)["sentence"], **_facts(found), **_progress(queue, found)}
    return VerbResult(row, _page(row))


def _part_of(queue: str, message_id: str) -> str:
    """Return the queue, or its partition that has a message; the last one that may have it if none has it."""
    config, is_unique = get_config().queue(queue), message_id.startswith(UNIQUE_PREFIX)
    key = message_id.removeprefix(UNIQUE_PREFIX)
    *others, last = config.places_by(key) if is_unique else config.places_of(message_id)
    for part in others:
        with suppress(CommandError):
            _find(part.name, message_id)
            return part.name
    return last.name


def _progress(queue: str, found: Found) -> dict[str, Any]:
    """Return what the handler of a message has reported; nothing if it has not."""
    return {} if isinstance(found, Ended) else progress_fields(progress_of([(queue, found.id)])[0])


def _find(queue: str, message_id: str) -> tuple[str, Found]:
    """Return a message and its place.

    Raises:
        CommandError: nothing is known of it.
    """
    view = message_lists.find_message(queue, message_id)
    if view is not None:
        return view.state, view
    gone = ended(queue, message_id)
    if gone is not None:
        return gone.place.value, gone
    if message_id.startswith(UNIQUE_PREFIX):
        what = f"no waiting message with the unique key {escape(message_id.removeprefix(UNIQUE_PREFIX))}"
        raise CommandError(f"Queue {escape(queue)} has {what}. Others are found by their ids.")
    what = f"Queue {escape(queue)} has no message {escape(message_id)}"
    raise CommandError(f"{what}: it was handled, cancelled, replaced or purged, or it never existed.")


def _cause(queue: str, found: Found) -> dict[str, Any]:
    """Return why a message is not running: the kind of the cause, its numbers and a sentence."""
    if isinstance(found, Ended):
        return {"kind": found.place.value, "sentence": _ENDS[found.place].format(moment_text(found.ms))}
    if found.state in ("dead", "handled"):
        return {"kind": found.ending or "dead", "sentence": explain.ending_of(found)}
    cause = explain.cause_of(found, look_at(queue))
    numbers = {"count": cause.count, "most": cause.most, "ms": cause.ms}
    texts = {"consumer": cause.consumer, "key": redact_forms(cause.key)}
    return {
        "kind": cause.kind,
        "sentence": why(cause, name=found.name, can_see_data=True),
        **{name: value for name, value in {**numbers, **texts}.items() if value},
    }


def _facts(found: MessageView) -> dict[str, Any]:
    row, at = _about(found), moment_text(found.at_ms)
    match found.state:
        case "dead":
            row |= {"reason": found.reason, "error": found.error, "buried": at}
        case "handled":
            row |= {"ending": found.ending, "started": moment_text(found.started_ms), "finished": at}
            row["consumer"] = found.consumer or None
        case "ready" | "pending":
            row |= {"ready": at, "consumer": found.consumer or None}
        case _:
            row["due"] = at
    attempts = [
        {
            "number": attempt.number,
            "consumer": attempt.consumer,
            "started": moment_text(attempt.started_ms),
            "finished": moment_text(attempt.finished_ms),
            "error": attempt.error,
            "traceback": attempt.traceback or None,
        }
        for attempt in found.attempts
    ]
    if not attempts and found.traceback:
        row["traceback"] = found.traceback
    return {**row, "data": found.data if found.has_data else None, "attempts": attempts}


def _about(message: MessageView) -> dict[str, Any]:
    return {
        "id": message.id,
        "name": message.name,
        "attempt": message.attempt,
        "key": None if message.key is None else redact_forms(message.key),
        "unique": message.unique,
        "priority": message.priority or None,
        "published": moment_text(message.published_ms),
        "expires": moment_text(message.expires_ms),
        "size": message.size,
        "headers": dict(message.headers) or None,
        "problem": message.problem or None,
    }


def _page(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about a message: its attributes, its data and its attempts."""
    below = ("data", "attempts", "traceback")
    shown = {name: value for name, value in row.items() if value is not None and name not in below}
    width = max(map(len, shown))
    for name, value in shown.items():
        text = _shown(name, value)
        yield f"{name:<{width}}  {escape(text)}"
    yield ""
    yield Heading("data")
    yield from _lines(json.dumps(row["data"], indent=2, ensure_ascii=False))
    for attempt in row["attempts"]:
        yield ""
        yield Heading(f"attempt {attempt['number']}")
        ended = attempt["finished"] or "at an unknown time"
        yield f"ended {ended} on {escape(attempt['consumer']) or 'an unknown consumer'}: {escape(attempt['error'])}"
        yield from _lines(attempt["traceback"] or "")
    if row.get("traceback"):
        yield ""
        yield Heading("traceback")
        yield from _lines(row["traceback"])


def _shown(name: str, value: Any) -> str:
    if name == "progress":
        return progress_line(**value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)


def _lines(text: str) -> list[str]:
    return escape(text, lines=True).replace("\t", "    ").splitlines()


VERBS = (
    Verb("find", "Tell where a message is, or what became of it.", find, add_options),
    Verb("why", "Tell why a message is not running.", explain_why, add_options),
    Verb(
        "show",
        "Show a message with all its attributes and attempts, with secrets replaced.",
        show,
        add_options,
    ),
)
