"""What arrives late, twice, or beside something else changes nothing that is settled."""

import pytest

from mq_django.conf import get_config
from mq_django.core.flow_graph import StepRecord
from mq_django.core.outcomes import Bury, StepEnd
from mq_django.core.workflow_keys import WorkflowKeys
from mq_django.producers.queues import queues
from mq_django.stores.dead_letter_queue import open_dead_letters
from mq_django.stores.workflow_home import Event, WorkflowHome
from mq_django.transport.connections import open_wire
from mq_django.transport.sessions import Pooled
from mq_django.workflows import get_run
from tests.seeding import end_steps, start_run
from tests.stores.cases import outgoing

RUN = "0runrunrun"


@pytest.fixture
def home(namespace, redis_client):
    return WorkflowHome(WorkflowKeys(namespace, "0"), Pooled(redis_client))


def begin(home, policy="stop"):
    """Begin a run of two steps, one after the other."""
    home.create(
        RUN,
        {"policy": policy, "lasts": 60_000, "on_failure": "x"},
        [StepRecord(1, 0, b"a", "2"), StepRecord(2, 1, b"b")],
    )
    assert [start.step for start in home.advance(RUN, [Event("begin", added="1-2")]).starts] == ["1"]


def counts(home):
    fields = home.read(RUN)
    return tuple(int(fields[name]) for name in ("done", "failed", "skipped", "flying"))


@pytest.mark.parametrize("policy", ["stop", "continue"])
@pytest.mark.parametrize("seq", [4, 6])
def test_a_failure_after_the_success_of_a_step_is_not_counted(home, policy, seq):
    begin(home, policy)
    home.advance(RUN, [Event("done", 1, 5)])

    late = home.advance(RUN, [Event("failed", 1, seq, "late")])

    assert (late.state, late.starts) == ("running", [])
    assert counts(home) == (1, 0, 0, 1)
    assert home.advance(RUN, [Event("done", 2, 7)]).state == "succeeded"


@pytest.mark.parametrize("policy", ["stop", "continue"])
def test_a_failure_from_before_a_redrive_is_not_counted_again(home, policy):
    begin(home, policy)
    failure = Event("failed", 1, 5, "once")
    home.advance(RUN, [failure])
    assert home.advance(RUN, [Event("redriven", 1, 6)]).state == "running"

    assert home.advance(RUN, [failure]).state == "running"
    assert counts(home) == (0, 0, 0, 1)


def test_a_run_that_never_begins_expires(home, redis_client):
    home.create(RUN, {"policy": "stop", "lasts": 1000}, [StepRecord(1, 0, b"a", "2"), StepRecord(2, 1, b"b")])

    keys = [key for key in home.keys.of_run(RUN) if redis_client.exists(key)]
    assert len(keys) == 4
    assert all(redis_client.pttl(key) > 0 for key in keys)


def test_a_start_that_is_published_once_more_after_a_purge_publishes_nothing(mq_settings, redis_client):
    store = queues["default"].sink.store
    publications = [outgoing(id=f"w:{RUN}.1.1"), outgoing(id=f"w-{RUN}.finish.1")]
    assert store.start(publications) == [True, True]
    assert store.purge(limit=10) == 2

    assert store.start(publications) == [True, True]
    assert store.depths().depth == 0


def test_a_retry_does_not_repeat_a_redrive_of_which_the_run_does_not_know_yet(mq_settings):
    run = get_run(start_run({1: []}))
    end_steps(run.id, Bury("no"), 1)
    assert run.state == "failed"
    letters = open_dead_letters(get_config().queue("default"), open_wire("produce"))
    assert letters.redrive(letters.find([f"w:{run.id}.1.1"])) == ["REDRIVEN"]

    run.retry()

    assert queues["default"].sink.store.depths().depth == 1
    end_steps(run.id, StepEnd(), 1)
    assert run.state == "succeeded"
