"""Start, watch and cancel background jobs: on dead letters, and on ready or waiting messages.

`mq_django.consumers.supervisor.redriver` runs them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mq_django.conf import get_config
from mq_django.core.filters import NOTHING, Filter
from mq_django.core.ids import token as new_token
from mq_django.errors import InvalidFilter
from mq_django.inspector import dead_letters
from mq_django.inspector.moves import check_target
from mq_django.inspector.queues import quick_stats
from mq_django.stores.background_jobs import BackgroundJob, BackgroundJobs, MessageJobs, MessagePlace, What
from mq_django.transport.connections import open_wire

__all__ = [
    "BackgroundJob",
    "Begun",
    "Kind",
    "MessagePlace",
    "What",
    "begin",
    "begin_deleting",
    "cancel",
    "look",
    "pace_of",
]

#: The messages that a job is on. A queue can have a running job of each kind.
Kind = Literal["dead", "messages"]


@dataclass(frozen=True, slots=True)
class Begun:
    """The result of starting a job."""

    word: Literal["begun", "nothing", "busy"]
    #: Messages that the job will check.
    total: int = 0
    #: What look() finds it by.
    token: str = field(default="", compare=False)


def begin(
    name: str, what: What, *, who: str, criteria: Filter = NOTHING, until: str = "", rate: int = 0, target: str = ""
) -> Begun:
    """Start a job that redrives, moves or deletes the dead letters that match, up to the entry `until`, or all now.

    Messages buried later are not included, so one that fails again is redriven only once. `rate` is the limit in
    messages per second; 0: no limit. `target` is the queue to which they are moved. While that is at its MAX_DEPTH, the
    job waits.

    Raises:
        UnknownQueue: a queue is not configured.
        NotSupported: dead letters cannot be moved there.
        InvalidFilter: `until` is not an entry id, or the rate is below zero.
        StoreError: cannot reach Redis.
    """
    if what == "move":
        check_target(name, target)
    found = dead_letters.count(name, until=until)
    counts = {name: found.count}
    if (parts := get_config().queue(name).parts) and found.count:
        counts = {part.name: dead_letters.count(part.name, until=found.until).count for part in parts}
    which: dict[str, Any] = {"criteria": criteria, "until": found.until, "target": target if what == "move" else ""}
    return _begun(name, "dead", counts, rate, what=what, who=who, **which)


def begin_deleting(
    name: str, place: MessagePlace, *, who: str, criteria: Filter = NOTHING, until_ms: int | None = None, rate: int = 0
) -> Begun:
    """Start a job that deletes the ready or waiting messages of a place that match.

    Messages that were published at or after `until_ms`, or after now, stay, by the clocks of their publishers; and so
    do pending messages and, in a topic's log, those of other groups. A waiting message without a time of publication is
    deleted: other programs may write such messages.

    Raises:
        UnknownQueue: the queue is not configured.
        InvalidFilter: the filter is one for dead letters, or the rate is below zero.
        StoreError: cannot reach Redis.
    """
    if criteria.error or criteria.group:
        raise InvalidFilter("Only dead letters have an error")
    view = quick_stats(name)
    after_now = view.now_ms + 1
    counts = {part.name: part.own(place) for part in view.each_part}
    until = f"{after_now if until_ms is None else min(until_ms, after_now)}-0"
    return _begun(name, "messages", counts, rate, what="delete", who=who, criteria=criteria, until=until, place=place)


def _begun(queue: str, kind: Kind, counts: Mapping[str, int], rate: int, **which: Any) -> Begun:
    """Start a job of a queue, or one of each partition that has messages, which share the rate.

    A queue has one job of a kind: none is started while any of its partitions has one.
    """
    counts = {name: count for name, count in counts.items() if count}
    if not counts:
        return Begun("nothing")
    if any(job.state == "running" for job in _found(queue, kind)):
        return Begun("busy")
    which |= {"rate": -(-rate // len(counts)), "token": new_token()}
    begun = [count for name, count in counts.items() if _job(name, kind).begin(total=count, **which)]
    return Begun("begun", sum(begun), which["token"]) if begun else Begun("busy")


def look(name: str, kind: Kind = "dead", *, token: str = "") -> BackgroundJob | None:
    """Return the running job, or the last one of the past week, or None; of partitions the sums over their jobs.

    With the `token` of what was begun, return that job, or None if another one has been begun since.
    """
    found = [job for job in _found(name, kind) if not token or job.token == token]
    if len(found) < 2:
        return found[0] if found else None
    latest = max(found, key=lambda job: (job.state == "running", job.since_ms))
    return _summed([job for job in found if _which(job) == _which(latest)])


def _which(job: BackgroundJob) -> tuple[Any, ...]:
    """Return what the jobs of the partitions have in common that were started together."""
    return job.token, job.what, job.who, job.criteria, job.until, job.place, job.target


def _summed(found: Sequence[BackgroundJob]) -> BackgroundJob:
    states = {job.state for job in found}
    return replace(
        found[0],
        state="running" if "running" in states else "cancelled" if "cancelled" in states else "finished",
        rate=sum(job.rate for job in found),
        total=sum(job.total for job in found),
        looked=sum(job.looked for job in found),
        done=sum(job.done for job in found),
        missing=sum(job.missing for job in found),
        refused=sum(job.refused for job in found),
        since_ms=min(job.since_ms for job in found),
        changed_ms=max(job.changed_ms for job in found),
        worker=next((job.worker for job in found if job.worker), ""),
    )


def cancel(name: str, kind: Kind = "dead") -> bool:
    """Cancel the running job; messages that it has redriven or deleted stay so. False: no job is running."""
    ended = [part.cancel() for part in _jobs(name, kind)]
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


def _found(name: str, kind: Kind) -> list[BackgroundJob]:
    return [job for part in _jobs(name, kind) if (job := part.look()) is not None]


def _jobs(name: str, kind: Kind = "dead") -> list[BackgroundJobs]:
    """Return the job of a queue, or the jobs of its partitions."""
    return [_job(part.name, kind) for part in get_config().queue(name).each_part]


def _job(name: str, kind: Kind) -> BackgroundJobs:
    found, config = BackgroundJobs if kind == "dead" else MessageJobs, get_config().queue(name)
    return found(config, open_wire("inspect", config.connection))
