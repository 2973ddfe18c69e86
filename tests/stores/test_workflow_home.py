"""Random workflows, and random events in random order, against a model."""

import random

import pytest

from mq_django.core.flow_graph import StepRecord
from mq_django.core.keys import WorkflowKeys
from mq_django.stores.workflow_home import Event, WorkflowHome
from mq_django.transport.sessions import Pooled


@pytest.fixture
def home(namespace, redis_client):
    return WorkflowHome(WorkflowKeys(namespace, "0"), Pooled(redis_client))


class Play:
    """Handles what starts, as consumers would, in any order."""

    def __init__(self, home, run_id, before, *, policy, chance, seed):
        self.home, self.run_id, self.before = home, run_id, before
        self.random = random.Random(seed)
        self.chance = chance
        self.flying, self.handled, self.dead, self.ids, self.callbacks = [], set(), {}, [], []
        self.seq, self.state = 0, ""
        followers = {number: [] for number in before}
        for number, others in before.items():
            for other in others:
                followers[other].append(number)
        records = [
            StepRecord(number, len(before[number]), b"body", ",".join(map(str, followers[number]))) for number in before
        ]
        fields = {"policy": policy, "lasts": 3600_000, "on_success": b"s", "on_failure": b"f", "on_finish": b"x"}
        home.create(run_id, fields, records)

    def apply(self, *events):
        left = True
        while left:
            advanced = self.home.advance(self.run_id, events)
            self.state, left, events = advanced.state, advanced.is_left, ()
            for start in advanced.starts:
                if start.step.isdigit():
                    assert all(other in self.handled for other in self.before[int(start.step)])
                    self.flying.append((int(start.step), start.round))
                    self.ids.append((start.step, start.round))
                else:
                    self.callbacks.append((start.step, start.round))

    def handle_all(self):
        late = []
        while self.flying or late:
            if (self.flying and self.random.random() < 0.8) or not late:
                step, of_round = self.flying.pop(self.random.randrange(len(self.flying)))
                self.seq += 1
                if self.random.random() < self.chance:
                    self.dead[step] = of_round
                    late.append(Event("failed", step, self.seq, "boom", round=of_round))
                else:
                    self.handled.add(step)
                    late.append(Event("done", step, self.seq, b"1", round=of_round))
            else:
                event = late.pop(self.random.randrange(len(late)))
                self.apply(event)
                if self.random.random() < 0.3:
                    late.append(event)

    def redrive_all(self):
        for step in list(self.dead):
            of_round = self.dead.pop(step)
            self.seq += 1
            event = Event("redriven", step, self.seq, round=of_round)
            self.flying.append((step, of_round))
            self.apply(event)
            if self.random.random() < 0.3:
                self.apply(event)


def random_graph(rand, size):
    return {n: sorted(rand.sample(range(1, n), min(n - 1, rand.randrange(4)))) for n in range(1, size + 1)}


@pytest.mark.parametrize("policy", ["stop", "continue"])
def test_random_workflows_end_as_they_must(home, policy):
    for seed in range(12):
        end_a_random_workflow(home, f"{seed:x}run", policy, seed)


def end_a_random_workflow(home, run_id, policy, seed):
    rand = random.Random(seed)
    before = random_graph(rand, rand.randrange(1, 40))
    play = Play(home, run_id, before, policy=policy, chance=rand.choice([0, 0.1, 0.4]), seed=seed)
    play.apply(Event("begin", added=f"1-{len(before)}"))
    rounds = 0
    while True:
        play.handle_all()
        rounds += 1
        if not play.dead:
            break
        assert play.state == "failed"
        if rounds > 3:
            play.chance = 0
        play.redrive_all()
    assert play.state == "succeeded"
    assert play.handled == set(before)
    assert len(play.callbacks) == len(set(play.callbacks))
    assert [kind for kind, _ in play.callbacks].count("success") == 1
    assert len(play.ids) == len(set(play.ids)) == len(before)


def test_a_thousand_after_a_thousand(home):
    before = {n: [] for n in range(1, 1001)}
    records = [StepRecord(n, 0, b"body", "1001") for n in range(1, 1001)]
    records += [StepRecord(1001, 1000, b"", "1002-2001")]
    records += [StepRecord(n, 1, b"body") for n in range(1002, 2002)]
    home.create("0run", {"policy": "stop", "lasts": 1000}, records)
    starts, left, events = [], True, [Event("begin", added="1-2001")]
    while left:
        advanced = home.advance("0run", events)
        starts += advanced.starts
        left, events = advanced.is_left, ()
    assert [int(start.step) for start in starts] == list(before)
    again = []
    for at in range(0, 1000, 100):
        advanced = home.advance("0run", [Event("done", start.step, 1) for start in starts[at : at + 100]])
        again += advanced.starts
    while advanced.is_left:
        advanced = home.advance("0run")
        again += advanced.starts
    assert [int(start.step) for start in again] == list(range(1002, 2002))
