"""What is done to many dead letters in the background: begun, watched and cancelled here.

`mq_django.consumers.supervisor.redriver` works it off.
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
    """What became of a wish for a job."""

    word: Literal["begun", "nothing", "busy"]
    #: Dead letters that will be looked at.
    total: int = 0


def begin(name: str, what: What, *, who: str, criteria: Filter = NOTHING, until: str = "", rate: int = 0) -> Begun:
    """Begin to redrive or to delete the dead letters that are wanted, up to the entry `until` or to the newest of now.

    What is buried meanwhile is newer, so that a message which fails again is redriven only once. `rate` is how many a
    second at most; 0: as fast as it goes.

    Raises:
        UnknownQueue: it is not configured.
        InvalidFilter: `until` is no entry, or the rate is below zero.
        StoreError: Redis is away.
    """
    found = dead_letters.count(name, until=until)
    if not found.count:
        return Begun("nothing")
    done = _jobs(name).begin(what, who=who, criteria=criteria, until=found.until, total=found.count, rate=rate)
    return Begun("begun" if done else "busy", found.count)


def look(name: str) -> BackgroundJob | None:
    """Return the job that runs, or the last one of the last week, or None."""
    return _jobs(name).look()


def cancel(name: str) -> bool:
    """End the job that runs; what is done is done. False: none runs."""
    return _jobs(name).cancel()


def _jobs(name: str) -> BackgroundJobs:
    return BackgroundJobs(get_config().queue(name), open_wire("inspect"))
