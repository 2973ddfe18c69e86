"""Read the runs of workflows of one home."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mq_django.conf import get_config
from mq_django.core.numbers import score_ms
from mq_django.core.workflow_keys import HOMES, WorkflowKeys
from mq_django.stores.workflow_home import StepState, step_state
from mq_django.transport.connections import open_wire
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Wire, reply_or_raise

#: The fields of a run.
FIELDS = (
    *("state", "name", "policy", "round", "total", "done", "failed", "skipped", "flying", "next"),
    *("started", "finished", "lasts", "unique"),
)
#: The field of a run with its latest failure: the step's number and the reason.
FAILURE = "failure"
#: Records of steps that one command reads.
RECORDS = 1000
#: The most bytes of what a step publishes that are read. Of a larger one the task is not shown.
MAX_BODY = 64 * 1024


class ListedRun(NamedTuple):
    """A run in the list of all runs of a home."""

    id: str
    #: When it was started, in ms since 1970.
    ms: int


class RunPlaces(NamedTuple):
    """Which keys and lists have a run."""

    is_alive: bool
    is_listed: bool
    has_steps: bool
    #: Changes are still to be made.
    has_work: bool


class RunReader:
    """Reads the runs of one home."""

    def __init__(self, keys: WorkflowKeys, wire: Wire) -> None:
        self.keys = keys
        self._wire = wire

    def listed(self, before: ListedRun | None, *, limit: int) -> list[ListedRun]:
        """Return up to `limit` runs of the list, the latest first: those after another one in this order."""
        found: list[ListedRun] = []
        last, at = "+inf" if before is None else str(before.ms), 0
        while len(found) < limit:
            command = ("ZREVRANGEBYSCORE", self.keys.index, last, "-inf", "WITHSCORES", "LIMIT", at, limit)
            page = _with_scores(reply_or_raise(self._wire.trip([command])[0]))
            if not page:
                break
            at += len(page)
            # Redis orders runs with the same time by their ids.
            found += [run for run in page if before is None or (run.ms, run.id) < (before.ms, before.id)]
        return found[:limit]

    def count_alive(self) -> int:
        """Return how many runs have not ended."""
        (count,) = self._wire.trip([("ZCARD", self.keys.alive)])
        return int(reply_or_raise(count))

    def alive(self, *, skipped: int, limit: int) -> list[str]:
        """Return up to `limit` runs that have not ended, as it is listed, the first `skipped` left out."""
        (reply,) = self._wire.trip([("ZRANGE", self.keys.alive, skipped, skipped + limit - 1)])
        return [run_id.decode(errors="replace") for run_id in reply_or_raise(reply)]

    def fields(self, run_ids: Sequence[str]) -> list[dict[str, bytes]]:
        """Return the fields of runs; none for one that does not exist."""
        commands: list[Command] = [("HMGET", self.keys.run(run_id), *FIELDS) for run_id in run_ids]
        replies = self._wire.trip(commands) if commands else []
        # What is no hash is not a run.
        rows = [[None] * len(FIELDS) if isinstance(reply, Exception) else reply for reply in replies]
        return [
            {name: value for name, value in zip(FIELDS, row, strict=True) if isinstance(value, bytes)} for row in rows
        ]

    def failure(self, run_id: str) -> bytes:
        """Return the step that failed last, and the reason; empty if none has."""
        (reply,) = self._wire.trip([("HGET", self.keys.run(run_id), FAILURE)])
        return reply_or_raise(reply) or b""

    def records(self, run_id: str, numbers: Sequence[int]) -> list[StepState]:
        """Return the states of steps with these numbers, as far as they exist, joins as well."""
        parts = [numbers[at : at + RECORDS] for at in range(0, len(numbers), RECORDS)]
        replies = self._wire.trip([("HMGET", self.keys.steps(run_id), *part) for part in parts]) if parts else []
        pairs = [
            (number, record)
            for part, reply in zip(parts, replies, strict=True)
            for number, record in zip(part, reply_or_raise(reply), strict=True)
        ]
        states = [step_state(number, record) for number, record in pairs if record is not None]
        return [state for state in states if state is not None]

    def bodies(self, run_id: str, numbers: Sequence[int], *, most: int = MAX_BODY) -> Mapping[int, bytes]:
        """Return what steps publish, without those that have more bytes than `most`."""
        if not numbers:
            return {}
        key = self.keys.bodies(run_id)
        sizes = self._wire.trip([("HSTRLEN", key, number) for number in numbers])
        small = [number for number, size in zip(numbers, sizes, strict=True) if 0 < reply_or_raise(size) <= most]
        if not small:
            return {}
        (found,) = self._wire.trip([("HMGET", key, *small)])
        return {number: body for number, body in zip(small, reply_or_raise(found), strict=True) if body is not None}

    def followers(self, run_id: str, numbers: Sequence[int]) -> Mapping[int, str]:
        """Return ranges of the steps that wait for each of these steps."""
        if not numbers:
            return {}
        (found,) = self._wire.trip([("HMGET", self.keys.after(run_id), *numbers)])
        texts = zip(numbers, reply_or_raise(found), strict=True)
        return {number: text.decode(errors="replace") for number, text in texts if text is not None}

    def added(self, run_id: str, numbers: Sequence[int]) -> Mapping[int, str]:
        """Return ranges of the steps that each of these steps has added."""
        if not numbers:
            return {}
        (found,) = self._wire.trip([("HMGET", self.keys.run(run_id), *[f"added:{number}" for number in numbers])])
        texts = zip(numbers, reply_or_raise(found), strict=True)
        return {number: text.decode(errors="replace") for number, text in texts if text is not None}

    def places(self, run_ids: Sequence[str]) -> list[RunPlaces]:
        """Return which keys and lists have runs."""
        keys = self.keys
        commands: list[Command] = []
        for run_id in run_ids:
            commands += [("ZSCORE", keys.alive, run_id), ("ZSCORE", keys.index, run_id)]
            commands += [("EXISTS", keys.steps(run_id)), ("EXISTS", keys.work(run_id))]
        replies = [reply_or_raise(reply) for reply in self._wire.trip(commands)] if commands else []
        return [
            RunPlaces(alive is not None, index is not None, bool(steps), bool(work))
            for alive, index, steps, work in zip(*[iter(replies)] * 4, strict=True)
        ]

    def starts(self, *, after: str = "", limit: int) -> list[tuple[str, dict[bytes, bytes]]]:
        """Return up to `limit` entries of what is to be published, the oldest first, that follow `after`."""
        first = f"({after}" if after else "-"
        (found,) = self._wire.trip([("XRANGE", self.keys.starts, first, "+", "COUNT", limit)])
        return [
            (entry.decode(), dict(zip(flat[::2], flat[1::2], strict=True)))
            for entry, flat in reply_or_raise(found) or ()
        ]


def open_run_reader(run_id: str) -> RunReader:
    """Return the reader of the home of a run, on the server of the project."""
    return RunReader(WorkflowKeys(get_config().namespace, run_id[0]), open_wire("inspect", ""))


def open_run_readers() -> list[RunReader]:
    """Return the readers of all homes."""
    return [open_run_reader(digit) for digit in HOMES]


def _with_scores(reply: Sequence[Any]) -> list[ListedRun]:
    """Return the runs in a reply: pairs, or with RESP 2 members and scores in turn."""
    has_pairs = bool(reply) and isinstance(reply[0], list | tuple)
    pairs = reply if has_pairs else list(zip(reply[::2], reply[1::2], strict=True))
    return [ListedRun(member.decode(errors="replace"), score_ms(score) or 0) for member, score in pairs]
