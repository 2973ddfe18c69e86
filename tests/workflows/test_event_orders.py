"""What is heard of a run, in every order in which it can arrive: the same end, and callbacks once an end."""

from collections import Counter
from itertools import combinations, permutations
from typing import NamedTuple

import pytest

from mq_django.core.flow_graph import StepRecord
from mq_django.core.keys import WorkflowKeys
from mq_django.stores.workflow_home import Event, WorkflowHome
from mq_django.transport.sessions import Pooled

ENDED = {"succeeded", "failed", "cancelled", "expired"}
CALLBACKS = {
    "succeeded": {"success", "finish"},
    "failed": {"failure", "finish"},
    "expired": {"failure", "finish"},
    "cancelled": {"finish"},
}
#: What an operator does to let a run continue.
REOPENS = {"continue", "retried"}
#: Orders whose commands are sent together.
CHUNK = 200


class Case(NamedTuple):
    """What happens to the message of step 1, and what operators do. Step 2 waits for step 1, and step 3 for nothing."""

    #: The notes about the message, in the order in which they are written: a later one may replace an earlier one.
    notes: list[str]
    #: What the run hears of others meanwhile, in this order.
    others: list[Event]
    #: The states in which step 1 may be at the end.
    ends: str
    #: Whether step 3 is done before.
    is_alone: bool = True


CONTINUE, RETRIED = Event("continue", round=1), Event("retried", 1, 5, round=1)
LOST = Event("lost", 1, 0, round=1)
CASES = {
    "handled": Case(["done"], [], "D"),
    "failed": Case(["failed"], [], "F"),
    "redriven": Case(["failed", "redriven"], [], "S"),
    "failed again": Case(["failed", "redriven", "failed"], [], "F"),
    "handled at last": Case(["failed", "redriven", "failed", "redriven", "done"], [], "D"),
    "redriven, and dropped": Case(["failed", "redriven", "failed", "redriven", "dropped"], [], "SH"),
    "continued twice": Case(["failed"], [CONTINUE, CONTINUE], "F"),
    "retried": Case(["failed", "redriven", "failed"], [RETRIED, CONTINUE], "F"),
    "retried twice": Case(["failed", "redriven", "failed"], [RETRIED, RETRIED, CONTINUE, CONTINUE], "F"),
    "retried without a dead letter": Case(["failed"], [RETRIED, Event("lost", 1, 5, round=1), CONTINUE], "SF"),
    "lost and found": Case(["failed", "redriven", "failed"], [LOST, LOST], "SF"),
    "lost and handled": Case(["failed", "redriven", "done"], [LOST], "D"),
    "skipped": Case(["failed", "redriven", "failed"], [Event("passed", 1, round=1)], "PF"),
    "skipped and handled": Case(["failed", "redriven", "done"], [Event("passed", 1, round=1)], "PD"),
    "cancelled": Case(["failed", "redriven", "failed"], [Event("cancel")], "F"),
    "cancelled and handled": Case(["failed", "redriven", "done"], [Event("cancel")], "D"),
    "cancelled and continued": Case(["dropped"], [Event("cancel"), CONTINUE], "SH"),
    "expired": Case(["failed", "redriven", "done"], [Event("expire")], "D"),
    "beside another": Case(["failed", "redriven", "failed"], [Event("done", 3, 1, round=1)], "F", is_alone=False),
    "beside one that fails": Case(
        ["failed", "redriven", "done"], [Event("failed", 3, 1, round=1)], "D", is_alone=False
    ),
}


def orders(case):
    """Yield each order in which a run can hear of all this, and the notes that it hears again after that.

    The latest note is always delivered; any may be late.
    """
    notes = [Event(name, 1, seq, round=1) for seq, name in enumerate(case.notes, 5)]
    seen = set()
    for count in range(len(notes)):
        for earlier in combinations(notes[:-1], count):
            for order in permutations([*earlier, notes[-1], *case.others]):
                acts = [event for event in order if event in case.others]
                if order not in seen and acts == case.others and is_possible(order, notes[0], acts):
                    seen.add(order)
                    # Whoever delivers a note a second time changes nothing.
                    yield order, earlier


def is_possible(order, first, acts):
    """Return whether operators act on a failure only after the run has heard of it."""
    if not acts or acts[0].name not in {"retried", "continue", "passed"}:
        return True
    return first in order and order.index(first) < order.index(acts[0])


class Orders:
    """Runs that hear of the same things in different orders."""

    def __init__(self, redis_client, namespace, policy):
        self.client, self.policy = redis_client, policy
        self.home = WorkflowHome(WorkflowKeys(namespace, "0"), Pooled(redis_client))
        self._count = 0
        # A script that the server does not have runs after the commands behind it, which read what it has written.
        self.home._transport.pipeline(self._steps("0nobody", Event("begin")))

    def begin(self):
        """Begin a run, and return its id."""
        self._count += 1
        run_id = f"0run{self._count:06d}"
        fields = {"policy": self.policy, "lasts": 60_000, "unique": run_id}
        fields |= {f"on_{kind}": b"x" for kind in ("success", "failure", "finish")}
        self.home.create(run_id, fields, [StepRecord(1, 0, b"a", "2"), StepRecord(2, 1, b"b"), StepRecord(3, 0, b"c")])
        return run_id

    def play(self, case):
        """Apply each order to a run of its own, check it after each event, and yield the runs at their ends."""
        most = 1 + max(case.notes.count("redriven"), any(event.name in REOPENS for event in case.others))
        before = [Event("begin", added="1-3"), *([Event("done", 3, 1, round=1)] if case.is_alone else [])]
        every = list(orders(case))
        for at in range(0, len(every), CHUNK):
            played = [(self.begin(), [*before, *order], again) for order, again in every[at : at + CHUNK]]
            commands = [
                command
                for run_id, events, again in played
                for event in (*events, *again)
                for command in self._steps(run_id, event)
            ]
            commands += [command for run_id, *_ in played for command in self._places(run_id)]
            replies = iter(self.home._transport.pipeline(commands))
            ended = []
            for run_id, events, again in played:
                heard = [Heard(event, *[next(replies) for _ in range(3)]) for event in (*events, *again)]
                ended.append(self.checked(run_id, heard, len(events)))
                assert ended[-1].told["finish"] <= most, ended[-1]
            for run in ended:
                is_alive, has_key, left_ms = next(replies) is not None, next(replies) == 1, next(replies)
                is_running = run.states[-1] == "running"
                assert (is_alive, left_ms == -1) == (is_running, is_running), run
                assert is_running or not has_key, run
            yield from ended

    def _steps(self, run_id, event):
        keys = self.home.keys
        counts = ("done", "failed", "skipped", "flying")
        # Nothing is left for another call: three steps are changed by one.
        return [
            self.home.command(run_id, [event]),
            ("HMGET", keys.run(run_id), *counts),
            ("HGETALL", keys.steps(run_id)),
        ]

    def _places(self, run_id):
        keys = self.home.keys
        return [("ZSCORE", keys.alive, run_id), ("HEXISTS", keys.unique, run_id), ("PTTL", keys.steps(run_id))]

    def checked(self, run_id, heard, first):
        """Check a run after each event, and return it. The last ones it hears again: the `first` are all different."""
        told, states, round_ended = Counter(), [], 0
        for number, one in enumerate(heard):
            said = f"{run_id} after {[each.event[:3] for each in heard[: number + 1]]}"
            advanced, records = self.home.advanced(one.reply), one.records()
            assert not advanced.is_left, said
            counts = Counter(record[0] for record in records.values())
            assert [int(count) for count in one.counts] == [
                *(counts["D"] + counts["P"], counts["F"], counts["K"], counts["S"])
            ], said
            assert (advanced.state == "running") <= (counts["S"] > 0), f"{said}: nothing would end it"
            calls = {start.step: start.round for start in advanced.starts if not start.step.isdigit()}
            if calls:
                assert {*calls} == CALLBACKS[advanced.state], said
            is_end = bool(calls)
            assert is_end or advanced.state not in ENDED or states[-1] == advanced.state, said
            for kind, of_round in calls.items():
                assert of_round > round_ended, said
                told[kind] += 1
            round_ended = max([round_ended, *calls.values()])
            states.append(advanced.state)
            ids = [(start.step, start.round) for start in advanced.starts]
            assert len(ids) == len({*ids}), said
        ends = {each.records()[1][0] for each in (heard[first - 1], heard[-1])}
        return Played(run_id, [each.event for each in heard], states, told, ends)


class Heard(NamedTuple):
    """What a run has heard, and how it was then."""

    event: Event
    reply: object
    counts: list
    steps: object

    def records(self):
        """Return the records of the steps, by number."""
        pairs = (
            self.steps.items() if isinstance(self.steps, dict) else zip(self.steps[::2], self.steps[1::2], strict=True)
        )
        return {int(number): record.decode() for number, record in pairs}


class Played(NamedTuple):
    """A run that has heard everything."""

    run_id: str
    events: list
    states: list
    told: Counter
    #: The states of step 1 when it has heard all once, and when it has heard it again.
    ends: set


@pytest.mark.parametrize("policy", ["stop", "continue"])
def test_every_order_ends_in_the_same_state(redis_client, namespace, policy, subtests):
    runs = Orders(redis_client, namespace, policy)
    for name, case in CASES.items():
        with subtests.test(name):
            for played in runs.play(case):
                assert played.ends <= {*case.ends}, played
