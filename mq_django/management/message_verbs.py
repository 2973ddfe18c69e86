"""The verbs `find`, `publish`, `export` and `tail` of the command `mq`: messages."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, get_args

from django.core.management.base import CommandError

from mq_django import inspect
from mq_django.conf import get_config
from mq_django.core.filters import FailureGroup, Filter
from mq_django.core.jsontext import loads
from mq_django.core.keys import UNIQUE_PREFIX
from mq_django.core.message_streams import Chunk
from mq_django.core.messages import LookupState
from mq_django.core.redaction import redact_forms
from mq_django.core.running_handler import Progress
from mq_django.core.texts import escape
from mq_django.errors import DecodeError, InvalidFilter, NotSupported, StreamNotFound, UnknownQueue, WaitTimeout
from mq_django.inspector import dead_letters, explain
from mq_django.inspector.message_lists import (
    FoundMessageIn,
    SearchResult,
    TaskEnding,
    find_everywhere,
    find_message,
    messages,
)
from mq_django.inspector.message_views import (
    MessageState,
    MessageView,
    exported,
    moment_text,
    progress_line,
    progress_of,
    stream_of,
    without_secrets,
)
from mq_django.inspector.queues import queue as read_queue
from mq_django.inspector.queues import require_queue
from mq_django.inspector.readers import Ended, ended
from mq_django.inspector.search import Listing, Problem, Query, parse, problem_sentence, step
from mq_django.inspector.stream_reader import Scanned
from mq_django.management.terminal import Heading, Options, Terminal, VerbResult, away_text, columns, table
from mq_django.management.verb_types import priority
from mq_django.producers import queues
from mq_django.producers.message_streams import read_stream
from mq_django.stores.activity import Effect, recorded

T = TypeVar("T")

#: The states of the messages of a queue.
STATES: tuple[MessageState, ...] = tuple(state for state in get_args(MessageState) if state != "log")

#: Messages that a call returns at most.
BATCH = 500

#: Seconds for which the ready and pending messages of all queues are searched.
SECONDS = 10.0

#: The options that select messages, by their names in Python.
SELECTING = ("name", "key", "with_data", "since", "until", "error", "group")

#: Sentences about a message's outcome, with the time.
_ENDS = {
    LookupState.EXPIRED: "It was discarded at {}, because it had expired.",
    LookupState.REPLACED: "It was replaced at {} by another message with its unique key.",
}


# Read the messages of a state that match a filter. The inspector scans a bounded number of messages in a call, because
# a page waits for it. A terminal can wait: these functions call it again until there are enough messages.


def filter_of(options: Options, names: tuple[str, ...] = SELECTING, *, state: str = "dead") -> Filter:
    """Return the filter of the options. One that cannot be applied is an error: without it all would be selected."""
    found: dict[str, Any] = {name: options[name] for name in names if options[name] is not None}
    for name in ("name", "key", "with_data", "error"):
        # As of an unset variable of a shell.
        if found.get(name) == "":
            option = name.replace("_", "-")
            raise CommandError(f"--{option} is '': omit it, or give it a value.", returncode=2)
    if "with_data" in found:
        found["data"] = found.pop("with_data")
    if "group" in found:
        found["group"] = FailureGroup(*found["group"])
    if state != "dead" and found.keys() & {"error", "group"}:
        raise CommandError("Only dead letters have an error.", returncode=2)
    for name in ("since", "until"):
        if name in found:
            found[f"{name}_ms"] = found.pop(name).ms
    try:
        return Filter(**found)
    except InvalidFilter as error:
        raise CommandError(f"--with-data: {error}", returncode=2) from error


def scans(queue: str, state: MessageState, where: Filter, *, with_log: bool = True) -> Iterator[Scanned[MessageView]]:
    """Yield the messages that match in parts, to the end of the state; dead letters newest first."""
    after = ""
    while True:
        found = messages(queue, state, where, after=after, limit=BATCH, with_log=with_log)
        yield found
        if not found.after:
            return
        after = found.after


def first(read: Callable[..., Scanned[T]], *, after: str = "", limit: int) -> Scanned[T]:
    """Return the first rows that `read` finds, and the cursor to continue from; empty at the end."""
    rows: list[T] = []
    scanned = 0
    while True:
        found = read(after=after, limit=limit - len(rows))
        rows += found.rows
        scanned, after = scanned + found.scanned, found.after
        if len(rows) == limit or not after:
            return Scanned(rows, scanned, after)


def listed(read: Callable[..., Scanned[MessageView]], options: Options) -> VerbResult:
    """Return a list of the first messages that `read` finds."""
    page = first(read, after=options["after"] or "", limit=options["limit"])
    rows = list(map(_short, page.rows))
    note = f"There are more: --after {page.after}" if page.after and rows else ""
    return VerbResult(rows, table(rows) or ["No messages."], note=note)


def _short(view: MessageView) -> dict[str, Any]:
    """Return a message with what its state says about it."""
    data = view.data if view.has_data else None
    if view.state == "log":
        return {"entry": view.ref, "at": moment_text(view.at_ms), "id": view.id, "name": view.name, "data": data}
    row = {"id": view.id, "name": view.name, "attempt": view.attempt, "data": data}
    match view.state:
        case "dead":
            row |= {"reason": view.reason, "error": view.error}
        case "handled":
            took = None if view.seconds is None else round(view.seconds, 6)
            row |= {"ending": view.ending, "at": moment_text(view.at_ms), "seconds": took}
            row["consumer"] = view.consumer or None
        case "pending":
            row |= {"consumer": view.consumer, "held_s": view.held_ms // 1000}
        case "delayed" | "unhandled" | "parked":
            row["due"] = moment_text(view.at_ms)
    return row


def find(options: Options, terminal: Terminal) -> VerbResult:
    """List messages, search all of them, or show one: where it is, why it is not running, its data, its attempts."""
    queue, message_id = options["of"], options["id"]
    if (query := _query(queue, message_id)) is not None:
        return _searched(query, options, terminal)
    if message_id is None and queue is None:
        raise CommandError("Name a queue, or give the id of a message.", returncode=2)
    is_id = queue is not None and message_id is None and not (_is_queue(queue) or _selects(options))
    queue, message_id = (None, queue) if is_id else (queue, message_id)
    if queue is not None:
        require_queue(queue)
    if queue is not None and message_id is None:
        state: MessageState = options["state"] or "ready"
        return listed(partial(messages, queue, state, filter_of(options, state=state)), options)
    if _selects(options):
        raise CommandError("The options of a list need no id.", returncode=2)
    if queue is None and not (search := _search(message_id)).found:
        # It may be a word of the data.
        word = parse(f'"{message_id}"')
        is_word = isinstance(word, Query) and not word.is_id_of_ours and not message_id.startswith(UNIQUE_PREFIX)
        if is_word and isinstance(word, Query) and (result := _searched(word, options, terminal)).found:
            return result
        raise CommandError(unknown(message_id, search))
    if queue is not None:
        search = _found_in(queue, message_id)
    rows = [_row(message_id, one) for one in search.found]
    found = {"found": rows, "not_searched": list(search.not_searched), "errors": dict(search.errors)}
    return VerbResult(found, _pages(rows), note=not_searched(search))


def _is_queue(name: str) -> bool:
    """Return whether it is the name of a queue, or of what may be a group; an id is neither."""
    try:
        get_config().queue(name)
    except UnknownQueue:
        return False
    return True


def _selects(options: Options) -> bool:
    return any(options[name] is not None for name in ("state", "after", *SELECTING))


def _search(message_id: str) -> SearchResult:
    """Return where a message is in all queues."""
    return find_everywhere(message_id, seconds=SECONDS)


def unknown(message_id: str, search: SearchResult) -> str:
    """Return that nothing is known of a message."""
    what = f"No queue has a message {escape(message_id)}"
    if left_out := not_searched(search):
        return f"{what} in what was searched. {left_out}"
    return f"{what}: it was handled, cancelled, replaced or purged, or it never existed."


# Search all messages by a query.

#: Seconds of a step, after which what it has found is printed.
STEP = 1.0


def _query(queue: str | None, text: str | None) -> Query | None:
    """Return the query among the arguments of `find`; None if they are a queue or an id.

    Raises:
        CommandError: it cannot be searched for.
    """
    asked = text if text is not None else queue
    if asked is None or (text is None and _is_queue(asked)):
        return None
    found = parse(asked)
    is_id = (isinstance(found, Query) and bool(found.named) and not found.where.id) or (
        isinstance(found, Problem) and found.kind == "term" and " " not in asked
    )
    if is_id and '"' not in asked:
        return None
    if isinstance(found, Query) and text is not None and queue is not None:
        found = parse(f'queue:"{queue}" {text}')
    if isinstance(found, Problem):
        raise CommandError(problem_sentence(found), returncode=2)
    return found


def _searched(query: Query, options: Options, terminal: Terminal) -> VerbResult:
    """Search all messages, and print what is found as it is found."""
    if _selects(options):
        raise CommandError("A query has its own terms, and takes no other options than --limit.", returncode=2)
    rows: list[dict[str, Any]] = []
    errors: dict[str, str] = {}
    scanned, after, limit = 0, "", options["limit"]
    while True:
        found = step(query, after, limit=limit - len(rows), seconds=STEP)
        new = [_hit(listing, view) for listing, view in found.found]
        rows, scanned, after = rows + new, scanned + found.scanned, found.after
        errors |= {name: str(error) for name, error in found.errors.items()}
        if new and not terminal.as_json:
            terminal.end_progress()
            for line in table(new)[len(rows) > len(new) :]:
                terminal.write(terminal.styled(line))
            terminal.flush()
        if not after or len(rows) >= limit:
            break
        terminal.progress(found.done, found.total, f"{len(rows)} found, {scanned} messages scanned")
    terminal.end_progress()
    note = f"There may be more than {limit}: --limit" if after else ""
    lines = [] if rows or errors else ["No messages."]
    return VerbResult(rows, lines, error=away_text(errors), note=note)


def _hit(listing: Listing, view: MessageView) -> dict[str, Any]:
    data = view.data if view.has_data else None
    row = {"queue": listing.queue, "state": listing.state, "id": view.id, "name": view.name}
    return {**row, "error": view.error or None, "data": data}


def _found_in(queue: str, message_id: str) -> SearchResult:
    """Return where a message is in a queue or one of its partitions.

    Raises:
        CommandError: nothing is known of it.
    """
    config, is_unique = get_config().queue(queue), message_id.startswith(UNIQUE_PREFIX)
    key = message_id.removeprefix(UNIQUE_PREFIX)
    for part in config.partitions_for_name(key) if is_unique else config.partitions_for_id(message_id):
        found = find_message(part.name, message_id) or ended(part.name, message_id)
        if found is not None:
            state: Any = found.state.value if isinstance(found, Ended) else found.state
            one = FoundMessageIn(queue=part.name, state=state, view=found)
            return SearchResult(found=[one], not_searched=[], errors={})
    if is_unique:
        what = f"no waiting message with the unique key {escape(key)}"
        raise CommandError(f"Queue {escape(queue)} has {what}. Others are found by their ids.")
    what = f"Queue {escape(queue)} has no message {escape(message_id)}"
    raise CommandError(f"{what}: it was handled, cancelled, replaced or purged, or it never existed.")


def not_searched(search: SearchResult) -> str:
    """Return what was not searched, as sentences; "" if everything was."""
    sentences = []
    if search.not_searched:
        names = ", ".join(map(escape, search.not_searched))
        sentences.append(f"Not all ready and pending messages were searched in {SECONDS:.0f} s: {names}.")
    sentences += [f"{escape(queue)} cannot be read: {escape(error)}." for queue, error in search.errors.items()]
    return " ".join(sentences)


def _row(message_id: str, one: FoundMessageIn) -> dict[str, Any]:
    """Return all that is known of a message in a place."""
    row: dict[str, Any] = {"queue": one.queue, "state": one.state}
    match one.view:
        case Ended() as gone:
            at = moment_text(gone.ms)
            why = {"kind": one.state, "sentence": _ENDS[gone.state].format(at)}
            return {**row, "id": message_id, "at": at, "why": why}
        case TaskEnding() as task:
            return {**row, "id": message_id, "name": task.name, "status": task.status, "at": moment_text(task.ms)}
    if one.state == "log":
        return {**row, **_short(one.view)}
    whole = inspect.get_message(one.queue, one.view.state, one.view.ref) or one.view
    (progress,) = progress_of([(one.queue, whole.id)])
    return {**row, "why": _why(one.queue, one.view), **_facts(whole), **progress_fields(progress)}


def _why(queue: str, found: MessageView) -> dict[str, Any]:
    """Return why a message is not running: the kind of the cause, its numbers and a sentence."""
    if found.state in ("dead", "handled"):
        return {"kind": found.ending or "dead", "sentence": explain.ending_of(found)}
    cause = explain.cause_of(found, read_queue(queue))
    numbers = {"count": cause.count, "most": cause.most, "ms": cause.ms}
    texts = {"consumer": cause.consumer, "key": redact_forms(cause.key)}
    return {
        "kind": cause.kind,
        "sentence": explain.why(cause, name=found.name, can_see_data=True),
        **{name: value for name, value in {**numbers, **texts}.items() if value},
    }


def progress_fields(progress: Progress | None) -> dict[str, Any]:
    """Return what a handler has reported; nothing if it does not report."""
    return {} if progress is None else {"progress": columns(progress, "done total note attempt at_ms")}


def _facts(found: MessageView) -> dict[str, Any]:
    row, at = _about(found), moment_text(found.at_ms)
    match found.state:
        case "dead":
            row |= {"reason": found.reason, "error": found.error, "buried": at}
        case "handled":
            took = None if found.seconds is None else round(found.seconds, 6)
            row |= {"ending": found.ending, "started": moment_text(found.started_ms), "finished": at, "seconds": took}
            row["consumer"] = found.consumer or None
        case "ready" | "pending":
            row |= {"ready": at, "consumer": found.consumer or None}
        case _:
            row["due"] = at
    attempts = [columns(each, "number consumer started_ms finished_ms error traceback?") for each in found.attempts]
    if not attempts and found.traceback:
        row["traceback"] = found.traceback
    return {**row, "data": found.data if found.has_data else None, "attempts": attempts}


def _about(message: MessageView) -> dict[str, Any]:
    row = columns(message, "id name attempt key unique priority? published_ms expires_ms size headers problem?")
    key = None if message.key is None else redact_forms(message.key)
    return {**row, "key": key, "headers": dict(message.headers) or None}


def _pages(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for number, row in enumerate(rows):
        if number:
            yield ""
        yield from _page(row)


def _page(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about a message: its attributes, its data and its attempts."""
    below = ("data", "attempts", "traceback")
    shown = {name: value for name, value in row.items() if value is not None and name not in below}
    width = max(map(len, shown))
    for name, value in shown.items():
        yield f"{name:<{width}}  {escape(_shown(name, value))}"
    if "data" in row:
        yield from _section("data", json.dumps(row["data"], indent=2, ensure_ascii=False))
    for attempt in row.get("attempts", ()):
        ended_at = attempt["finished"] or "at an unknown time"
        who = escape(attempt["consumer"]) or "an unknown consumer"
        said = f"ended {ended_at} on {who}: {escape(attempt['error'])}"
        yield from _section(f"attempt {attempt['number']}", attempt["traceback"] or "", said)
    if row.get("traceback"):
        yield from _section("traceback", row["traceback"])


def _section(heading: str, text: str, *lines: str) -> Iterator[str]:
    yield ""
    yield Heading(heading)
    yield from lines
    yield from escape(text, lines=True).replace("\t", "    ").splitlines()


def _shown(name: str, value: Any) -> str:
    if name == "progress":
        return progress_line(**value)
    if name == "why":
        return str(value["sentence"])
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)


def publish(options: Options, _: Terminal) -> VerbResult:
    """Publish a message."""
    read: dict[str, Any] = {}
    for name, written in (("data", options["data"]), ("headers", options["headers"] or "{}")):
        try:
            read[name] = loads(written.encode())
        except DecodeError as error:
            verb = "is" if name == "data" else "are"
            raise CommandError(f"The {name} {verb} {error}", returncode=2) from error
    if not isinstance(read["headers"], dict):
        raise CommandError(f"--headers is a JSON object, not {escape(options['headers'])}", returncode=2)
    given = {name: options[name] for name in ("delay", "key", "unique", "at_most", "expires")}
    given["priority"] = priority(options["priority"])
    message_id = _publish(options["queue"], options["name"], read["data"], {**given, "headers": read["headers"]})
    return VerbResult({"id": message_id}, [message_id])


@recorded("publish", queue="queue", effect=lambda given, made: Effect(1, given["name"], about=[made]))
def _publish(queue: str, name: str, data: Any, more: Mapping[str, Any]) -> str:
    message_id: str = queues[queue].publish(name, data, **more)
    return message_id


def export(options: Options, terminal: Terminal) -> None:
    """Print messages as JSON lines, with secrets replaced."""
    queue, state = options["queue"], options["state"]
    where = filter_of(options, state=state)
    found = dead_letters.every(queue, where) if state == "dead" else _messages(queue, state, where)
    for view in found:
        terminal.write(json.dumps(exported(view), ensure_ascii=True))


def _messages(queue: str, state: MessageState, where: Filter) -> Iterator[MessageView]:
    for part in get_config().queue(queue).each_part:
        for found in scans(part.name, state, where):
            for view in found.rows:
                yield view if view.has_data else inspect.get_message(part.name, state, view.ref) or view


# The verb `tail`: what the handler of a message streams.

#: The exit codes if no end is known, and of Ctrl-C: that of a program which SIGINT ends.
UNKNOWN, INTERRUPTED = 2, 130


def tail(options: Options, terminal: Terminal) -> None:
    """Print what the handler of a message streams as it comes, until its end.

    Raises:
        CommandError: the message was not handled, nothing is known of it, or nothing came for long.
    """
    printer, chunk = _Printer(terminal), None
    try:
        _check_known(options["id"], options["queue"])
        how = {name: options[name] for name in ("queue", "after", "timeout")}
        for chunk in read_stream(options["id"], **how):
            printer.show(without_secrets(chunk))
    except KeyboardInterrupt:
        printer.end_line()
        raise SystemExit(INTERRUPTED) from None
    except (NotSupported, StreamNotFound, WaitTimeout) as error:
        printer.end_line()
        raise CommandError(str(error), returncode=UNKNOWN) from error
    if chunk is not None and chunk.outcome != "handled":
        raise CommandError("The message was not handled.")


def _check_known(message_id: str, queue: str | None) -> None:
    """Refuse an id of which nothing is known: its stream would be waited for in vain.

    Raises:
        CommandError: neither a stream nor the message is found.
    """
    configs = [*(get_config().each_part() if queue is None else get_config().queue(queue).each_part)]
    if not any(stream_of(config.name, message_id) for config in configs):
        search = find_everywhere(message_id, seconds=SECONDS)
        if not search.found and not not_searched(search):
            raise CommandError(unknown(message_id, search), returncode=UNKNOWN)


class _Printer:
    """Prints chunks: texts one after the other, anything else in lines. What is not streamed goes to stderr."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._is_in_line = False

    def show(self, chunk: Chunk) -> None:
        """Print a chunk at once."""
        value = b64encode(chunk.value).decode() if chunk.kind == "bytes" else chunk.value
        if self._terminal.as_json:
            row = columns(chunk, "id kind value attempt number outcome? error?")
            self._terminal.write(json.dumps({**row, "value": value}))
        elif chunk.kind == "text":
            self._terminal.write(escape(value, lines=True), ending="")
            self._is_in_line = not value.endswith("\n") if value else self._is_in_line
        else:
            self.end_line()
            self._line(chunk, value)
        self._terminal.flush()

    def end_line(self) -> None:
        """Begin a new line if text stands in this one."""
        if self._is_in_line:
            self._terminal.write("")
            self._is_in_line = False

    def _line(self, chunk: Chunk, value: object) -> None:
        match chunk.kind:
            case "restart":
                self._terminal.report(f"Restarted: attempt {chunk.attempt}")
            case "end":
                self._terminal.report(f"Ended: {chunk.outcome}{f', {escape(chunk.error)}' if chunk.error else ''}")
            case "json":
                self._terminal.write(escape(json.dumps(value, ensure_ascii=False)))
            case _:
                self._terminal.write(escape(str(value)))
