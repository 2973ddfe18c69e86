"""What one operator does to a run between any two pipelines of another: each says truly what was done, and by whom."""

from collections import Counter
from itertools import count, product

import pytest

from mq_django.core.messages import ACK, Bury, StepEnd
from mq_django.transport.sessions import Pooled
from mq_django.workflows import get_run
from tests.seeding import end_steps, settle, start_run, take

#: What is published of a callback.
CALLBACK = b'{"queue": "default", "name": "told", "data": {"args": [], "kwargs": {}}}'
CALLBACKS = {f"on_{kind}": CALLBACK for kind in ("success", "failure", "finish")}
#: How the run is before, and what was called back by then.
STATES = {"running": (), "failed": ("failure", "finish"), "cancelled": ("finish",), "succeeded": ("success", "finish")}
ACTS = {"cancel": lambda run: run.cancel(), "retry": lambda run: run.retry(), "skip": lambda run: run.skip(1)}


class Interruption:
    """Does something before one of the pipelines of something else."""

    def __init__(self, monkeypatch):
        self.act, self._left = None, 0
        pipeline = Pooled.pipeline

        def look_and_trip(transport, commands):
            self._left -= 1
            if self.act and self._left < 0:
                act, self.act = self.act, None
                act()
            return pipeline(transport, commands)

        monkeypatch.setattr(Pooled, "pipeline", look_and_trip)

    def before(self, pipeline, act):
        self._left, self.act = pipeline, act


def begin(state):
    """Begin a run of two steps, one after the other, and bring it into a state."""
    run = get_run(start_run({1: [], 2: [1]}, **CALLBACKS))
    if state == "cancelled":
        run.cancel()
    elif state == "failed":
        end_steps(run.id, Bury("no"), 1)
    elif state == "succeeded":
        end_steps(run.id, StepEnd(), 1)
        end_steps(run.id, StepEnd(), 2)
    return run


def told(run):
    """Return how often each callback was published, and leave no message for the next run."""
    taken = take("default", 500)
    settle("default", taken, ACK)
    ids = [each.message.id for each in taken if each.message.id.startswith(f"w-{run.id}")]
    return Counter(message_id.split(".")[1] for message_id in ids)


def interrupted(interruption, one, other, state):
    """Yield what each says to have done, and the callbacks, for each pipeline of `one` before which `other` acts."""
    for pipeline in count():
        run, done = begin(state), Counter()

        def act(name, run=run, done=done):
            done.update({name: int(ACTS[name](run))})

        interruption.before(pipeline, lambda act=act: act(other))
        act(one)
        if interruption.act:
            break
        yield done, told(run)


@pytest.mark.usefixtures("mq_settings")
def test_two_operators(monkeypatch, subtests):
    interruption = Interruption(monkeypatch)
    for one, other, state in product(ACTS, ACTS, STATES):
        with subtests.test(f"{one}, {other}, {state}"):
            for done, callbacks in interrupted(interruption, one, other, state):
                assert callbacks == Counter([*STATES[state], *["finish"] * done["cancel"]]), done
                assert done["retry"] + done["skip"] == (state == "failed" and {one, other} != {"cancel"}), done
