"""Start, watch and cancel background jobs on many messages, and move selected ones.

`mq_django.consumers.supervisor.chores` runs them.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Literal, get_args

from mq_django.conf import QueueConfig, get_config
from mq_django.core.filters import NOTHING, Filter
from mq_django.core.ids import token as new_token
from mq_django.core.message_format import entry_ms
from mq_django.core.texts import repr_of
from mq_django.errors import InvalidFilter, StoreError
from mq_django.inspector import dead_letters
from mq_django.inspector.actions import Outcome, add_part, effect_of
from mq_django.inspector.dead_letters import check_target, is_at_depth, move_letters, without_handler
from mq_django.inspector.message_lists import find_message
from mq_django.inspector.message_views import is_in_log
from mq_django.inspector.queues import quick_stats
from mq_django.inspector.readers import open_reader
from mq_django.inspector.stream_reader import one_queue
from mq_django.stores.activity import Effect, Given, Verb, recorded
from mq_django.stores.background_jobs import ACTIONS, BackgroundJob, BackgroundJobs, JobOrder, What
from mq_django.stores.dead_letters import NO_STEP, is_entry
from mq_django.stores.message_scans import ActionableState, sources_by_name
from mq_django.stores.moving import REFUSED, MessageSource, Mover
from mq_django.transport.connections import open_transport

__all__ = [
    "ACTIONS",
    "ActionableState",
    "BackgroundJob",
    "Begun",
    "Matching",
    "What",
    "begin",
    "cancel",
    "count_matching",
    "get_job",
    "get_jobs",
    "pace_of",
    "together",
]


@dataclass(frozen=True, slots=True)
class Begun:
    """The result of starting a job."""

    word: Literal["begun", "nothing", "busy"]
    #: Messages that the job will check.
    total: int = 0
    #: get_job() finds it by this token.
    token: str = field(default="", compare=False)


def _verb(given: Given) -> Verb:
    what: What = given["what"]
    return what if given["state"] == "dead" or what == "move" else "purge" if given["state"] == "ready" else "cancel"


@recorded(_verb, effect=lambda _, found: Effect(found.total if found.word == "begun" else 0, job=found.token))
def begin(
    name: str,
    what: What,
    state: ActionableState = "dead",
    *,
    who: str,
    criteria: Filter = NOTHING,
    until: str = "",
    rate: int = 0,
    target: str = "",
) -> Begun:
    """Start a job that redrives, moves or deletes the dead letters that match, or moves or deletes other messages.

    A queue can have a running job for each state of its messages. In a queue with partitions each one that has messages
    gets one, and they share the rate; none is started while any has one.

    Dead letters buried after the entry `until`, or after now, stay, so one that fails again is redriven only once.
    Other messages that were published at or after the time in ms in `until`, or after now, stay, by the clocks of their
    publishers; and so do pending messages and, in a topic's log, the messages of other groups. A waiting message
    without a time of publication is deleted: other programs may write such messages.

    Args:
        name: the queue, or the group of a topic as `topic:group`.
        what: `redrive`, `move` or `delete`; only dead letters are redriven.
        state: of the messages.
        who: the user who starts it.
        criteria: which messages.
        until: an entry id.
        rate: the limit in messages per second; 0: no limit.
        target: the queue to which messages are moved. While that is at its MAX_DEPTH, the job waits.

    Raises:
        UnknownQueue: a queue is not configured.
        NotSupported: messages cannot be moved there.
        InvalidFilter: `until` is not an entry id, the rate is below zero, or the filter is one for dead letters.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    if what == "move":
        check_target(name, target)
    if what not in ACTIONS[state] or (state != "dead" and (criteria.error or criteria.group)):
        raise InvalidFilter("Only dead letters have an error, and are redriven")
    counts, until = _counted(name, state, until)
    if not counts:
        return Begun("nothing")
    if any(state in part.running() for part in _jobs(name)):
        return Begun("busy")
    order = JobOrder(
        messages=state, what=what, criteria=criteria, until=until, target=target, who=who, token=new_token()
    )
    rate = -(-rate // len(counts))
    begun = [count for part, count in counts.items() if _open(part).begin(order, total=count, rate=rate)]
    return Begun("begun", sum(begun), order.token) if begun else Begun("busy")


#: Up to so many messages that match a filter are counted, in up to so many seconds.
MAX_COUNTED, SECONDS = 10_000, 0.6


@dataclass(frozen=True, slots=True)
class Matching:
    """The number of messages that a job would change, as far as they were counted."""

    count: int
    #: There are or may be more.
    is_more: bool
    #: begin() gets it. Then the job changes none that came after the count.
    until: str = ""


def count_matching(
    name: str, state: ActionableState = "dead", criteria: Filter = NOTHING, *, until: str = ""
) -> Matching:
    """Count the messages that a job would change, as the job finds them; see begin()."""
    counts, until = _counted(name, state, until)
    total, count, deadline = sum(counts.values()), 0, time.monotonic() + SECONDS
    if not criteria:
        return Matching(total, is_more=False, until=until)
    if state == "dead" and criteria == Filter(group=criteria.group) and criteria.group is not None:
        counted = dead_letters.count_group(name, criteria.group)
        if counted is not None:
            return Matching(min(counted, total), is_more=False, until=until)
    order = JobOrder(messages=state, what="delete", criteria=criteria, until=until, who="")
    for part in counts:
        for found in _open(part).matching(order):
            count += found
            if count > MAX_COUNTED or time.monotonic() > deadline:
                return Matching(min(count, MAX_COUNTED), is_more=True, until=until)
    # A scan of a sorted set that grows may meet a message twice.
    return Matching(min(count, total), is_more=False, until=until)


def _counted(name: str, state: ActionableState, until: str) -> tuple[dict[str, int], str]:
    """Return how many messages each partition that is not empty has in this state, and up to which entry they count."""
    if state == "dead":
        found = dead_letters.count(name, until=until)
        counts, until = {name: found.count}, found.until
        if found.count and (parts := get_config().queue(name).parts):
            counts = {part.name: dead_letters.count(part.name, until=until).count for part in parts}
    else:
        if until and not is_entry(until):
            raise InvalidFilter(f"Not an entry id: {repr_of(until, 80)}")
        view = quick_stats(name)
        after_now = view.now_ms + 1
        counts = {part.name: part.own(state) for part in view.each_part}
        until = f"{min(entry_ms(until.encode()) if until else after_now, after_now)}-0"
    return {part: count for part, count in counts.items() if count}, until


def get_jobs(name: str, *, token: str = "") -> dict[ActionableState, BackgroundJob]:
    """Return the running job of each state, or its last one; for a queue with partitions, the sums over their jobs.

    The last ones are kept for a week. With the `token` of what was begun, return only that job.

    Args:
        name: the queue.
        token: that of what start_job() has returned.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    parts = [part.read() for part in _jobs(name)]
    found = {
        state: [part[state] for part in parts if state in part and (not token or part[state].order.token == token)]
        for state in get_args(ActionableState)
    }
    return {state: together(jobs) for state, jobs in found.items() if jobs}


def get_job(name: str, state: ActionableState = "dead", *, token: str = "") -> BackgroundJob | None:
    """Return the running job of a place, or its last one, or None; see get_jobs()."""
    return get_jobs(name, token=token).get(state)


def together(found: Sequence[BackgroundJob]) -> BackgroundJob:
    """Return the latest job of some partitions, with the sums over those that were started with it."""
    latest = max(found, key=lambda job: (job.state == "running", job.since_ms))
    found = [job for job in found if job.order == latest.order]
    states = {job.state for job in found}
    counts = ("rate", "total", "looked", "done", "missing", "refused")
    return replace(
        found[0],
        state="running" if "running" in states else "cancelled" if "cancelled" in states else "finished",
        since_ms=min(job.since_ms for job in found),
        changed_ms=max(job.changed_ms for job in found),
        worker=next((job.worker for job in found if job.worker), ""),
        **{name: sum(getattr(job, name) for job in found) for name in counts},
    )


def _cancelled(given: Given, is_cancelled: bool) -> Effect:
    found = get_job(given["name"], given["state"]) if is_cancelled else None
    if found is None:
        return Effect(is_cancelled)
    return Effect(1, f"after {found.done} done", job=found.order.token)


@recorded("cancel job", about="state", effect=_cancelled)
def cancel(name: str, state: ActionableState = "dead") -> bool:
    """Cancel the running job; messages that it has redriven or deleted stay so. False: no job is running.

    Args:
        name: the queue.
        state: of the messages that the job is on.

    Raises:
        UnknownQueue: the queue is not configured.
        StoreError: cannot reach Redis.
        ConfigurationError, NoServer: a setting is wrong, or no server can be used.
    """
    ended = [part.cancel(state) for part in _jobs(name)]
    return any(ended)


def pace_of(job: BackgroundJob) -> tuple[float, int] | None:
    """Return the messages that a running job scans per second, and the milliseconds left at this pace.

    None if the job has ended, or has not scanned a message yet.
    """
    ms = job.changed_ms - job.since_ms
    if job.state != "running" or not job.looked or ms <= 0:
        return None
    per_second = job.looked * 1000 / ms
    return per_second, round(max(0, job.total - job.looked) * 1000 / per_second)


def _jobs(name: str) -> list[BackgroundJobs]:
    """Return the jobs of a queue, or of each of its partitions."""
    return [_open(part.name) for part in get_config().queue(name).each_part]


def _open(name: str) -> BackgroundJobs:
    config = get_config().queue(name)
    return BackgroundJobs(config, open_transport("inspect", config.connection))


# Move selected messages, in any state in which nobody holds them, to another queue.


#: Messages of a step.
AT_ONCE = 100


@recorded("move", effect=effect_of)
def move(name: str, state: ActionableState, target: str, refs: Sequence[str]) -> Outcome:
    """Move messages to another queue.

    A message that is ready or waits keeps its id, name, data, key, headers, attempts, expiry and time of publication,
    and a delayed one its due time and its unique key. A claim of a unique key by `unique_for` ends. Those that the
    target refuses stay where they are: they are no valid messages or too long for it, or another message has the id in
    RSMQ's format, or waits with the unique key. So do steps of workflows, whose runs know their queues, and messages in
    the log of a topic, which all its groups read. Dead letters begin at their first attempt: see dead_letters.move().

    Each message is a dead letter of its queue until it is in the other one, with the reason `moved`. If it is
    interrupted, such a dead letter can be moved again within a week: no message is lost, and none is there twice.

    Args:
        name: the queue, or the group of a topic as `topic:group`.
        state: of the messages.
        target: the queue that gets them, or the group of a topic. It may have another format and be on another server.
        refs: the references in the views of the messages.

    Raises:
        UnknownQueue: a queue is not configured.
        NotSupported: messages cannot be moved there.
        StoreError: cannot reach Redis.
    """
    if state == "dead":
        return dead_letters.move(name, target, refs)
    source, into, outcome = one_queue(name), check_target(name, target), Outcome()
    transport = open_transport("inspect", source.connection)
    mover = Mover(source, transport, into)
    movable = [ref for ref in dict.fromkeys(refs) if not is_in_log(state, ref)]
    outcome.refused = len({*refs}) - len(movable)
    members = open_reader(name).members(state, movable)
    outcome.missing = len(movable) - sum(map(len, members.values()))
    sources: Mapping[str, MessageSource] = sources_by_name(source, transport, state)
    for named, found in members.items():
        left = iter(found)
        while (chosen := [*islice(left, AT_ONCE)]) and outcome.error is None:
            _move_found(mover, state, sources[named], chosen, into, outcome)
    outcome.without_handler = without_handler(target, mover.names)
    return outcome


@recorded("move", about="message_ids", effect=effect_of)
def move_messages(name: str, target: str, message_ids: Sequence[str]) -> Outcome:
    """Move messages in any state that nobody holds to another queue, by their ids; see move().

    Ready messages have no index: each is scanned for, if it is in no other source.

    Raises:
        UnknownQueue: a queue is not configured.
        NotSupported: messages cannot be moved there.
        StoreError: cannot reach Redis.
    """
    check_target(name, target)
    found: dict[tuple[str, ActionableState], list[str]] = {}
    outcome = Outcome()
    for message_id in dict.fromkeys(message_ids):
        parts = get_config().queue(name).partitions_for_id(message_id)
        view = next(((part.name, view) for part in parts if (view := find_message(part.name, message_id))), None)
        states = [state for state in get_args(ActionableState) if view is not None and view[1].state == state]
        outcome.missing += not states
        for state in states:
            assert view is not None
            found.setdefault((view[0], state), []).append(view[1].ref)
    for (part, state), refs in found.items():
        add_part(outcome, move(part, state, target, refs))
        if outcome.error is not None:
            break
    return outcome


def _move_found(
    mover: Mover,
    state: ActionableState,
    source: MessageSource,
    members: list[bytes],
    into: QueueConfig,
    outcome: Outcome,
) -> None:
    """Move messages of a source until all are moved, or an error ends it."""
    while members and outcome.error is None:
        try:
            held = mover.hold(source, members, step=NO_STEP._replace(state=state))
        except StoreError as error:
            outcome.error = error
            return
        members = members[len(held.words) :]
        outcome.missing += sum(word in ("MISSING", "ELSEWHERE") for word in held.words)
        outcome.refused += sum(word in REFUSED for word in held.words)
        move_letters(mover, held.entries, into, outcome)
        if held.is_full and outcome.error is None:
            outcome.error = is_at_depth(into)
