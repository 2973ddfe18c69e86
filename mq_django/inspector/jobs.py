"""Start, watch and cancel background jobs on dead letters.

`mq_django.consumers.supervisor.redriver` runs them.
"""

from dataclasses import dataclass
from typing import Literal

from mq_django.conf import get_config
from mq_django.core.filters import NOTHING, Filter
from mq_django.inspector import dead_letters
from mq_django.stores.background_jobs import BackgroundJob, BackgroundJobs, What
from mq_django.transport.connections import open_wire

__all__ = ["BackgroundJob", "Begun", "What", "begin", "cancel", "look"]


@dataclass(frozen=True, slots=True)
class Begun:
    """The result of starting a job."""

    word: Literal["begun", "nothing", "busy"]
    #: Dead letters that the job will check.
    total: int = 0


def begin(name: str, what: What, *, who: str, criteria: Filter = NOTHING, until: str = "", rate: int = 0) -> Begun:
    """Start a job that redrives or deletes the dead letters that match, up to the entry `until` or to the newest now.

    Messages buried later are not included, so one that fails again is redriven only once. `rate` is the limit in
    messages per second; 0: no limit.

    Raises:
        UnknownQueue: the queue is not configured.
        InvalidFilter: `until` is not an entry id, or the rate is below zero.
        StoreError: cannot reach Redis.
    """
    found = dead_letters.count(name, until=until)
    if not found.count:
        return Begun("nothing")
    done = _jobs(name).begin(what, who=who, criteria=criteria, until=found.until, total=found.count, rate=rate)
    return Begun("begun" if done else "busy", found.count)


def look(name: str) -> BackgroundJob | None:
    """Return the running job, or the last one of the past week, or None."""
    return _jobs(name).look()


def cancel(name: str) -> bool:
    """Cancel the running job; dead letters that it has redriven or deleted stay so. False: no job is running."""
    return _jobs(name).cancel()


def _jobs(name: str) -> BackgroundJobs:
    config = get_config().queue(name)
    return BackgroundJobs(config, open_wire("inspect", config.connection))
