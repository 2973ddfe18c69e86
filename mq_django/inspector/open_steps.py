"""Why the open steps of a run have not ended, as sentences, and how long the steps waited and ran.

The messages of some started steps are searched, as far as one round trip per server finds them: with their queue they
say exactly what a step waits for. The other started steps get what holds for all messages of their queue.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from mq_django.conf import QueueConfig, get_config
from mq_django.core.filters import Filterable
from mq_django.core.publish_checks import check_supported
from mq_django.core.texts import escape
from mq_django.errors import MQError, StoreError
from mq_django.inspector.explain import Cause, cause_in, cause_of, why
from mq_django.inspector.message_views import MessageView, view_of_entry
from mq_django.inspector.problem_sentences import duration, number
from mq_django.inspector.queue_view import QueueView
from mq_django.inspector.queues import overview, transports_of
from mq_django.inspector.readers import reader_of
from mq_django.inspector.stream_reader import StreamReader
from mq_django.inspector.workflow_runs import ENDED_STATES, RunView, StepLine
from mq_django.stores.results import error_path, read_result
from mq_django.transport import scripts
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import fan_out, within

#: Steps whose messages are searched, and how many of these may cost a further read.
EXACT, READS = 20, 5
#: Pending and ready entries of a stream that are searched, and maximum bytes of a value in them: ids are shorter.
PENDING, READY, MAX_BYTES = 500, 200, 256
#: Seconds for which a server is asked.
SECONDS = 0.5
#: A message that is younger may just be on its way, in ms.
NEW_MS = 30_000
#: Bytes of a result that are read.
MAX_RESULT = 8 * 1024


class OpenStep(NamedTuple):
    """What an open step waits for."""

    #: A sentence.
    why: str
    #: The queue or partition that has its message, and the message; "" and None if it is not known.
    queue: str = ""
    message: MessageView | None = None
    #: The consumer that runs it; "" if none does.
    runs_on: str = ""


def explain_steps(
    view: RunView,
    steps: Sequence[StepLine],
    *,
    before: Mapping[int, Sequence[int]] | None = None,
    dead: Mapping[int, str] | None = None,
) -> Mapping[int, OpenStep]:
    """Return by number why steps of a run have not ended, or why they have failed. Others are left out.

    Args:
        view: the run.
        steps: some of its steps.
        before: the steps that each waits for, as names_before() returns them.
        dead: which failed steps have dead letters, as dead_letters_of() returns them; None if that is not known.

    Raises:
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    known = {step.number: step for step in steps}
    found = {step.number: OpenStep(said) for step in steps if (said := _of_step(view, step, known, before, dead))}
    return found | _started([step for step in steps if step.state == "started" and step.message_id])


def _of_step(
    view: RunView,
    step: StepLine,
    known: Mapping[int, StepLine],
    before: Mapping[int, Sequence[int]] | None,
    dead: Mapping[int, str] | None,
) -> str:
    """Return why a step that has no message in its queue is where it is; "" for others."""
    match step.state:
        case "failed":
            if dead is None or step.number in dead:
                return _("Failed: see its dead letter.")
            return _("Failed. It has no dead letter: a retry gives it a new message.")
        case "waiting" | "held" if view.state in ENDED_STATES:
            return _("Does not start, because the run has ended. It can, once the run is retried.")
        case "waiting":
            return _waits_for(step, known, before)
        case "building":
            return _("Is not started before the step that adds it has ended.")
    return ""


def _waits_for(step: StepLine, known: Mapping[int, StepLine], before: Mapping[int, Sequence[int]] | None) -> str:
    left = [known[at] for at in (before or {}).get(step.number, ()) if at in known]
    # One that has failed is what an operator has to do something about.
    left = sorted((one for one in left if one.state not in ("done", "passed")), key=lambda one: one.state != "failed")
    if not left:
        return _("Waits for other steps.")
    words = {"number": number(left[0].number), "task": escape(left[0].task.rpartition(".")[2])[:80]}
    more = len(left) - 1
    if not more:
        return _("Waits for step %(number)s, %(task)s.") % words
    said = ngettext(
        "Waits for step %(number)s, %(task)s, and %(count)s more step.",
        "Waits for step %(number)s, %(task)s, and %(count)s more steps.",
        more,
    )
    return said % {**words, "count": number(more)}


# Started steps: search their messages, and explain these as the page of a message does.


class _Sought:
    """A matcher of the messages of some steps."""

    #: It does not look at data.
    data = ""

    def __init__(self, steps: Sequence[StepLine]) -> None:
        self.steps = {step.message_id: step for step in steps}

    def matches(self, message: Filterable) -> bool:
        return message.id in self.steps


@dataclass(slots=True)
class _SearchedPart:
    """A queue or partition, with the started steps whose messages it may have."""

    view: QueueView
    config: QueueConfig
    sought: _Sought
    #: Whether ready messages were left out of the search.
    is_cut: bool = False


def _started(steps: Sequence[StepLine]) -> dict[int, OpenStep]:
    by_queue: dict[str, list[StepLine]] = defaultdict(list)
    unknown = {}
    for step in steps:
        try:
            check_supported(get_config().queue(step.queue), "step")
            by_queue[step.queue].append(step)
        except MQError:
            unknown[step.number] = OpenStep(_("Its queue is not in the settings, or cannot have steps."))
    if not by_queue:
        return unknown
    try:
        with within(SECONDS):
            views = overview(list(by_queue), minutes=0)
            exact = _exact(_parts(views, {step.number for step in steps[:EXACT]}, by_queue))
    except StoreError:
        return unknown
    of_all = {view.name: view for view in views}
    rest = [step for step in steps if step.number not in exact and step.number not in unknown]
    return unknown | exact | {step.number: OpenStep(_of_queue(step, of_all[step.queue])) for step in rest}


def _parts(
    views: Sequence[QueueView], numbers: set[int], by_queue: Mapping[str, Sequence[StepLine]]
) -> Iterator[_SearchedPart]:
    """Yield the queues and partitions that can be searched for the messages of steps with some numbers."""
    for whole in views:
        steps = [step for step in by_queue[whole.name] if step.number in numbers]
        config = get_config().queue(whole.name)
        by_part: dict[str, list[StepLine]] = defaultdict(list)
        for step in steps:
            for part in config.partitions_for_id(step.message_id):
                by_part[part.name].append(step)
        for view in whole.each_part:
            if by_part[view.name] and not view.error:
                yield _SearchedPart(view, get_config().queue(view.name), _Sought(by_part[view.name]))


def _exact(found: Iterator[_SearchedPart]) -> dict[int, OpenStep]:
    """Return why steps are open whose messages are found, or are certainly not there."""
    parts = list(found)
    transports = transports_of([part.config for part in parts])
    readers = [reader_of(part.config, transport) for part, transport in zip(parts, transports, strict=True)]
    commands = [list(_commands(part, reader)) for part, reader in zip(parts, readers, strict=True)]
    located: dict[int, tuple[_SearchedPart, MessageView]] = {}
    for part, reader, replies in zip(parts, readers, fan_out(transports, commands), strict=True):
        for view in _views(part, reader, replies):
            located[part.sought.steps[view.id].number] = (part, view)
    read: dict[tuple[str, str, str | None], Cause] = {}
    exact = {at: _explained(part, view, read) for at, (part, view) in sorted(located.items())}
    return exact | _missing(parts, {*located})


def _commands(part: _SearchedPart, reader: StreamReader) -> Iterator[Command]:
    keys = part.config.keys
    yield from (reader.find_command(message_id) for message_id in part.sought.steps)
    for stream in keys.streams():
        yield scripts.command("entries_pending", keys=[stream], args=[keys.group, "-", PENDING, MAX_BYTES])
        yield scripts.command("entries_ready", keys=[stream], args=[keys.group, "", READY, MAX_BYTES])


def _views(part: _SearchedPart, reader: StreamReader, replies: Sequence[Any]) -> Iterator[MessageView]:
    """Yield the messages of steps in the replies to the commands; what cannot be read has none."""
    count = len(part.sought.steps)
    for reply in replies[:count]:
        view = reader.found(reply)
        if view is not None and part.sought.matches(view):
            yield view
    for source, (pending, ready) in enumerate(zip(replies[count::2], replies[count + 1 :: 2], strict=True)):
        rows = [] if isinstance(pending, Exception) else pending
        for entry, consumer, held_ms, flat in zip(*[iter(rows)] * 4, strict=True):
            held = {"state": "pending", "consumer": consumer.decode(errors="backslashreplace"), "held_ms": held_ms}
            yield from _entry(part, reader, source, entry, flat, held)
        _more, *rows = [0] if isinstance(ready, Exception) else ready
        part.is_cut = part.is_cut or isinstance(ready, Exception) or len(rows) >= 2 * READY or bool(_more)
        for entry, flat in zip(*[iter(rows)] * 2, strict=True):
            yield from _entry(part, reader, source, entry, flat, {})


def _entry(
    part: _SearchedPart, reader: StreamReader, source: int, entry: bytes, flat: list[Any], held: Mapping[str, Any]
) -> Iterator[MessageView]:
    ref = reader.ref_of((source, entry.decode()))
    view = view_of_entry(part.view.name, entry, flat, part.sought, ref=ref or "", **held)
    if view is not None:
        yield view


def _explained(part: _SearchedPart, view: MessageView, read: dict[tuple[str, str, str | None], Cause]) -> OpenStep:
    """Return why the message of a step is where it is. Of many that wait alike, one costs a read."""
    alike = (part.view.name, view.state, view.key if view.state == "parked" else None)
    if view.state in ("pending", "delayed", "unhandled"):
        cause: Cause | None = cause_of(view, part.view)
    elif alike in read:
        cause = replace(read[alike], count=0)
    elif len(read) < READS:
        cause = read[alike] = cause_of(view, part.view)
    else:
        cause = cause_in(part.view)
    step = part.sought.steps[view.id]
    said = _of_queue(step, part.view, cause) if cause is None else _of_message(step, part.view, view, cause)
    runs_on = view.consumer if cause is not None and cause.kind == "running" else ""
    return OpenStep(said, part.view.name, view, runs_on)


def _of_message(step: StepLine, queue: QueueView, view: MessageView, cause: Cause) -> str:
    if cause.kind == "running":
        consumer = next((one for one in queue.consumers if one.id == cause.consumer), None)
        if consumer is not None and consumer.host:
            return _("Has run for %(time)s on %(host)s.") % {"time": duration(cause.ms), "host": escape(consumer.host)}
    if cause.kind == "delayed" and view.attempt > 1:
        words = {"attempt": number(view.attempt), "time": duration(cause.ms)}
        said = _("Waits for attempt %(attempt)s, which is due in %(time)s.") % words
        error = next((attempt.error for attempt in view.attempts if attempt.error), "")
        return f"{said} {escape(error_path(error)).removeprefix('builtins.')}".rstrip() if error else said
    return _of_queue(step, queue, cause)


def _of_queue(step: StepLine, queue: QueueView, cause: Cause | None = None) -> str:
    """Return for how long the message of a step waits, and what for."""
    cause = cause_in(queue) if cause is None else cause
    # A key is data: who may see the page need not see it.
    said = "" if cause is None else why(cause, name=step.task, can_see_data=False)
    if cause is not None and cause.kind in ("running", "delayed"):
        return said
    said = said or _("It is in its queue, and may be running.")
    if step.began_ms is None or not queue.now_ms:
        return said
    return " ".join([_("Started %(time)s ago.") % {"time": duration(max(0, queue.now_ms - step.began_ms))}, said])


def _missing(parts: Sequence[_SearchedPart], found: set[int]) -> dict[int, OpenStep]:
    """Return the steps whose messages are in no place of their queue, all of which was searched."""
    asked: dict[int, list[_SearchedPart]] = defaultdict(list)
    for part in parts:
        for step in part.sought.steps.values():
            if step.number not in found and part.view.now_ms - (step.began_ms or 0) > NEW_MS:
                asked[step.number].append(part)
    said = _(
        "Its message was not found in its queue. If this stays, check the run with “manage.py mq workflows --check”."
    )
    return {
        at: OpenStep(said)
        for at, searched in asked.items()
        if not any(part.is_cut or part.view.pending > PENDING for part in searched)
    }


# How long steps waited in their queues and ran, from the results of their tasks.


class StepTimes(NamedTuple):
    """When the handler of a step started first, and ended last, in ms since 1970; None: not yet, or unknown."""

    ran_ms: int | None
    ended_ms: int | None


def times_of(steps: Sequence[StepLine]) -> Mapping[int, StepTimes]:
    """Return by number when the handlers of steps ran, as far as the results of their tasks say it.

    One round trip per server. Without RESULT_TTL, or if a server cannot be reached, nothing is known.
    """
    asked: list[tuple[StepLine, QueueConfig]] = []
    for step in steps:
        try:
            config = get_config().queue(step.queue)
        except MQError:
            continue
        if step.message_id and config.keeps_results:
            asked += [(step, part) for part in config.partitions_for_id(step.message_id)[:1]]
    pipelines: list[list[Command]] = [
        [("GETRANGE", part.keys.result(step.message_id), 0, MAX_RESULT - 1)] for step, part in asked
    ]
    found: dict[int, StepTimes] = {}
    try:
        with within(SECONDS):
            replies = fan_out(transports_of([part for _step, part in asked]), pipelines)
    except StoreError:
        return found
    for (step, _part), (reply,) in zip(asked, replies, strict=True):
        if isinstance(reply, bytes) and (times := _times(reply)) is not None:
            found[step.number] = times
    return found


def _times(reply: bytes) -> StepTimes | None:
    result = read_result(reply)
    if result is None:
        return None
    attempts = [*result.attempts, *([result.running] if result.running else [])]
    started = [attempt.started_ms for attempt in attempts if attempt.started_ms is not None]
    ended = None if result.running or not attempts else attempts[-1].finished_ms
    return StepTimes(min(started), ended) if started else None
