"""The steps of a workflow, and which of them wait for which others."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from mq_django.core.jsontext import whole
from mq_django.core.redaction import redact, redact_text
from mq_django.core.texts import line, truncate

#: Maximum steps of a definition, and maximum results of other steps that a step takes.
MAX_STEPS = 100_000
#: The largest number of a step.
LAST_STEP = 999_999_999
#: A step that waits for more steps than this shares a join with others that wait for the same.
MANY = 8


class StepRecord(NamedTuple):
    """A step as it is written to Redis, before it belongs to a run."""

    number: int
    #: How many steps it waits for.
    waits: int
    #: What is published to start it; empty for a join, which has no message.
    body: bytes
    #: Ranges of the steps that wait for it, such as "3-7,9".
    after: str = ""


class FlowGraph:
    """Steps by number, from 1, in the order in which they were added."""

    def __init__(self) -> None:
        #: By number, without the first: the steps that it waits for.
        self._before: list[set[int]] = []

    def __len__(self) -> int:
        return len(self._before)

    def add(self) -> int:
        """Add a step, and return its number."""
        self._before.append(set())
        return len(self._before)

    def wait(self, step: int, others: Iterable[int]) -> None:
        """Let a step wait for others."""
        self._before[step - 1].update(others)

    def order(self, first: range, then: range) -> None:
        """Let steps that were added together wait for others that were added together before."""
        waited_for = set[int]().union(*(self._before[number - 1] for number in first))
        ends = [number for number in first if number not in waited_for]
        for number in then if ends else ():
            if self._before[number - 1].isdisjoint(then):
                self.wait(number, ends)

    def cycle(self) -> list[int]:
        """Return the steps that wait for each other, or for such steps; none if all can run."""
        left = {number: len(before) for number, before in enumerate(self._before, 1)}
        following = self._following(self._before)
        free = [number for number, count in left.items() if not count]
        while free:
            number = free.pop()
            del left[number]
            for other in following[number]:
                left[other] -= 1
                if not left[other]:
                    free.append(other)
        return sorted(left)

    def records(self, bodies: Sequence[bytes], *, first: int = 1) -> list[StepRecord]:
        """Return the records of all steps, and of joins behind them. The first has the number `first`."""
        before = self._joined()
        following = self._following(before)
        everything = [*bodies, *[b""] * (len(before) - len(bodies))]
        shift = first - 1
        return [
            StepRecord(number + shift, len(others), body, ranges([each + shift for each in following[number]]))
            for number, (others, body) in enumerate(zip(before, everything, strict=True), 1)
        ]

    def _joined(self) -> list[set[int]]:
        """Return what each step waits for, with joins: a thousand steps after a thousand have no million pairs."""
        shared = Counter(frozenset(before) for before in self._before if len(before) > MANY)
        joins: dict[frozenset[int], int] = {}
        for group, count in shared.items():
            if count > 1:
                joins[group] = len(self._before) + len(joins) + 1
        found = [{joins[frozenset(each)]} if frozenset(each) in joins else each for each in self._before]
        return [*found, *map(set, joins)]

    @staticmethod
    def _following(before: Sequence[Iterable[int]]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = defaultdict(list)
        for number, others in enumerate(before, 1):
            for other in others:
                found[other].append(number)
        return found


def ranges(numbers: Sequence[int]) -> str:
    """Return numbers as ranges, such as "3-7,9"."""
    found: list[str] = []
    at, ordered = 0, sorted(numbers)
    while at < len(ordered):
        end = at
        while end + 1 < len(ordered) and ordered[end + 1] == ordered[end] + 1:
            end += 1
        found.append(f"{ordered[at]}-{ordered[end]}" if end > at else f"{ordered[at]}")
        at = end + 1
    return ",".join(found)


def numbers_of(text: str, most: int = MAX_STEPS) -> list[int]:
    """Return the numbers of ranges(). Raises ValueError if the text is no such ranges, or has more than `most`."""
    found: list[int] = []
    for part in text.split(",", most) if text else ():
        first, dash, last = part.partition("-")
        begin, end = whole(first, LAST_STEP), whole(last if dash else first, LAST_STEP)
        if begin is None or end is None or len(found) + end - begin >= most:
            raise ValueError(f"no ranges of at most {most} numbers: {text[:100]!r}")
        found += range(begin, end + 1)
    return found


def values_taken(references: Mapping[str, int | str]) -> dict[str, list[int]]:
    """Return the steps whose values a step takes, by argument. Raises ValueError if there are more than MAX_STEPS."""
    found: dict[str, list[int]] = {}
    left = MAX_STEPS
    for name, which in references.items():
        found[name] = numbers_of(str(which), left)
        left -= len(found[name])
    return found


# What is wrong with a run of a workflow.

#: message: the message of a step is in no place of its queue; dead: that of a started step is a dead letter; start: a
#: step or callback is not published; queue: the queue of a step is not in the settings; unlisted: the run is missing in
#: a list of runs; stopped: it has nothing left to do, and has not ended; steps: its steps do not exist; run: it is
#: listed, and does not exist.
RunProblemKind = Literal["message", "dead", "start", "queue", "stopped"]


class RunProblem(NamedTuple):
    """A problem of a run, with what its repair needs."""

    kind: RunProblemKind
    run: str
    #: The home that lists it: see `WorkflowKeys`.
    home: str = ""
    #: A number, the kind of a callback, or "".
    step: str = ""
    queue: str = ""
    #: The id of the step's message.
    message_id: str = ""
    #: The round in which the step was started, and the number of the latest note about it.
    round: int = 0
    seq: int = 0
    #: The entry of the start.
    entry: str = ""


#: The most characters of an argument as text.
MAX_ARGUMENT = 200


def first_argument(data: object) -> str:
    """Return the first argument in the data of a step as text, with secrets replaced; "" without any.

    Values of other steps are left out: they are not known before these have ended.
    """
    found = redact(data) if isinstance(data, dict) else {}
    args, kwargs, references = (found.get(name) for name in ("args", "kwargs", "references"))
    given: list[tuple[str, Any]] = [
        *((str(at), value) for at, value in enumerate(args if isinstance(args, list) else ())),
        *(kwargs.items() if isinstance(kwargs, dict) else ()),
    ]
    values = [value for name, value in given if not (isinstance(references, dict) and name in references)]
    if not values:
        return ""
    text = values[0] if isinstance(values[0], str) else json.dumps(values[0], ensure_ascii=False)
    return truncate(line(redact_text(text)), MAX_ARGUMENT)
