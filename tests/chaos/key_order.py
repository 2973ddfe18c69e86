"""Decide from a history whether the messages of each key ran in their order, one at a time.

The order of a key is the order in which its messages were published. Only messages whose publish returned have a place
in it. What ran is what the handlers themselves have noted: when each began, and when it returned or raised.

A process that was stopped for longer than the visibility timeout was taken for dead, and goes on later all the same.
What it was running then runs beside other messages of the key, and what it had taken may begin late. That is counted,
and its outcome must have been refused.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.chaos.deliveries import RESUMES, Fault, Life, Told
from tests.chaos.executions import HandlerRun

#: The fault after which others take a process for dead that goes on later.
TAKEN_FOR_DEAD = "stop-tree"


@dataclass(kw_only=True)
class KeyOrder:
    """What is known about the order of all keys."""

    keys: int = 0
    #: Executions by processes that were taken for dead, beside another one of the key.
    overlaps: int = 0
    #: Pairs of messages of a key that ran at the same time with no such reason.
    together: list[tuple[str, str]] = field(default_factory=list)
    #: Pairs of a message that ran too late, and one that came after it and ran before.
    inversions: list[tuple[str, str]] = field(default_factory=list)
    #: Messages whose outcome counted although it came from a process that had been taken for dead.
    believed: list[str] = field(default_factory=list)


def order_of_keys(told: Told) -> KeyOrder:
    """Return what a history says about the order of its keys."""
    by_key: dict[str, list[HandlerRun]] = {}
    for execution in told.executions.all:
        life = told.lives.get(execution.message)
        if life is not None and life.key and life.published == "ok":
            by_key.setdefault(life.key, []).append(execution)
    stops = [fault for fault in told.faults if fault.kind == TAKEN_FOR_DEAD]
    found = KeyOrder(keys=len(by_key))
    for runs in by_key.values():
        _judge(sorted(runs, key=lambda one: one.began), told, stops, found)
    return found


def _judge(runs: Sequence[HandlerRun], told: Told, stops: Sequence[Fault], found: KeyOrder) -> None:
    """Look at the executions of one key."""
    stopped = [any(_was_stopped(one, stop, told) for stop in stops) for one in runs]
    beside = set[int]()
    for at, other in _beside(runs):
        before, after = runs[at], runs[other]
        if not (stopped[at] or stopped[other]):
            found.together.append((before.message, after.message))
            continue
        beside.update(place for place in (at, other) if stopped[place])
        if stopped[at] != stopped[other]:
            one, fresh = (before, after) if stopped[at] else (after, before)
            if _is_believed(one, fresh, told.lives):
                found.believed.append(one.message)
    found.overlaps += len(beside)
    last = None
    for one, is_stopped in zip(runs, stopped, strict=True):
        # What a process begins that was stopped right before is late by the time of the stop.
        if is_stopped and _is_late(one, stops, told):
            continue
        if last is not None and told.lives[one.message].number < told.lives[last.message].number:
            found.inversions.append((one.message, last.message))
        else:
            last = one


def _beside(runs: Sequence[HandlerRun]) -> Iterator[tuple[int, int]]:
    """Yield the places of each two executions, in the order of their beginnings, that ran at the same time."""
    running: list[int] = []
    for at, one in enumerate(runs):
        running = [other for other in running if runs[other].ended > one.began]
        yield from ((other, at) for other in running)
        running.append(at)


def _was_stopped(one: HandlerRun, stop: Fault, told: Told) -> bool:
    """Tell whether a process was stopped while it ran this, or right before it began."""
    if one.pid not in stop.pids or one.ended < stop.began:
        return False
    return one.began <= stop.struck or _begins_late(one, stop, told)


def _is_late(one: HandlerRun, stops: Sequence[Fault], told: Told) -> bool:
    return any(one.pid in stop.pids and one.began > stop.began and _begins_late(one, stop, told) for stop in stops)


def _begins_late(one: HandlerRun, stop: Fault, told: Told) -> bool:
    return one.began <= stop.healed + RESUMES and told.executions.is_next(one, stop.began)


def _is_believed(one: HandlerRun, other: HandlerRun, lives: Mapping[str, Life]) -> bool:
    """Tell whether the outcome of a process counted that sent it when both executions had begun."""
    since = max(one.began, other.began)
    return any(pid == one.pid and began > since for pid, began in lives[one.message].sent)
