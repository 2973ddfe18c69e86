"""What arrives late, twice, or beside something else changes nothing that is settled."""

import pytest

from mq_django.conf import get_config
from mq_django.core.flow_graph import StepRecord
from mq_django.core.keys import WorkflowKeys
from mq_django.core.messages import Bury, StepEnd
from mq_django.errors import ConnectionLost
from mq_django.inspector import workflow_runs
from mq_django.inspector.run_check import check_runs
from mq_django.producers import workflow_run
from mq_django.producers.queues import queues
from mq_django.producers.workflow_run import repair
from mq_django.producers.workflow_steps import StepDelivery
from mq_django.stores.dead_letters import open_dead_letters
from mq_django.stores.workflow_home import Event, WorkflowHome
from mq_django.transport.connections import open_transport
from mq_django.transport.sessions import Pooled
from mq_django.workflows import get_run
from tests.purging import purge
from tests.seeding import end_steps, settle, start_run, take
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

    late = home.advance(RUN, [Event("failed", 1, seq, "late", round=1)])

    assert (late.state, late.starts) == ("running", [])
    assert counts(home) == (1, 0, 0, 1)
    assert home.advance(RUN, [Event("done", 2, 7)]).state == "succeeded"


def test_a_run_that_never_begins_expires(home, redis_client):
    home.create(RUN, {"policy": "stop", "lasts": 1000}, [StepRecord(1, 0, b"a", "2"), StepRecord(2, 1, b"b")])

    keys = [key for key in home.keys.of_run(RUN) if redis_client.exists(key)]
    assert len(keys) == 4
    assert all(redis_client.pttl(key) > 0 for key in keys)


def test_a_start_that_is_published_once_more_after_a_purge_publishes_nothing(mq_settings, redis_client):
    store = queues["default"].sink.store
    publications = [outgoing(id=f"w:{RUN}.1.1"), outgoing(id=f"w-{RUN}.finish.1")]
    assert store.start(publications) == [True, True]
    assert len(purge(store.config)) == 2

    assert store.start(publications) == [True, True]
    assert store.depths().depth == 0


def test_a_retry_does_not_repeat_a_redrive_of_which_the_run_does_not_know_yet(mq_settings):
    run = get_run(start_run({1: []}))
    end_steps(run.id, Bury("no"), 1)
    assert run.state == "failed"
    letters = open_dead_letters(get_config().queue("default"), open_transport("produce"))
    assert letters.redrive(letters.find([f"w:{run.id}.1.1"])) == ["REDRIVEN"]

    run.retry()

    assert queues["default"].sink.store.depths().depth == 1
    end_steps(run.id, StepEnd(), 1)
    assert run.state == "succeeded"


def test_steps_that_fail_again_during_a_retry_end_their_run_once(mq_settings, monkeypatch):
    run_id = start_run({1: [], 2: [], 3: []}, policy="continue")
    end_steps(run_id, Bury("no"), 1, 2, 3)
    redrive = workflow_run._redrive

    def fail_again(run_id, queues):
        redriven = redrive(run_id, queues)
        end_steps(run_id, Bury("no"), *redriven)
        return redriven

    monkeypatch.setattr(workflow_run, "BATCH", 1)
    monkeypatch.setattr(workflow_run, "_redrive", fail_again)
    assert get_run(run_id).retry() == 3

    view = workflow_runs.run(run_id)
    assert (view.state, view.failed, view.round) == ("failed", 3, 2)


def interrupt(monkeypatch, run_id):
    """Begin a retry whose process cannot reach the queue's server, and return what another look finds."""

    def lose(*_):
        raise ConnectionLost("gone")

    with monkeypatch.context() as patch:
        patch.setattr(workflow_run, "_redrive", lose)
        with pytest.raises(ConnectionLost):
            get_run(run_id).retry()
    return [problem.kind for problem in check_runs(seconds=10, old_ms=-1000).problems]


@pytest.mark.usefixtures("mq_settings")
def test_a_retry_that_cannot_reach_a_queue_can_be_repeated(monkeypatch):
    run_id = start_run({1: []})
    end_steps(run_id, Bury("no"), 1)
    assert interrupt(monkeypatch, run_id) == []

    assert get_run(run_id).retry() == 1

    end_steps(run_id, StepEnd(), 1)
    assert get_run(run_id).state == "succeeded"


@pytest.mark.usefixtures("mq_settings")
def test_a_started_step_whose_message_is_a_dead_letter_has_failed(monkeypatch):
    run_id = start_run({1: []})
    end_steps(run_id, Bury("no"), 1)
    # As after a retry that was killed before it has redriven the dead letter.
    with monkeypatch.context() as patch:
        patch.setattr(workflow_run, "dead_letter_found", lambda *_: Event(""))
        assert interrupt(monkeypatch, run_id) == ["dead"]

    assert all(repair(problem) for problem in check_runs(seconds=10, old_ms=-1000).problems)

    assert get_run(run_id).state == "failed"
    assert get_run(run_id).retry() == 1
    assert check_runs(seconds=10, old_ms=-1000).problems == []


def test_a_run_that_continues_in_time_does_not_expire(home):
    begin(home)

    assert home.advance(RUN, [Event("expire")]).state == "running"


COPIES = {"done": StepEnd(), "failed": Bury("no")}


@pytest.mark.usefixtures("mq_settings")
@pytest.mark.parametrize("first", COPIES)
def test_a_step_is_done_whatever_is_noted_of_a_copy_of_its_message(first, subtests):
    """A failover may leave two copies: one is handled, and the other one fails and is redriven."""
    for last in ("failed", "redriven"):
        with subtests.test(last):
            store, run_id = queues["default"].sink.store, start_run({1: []})
            store.publish([outgoing(id=f"w:{run_id}.1.1")])
            copies = dict(zip(COPIES, take("default", 10), strict=True))
            for name in (first, *[name for name in COPIES if name != first]):
                settle("default", [copies[name]], COPIES[name])
            letters = open_dead_letters(get_config().queue("default"), open_transport("produce"))
            if last == "redriven":
                assert letters.redrive(letters.find([f"w:{run_id}.1.1"])) == ["REDRIVEN"]

            StepDelivery(get_config().queue("default"), open_transport("produce")).deliver([f"w:{run_id}.1.1"])

            assert get_run(run_id).state == "succeeded"
            purge(store.config)
