"""The runs of workflows that are played: their shapes, what each step must get, and how each run must end. Pure."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from zlib import crc32

#: Values stay below this.
MODULUS = 1_000_003
#: How a run must end: it succeeds, whatever is done to it; a failing step keeps failing; it is cancelled and stays so;
#: or it is cancelled, and continues later.
FATES = ("succeed", "fail", "cancel", "resume")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """A step of a planned run."""

    #: Unique within the run.
    label: str
    #: Labels of the steps whose values it gets, in this order.
    inputs: Sequence[str] = ()
    #: It gets these as one list.
    gets_list: bool = False
    #: Labels of steps that it waits for without their values.
    after: Sequence[str] = ()
    #: The step that adds it while that runs; "" for none.
    added_by: str = ""
    #: It raises until the run is mended.
    fails: bool = False
    #: So many first attempts raise, and are retried.
    flaky: int = 0
    #: Its messages are in the second queue.
    is_beside: bool = False
    ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A planned run."""

    key: str
    shape: str
    policy: str
    fate: str
    #: Failed steps are redriven one by one; otherwise by `run.retry()`.
    redrives: bool
    steps: Sequence[PlannedStep]

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return asdict(self)

    def values(self) -> dict[str, int]:
        """Return what each step must return."""
        known: dict[str, int] = {}
        for step in self.steps:
            known[step.label] = value_of(step.label, [known[label] for label in step.inputs])
        return known

    def waits(self) -> dict[str, set[str]]:
        """Return the steps for which each step waits."""
        return {step.label: {*step.inputs, *step.after, *filter(None, [step.added_by])} for step in self.steps}

    def doomed(self) -> set[str]:
        """Return the steps that fail as long as nobody mends the run, and those that wait for them."""
        found: set[str] = set()
        waits = self.waits()
        for step in self.steps:
            if step.fails or waits[step.label] & found:
                found.add(step.label)
        return found


def plan_of(told: Mapping[str, Any]) -> Plan:
    """Return a plan from its dictionary."""
    return Plan(**{**told, "steps": [PlannedStep(**step) for step in told["steps"]]})


def value_of(label: str, inputs: Sequence[int]) -> int:
    """Return what a step returns: it depends on each value that it gets, and on their order."""
    return (crc32(label.encode()) + sum(place * value for place, value in enumerate(inputs, 2))) % MODULUS


Steps = list[PlannedStep]


def chain(rng: random.Random) -> Steps:
    """One step after another."""
    labels = [f"c{number}" for number in range(rng.randint(2, 5))]
    return [PlannedStep(label=label, inputs=labels[at - 1 : at] if at else ()) for at, label in enumerate(labels)]


def join(rng: random.Random) -> Steps:
    """A step, some at the same time, and one that gets all their values."""
    middle = [f"p{number}" for number in range(rng.randint(2, 5))]
    return [
        PlannedStep(label="first"),
        *(PlannedStep(label=label, inputs=["first"]) for label in middle),
        PlannedStep(label="joined", inputs=middle, gets_list=True),
    ]


def fan(rng: random.Random) -> Steps:
    """Many steps at the same time, one that merges their values, and one that only waits for that."""
    parts = [f"m{number}" for number in range(rng.randint(4, 14))]
    return [
        *(PlannedStep(label=label) for label in parts),
        PlannedStep(label="merged", inputs=parts, gets_list=True),
        PlannedStep(label="last", after=["merged"]),
    ]


def growing(rng: random.Random) -> Steps:
    """A step that adds steps to its run while it runs; one that was there before waits for it."""
    parts = [f"g{number}" for number in range(rng.randint(2, 6))]
    return [
        PlannedStep(label="split"),
        PlannedStep(label="next", after=["split"]),
        *(PlannedStep(label=label, added_by="split") for label in parts),
        PlannedStep(label="grown", inputs=parts, gets_list=True, added_by="split"),
    ]


def nested(rng: random.Random) -> Steps:
    """Chains side by side between two steps, and a diamond in each."""
    steps = [PlannedStep(label="top")]
    ends = []
    for side in range(rng.randint(2, 3)):
        head, left, right, tail = (f"n{side}{part}" for part in "hlrt")
        steps += [
            PlannedStep(label=head, inputs=["top"]),
            PlannedStep(label=left, inputs=[head]),
            PlannedStep(label=right, inputs=[head], after=[left]),
            PlannedStep(label=tail, inputs=[left, right]),
        ]
        ends.append(tail)
    return [*steps, PlannedStep(label="bottom", inputs=ends, gets_list=True)]


SHAPES: Mapping[str, Callable[[random.Random], Steps]] = {
    shape.__name__: shape for shape in (chain, join, fan, growing, nested)
}


def plans(rng: random.Random, count: int) -> Iterator[Plan]:
    """Yield runs of all shapes and fates."""
    shapes = sorted(SHAPES)
    for number in range(count):
        shape = shapes[number % len(shapes)]
        fate = rng.choices(FATES, weights=(78, 8, 7, 7))[0]
        fails = fate == "fail" or (fate == "succeed" and rng.random() < 0.2)
        yield Plan(
            key=f"run{number}",
            shape=shape,
            policy=rng.choice(("stop", "continue")),
            fate=fate,
            redrives=rng.random() < 0.5,
            steps=_spoiled(rng, SHAPES[shape](rng), fails=fails),
        )


def _spoiled(rng: random.Random, steps: Steps, *, fails: bool) -> Steps:
    """Let some steps work for a while, some be in the second queue, some be flaky, and one or two fail."""
    failing = set(rng.sample(range(len(steps)), rng.randint(1, min(2, len(steps))))) if fails else set()
    return [
        PlannedStep(
            label=step.label,
            inputs=step.inputs,
            gets_list=step.gets_list,
            after=step.after,
            added_by=step.added_by,
            fails=at in failing,
            flaky=int(at not in failing and rng.random() < 0.05),
            is_beside=rng.random() < 0.3,
            ms=round(rng.expovariate(1 / 15), 1),
        )
        for at, step in enumerate(steps)
    ]
