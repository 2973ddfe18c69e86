"""Definitions of workflows: what they become, and what is refused before anything is written."""

from datetime import timedelta
from functools import partial

import pytest
from django.db import transaction

from mq_django.core.flow_graph import MAX_STEPS, FlowGraph, numbers_of, ranges, values_taken
from mq_django.core.messages import Bury
from mq_django.errors import InvalidArguments, InvalidWorkflow, UnknownRun, WorkflowError
from mq_django.workflows import Flow, chain, current_flow, parallel, workflow
from tests.seeding import end_steps
from tests.testapp import tasks


@pytest.fixture
def untouched(redis_client, namespace):
    """Check that a test has written nothing."""
    yield
    assert list(redis_client.scan_iter(f"{namespace}:*")) == []


def test_numbers_are_written_as_ranges():
    assert ranges([5, 1, 2, 3, 9]) == "1-3,5,9"
    assert numbers_of("1-3,5,9") == [1, 2, 3, 5, 9]
    assert (ranges([]), numbers_of("")) == ("", [])


def test_what_a_step_takes_is_bounded_before_a_list_is_made():
    assert len(values_taken({"0": f"2-{MAX_STEPS}", "name": 1})["0"]) == MAX_STEPS - 1
    for which in (
        *("1-60000000", f"1-{MAX_STEPS + 1}", "1," * MAX_STEPS + "1", "9" * 100_000, 10**12, -1, "-5", "1-", "²", "x"),
        *([1], None, 10**5000),
    ):
        with pytest.raises(ValueError, match=r"no ranges|Exceeds"):
            values_taken({"0": which})
    with pytest.raises(ValueError, match="no ranges"):
        values_taken({str(place): f"1-{MAX_STEPS}" for place in range(1000)})


def test_steps_that_wait_for_the_same_steps_share_a_join():
    graph = FlowGraph()
    for _ in range(2000):
        graph.add()
    for number in range(1001, 2001):
        graph.wait(number, range(1, 1001))
    records = graph.records([b"x"] * 2000)
    assert len(records) == 2001
    assert (records[0].after, records[2000].waits, records[2000].after) == ("2001", 1000, "1001-2000")
    assert sum(len(record.after) for record in records) < 10_000


def test_records_begin_with_any_number():
    graph = FlowGraph()
    first, second = graph.add(), graph.add()
    graph.wait(second, [first])
    assert [(each.number, each.waits, each.after) for each in graph.records([b"a", b"b"], first=8)] == [
        *((8, 0, "9"), (9, 1, "")),
    ]


def test_a_cycle_is_refused(tasks, untouched):
    @workflow
    def circle(flow):
        one, two = flow.add(tasks.add), flow.add(tasks.add)
        one.after(two)
        two.after(one)

    with pytest.raises(InvalidWorkflow, match="wait for each other"):
        circle.start()


def test_what_cannot_be_a_step_is_refused(tasks, mq_settings, untouched):
    mq_settings(QUEUES={"default": {}, "jobs": {"STORE": "rsmq"}})
    flow, foreign = Flow(), Flow().add(tasks.add)
    refused = [
        (InvalidWorkflow, "not a step of this flow", lambda: flow.add(tasks.total, foreign)),
        *[
            (InvalidWorkflow, "not a step of this flow", lambda other=other: flow.add(tasks.add).after(other))
            for other in (foreign, 5, None, tasks.add, "abc")
        ],
        (InvalidWorkflow, "only steps", lambda: flow.add(tasks.total, [flow.add(tasks.add), 1])),
        (InvalidArguments, None, lambda: flow.add(tasks.total)),
        (InvalidArguments, None, lambda: flow.add(tasks.total, object())),
        (InvalidWorkflow, "unique", lambda: flow.add(tasks.add.using(unique="k", unique_for=60))),
        (InvalidWorkflow, "expires", lambda: flow.add(tasks.add.using(expires=60))),
        (InvalidWorkflow, "RSMQ", lambda: flow.add(tasks.add.using(queue_name="jobs"))),
        (InvalidWorkflow, "list of items", lambda: flow.map(tasks.add, 5)),
        (InvalidWorkflow, "return its last step", lambda: flow.add(parallel(workflow(lambda flow: 5)))),
    ]
    for error, sentence, call in refused:
        with pytest.raises(error, match=sentence):
            call()


def test_values_that_are_too_large_are_refused(tasks, mq_settings, untouched):
    mq_settings(QUEUES={"default": {"MAX_SIZE": 1000}})
    with pytest.raises(InvalidWorkflow, match="cannot be a step"):
        chain((tasks.total, ["x" * 2000])).start()


def test_an_empty_workflow_is_refused(untouched, mq_settings):
    with pytest.raises(InvalidWorkflow, match="no steps"):
        workflow(lambda flow: None).start()
    with pytest.raises(InvalidWorkflow):
        chain()
    with pytest.raises(InvalidWorkflow, match="member"):
        parallel(print)


def test_options_that_cannot_be_are_refused(tasks, untouched):
    for options in ({"policy": "never"}, {"expires": 0}, {"expires": "soon"}, {"expires": timedelta(days=9999)}):
        with pytest.raises(InvalidWorkflow):
            workflow("name", **options)
    with pytest.raises(InvalidWorkflow, match="one argument"):
        workflow("name", on_finish=tasks.wait_twice)
    with pytest.raises(InvalidWorkflow):
        workflow("")


def test_a_flow_of_its_own_exists_only_inside_a_step():
    with pytest.raises(WorkflowError, match="step of a workflow"):
        current_flow()


@pytest.mark.django_db(transaction=True)
def test_a_run_starts_at_the_commit(tasks, mq_settings, redis_client, namespace):
    with transaction.atomic():
        run = chain((tasks.add, 1)).start()
        with pytest.raises(UnknownRun):
            _ = run.state
    assert run.state == "running"


@pytest.mark.django_db(transaction=True)
def test_a_run_that_was_rolled_back_does_not_exist(tasks, untouched):
    with transaction.atomic():
        run = chain((tasks.add, 1)).start()
        transaction.set_rollback(True)
    with pytest.raises(UnknownRun, match="waits for a commit, or was rolled back"):
        _ = run.state


def test_an_exception_in_the_block_starts_nothing(tasks, untouched):
    definition = workflow("once")

    def fail():
        with definition as flow:
            flow.add(tasks.add)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert definition.run is None


def test_a_unique_key_keeps_the_run_that_has_it(tasks, mq_settings):
    definition = chain((tasks.add, 1))
    first = definition.start(unique="a.csv")
    assert definition.start(unique="a.csv").id == first.id
    assert definition.start(unique="b.csv").id != first.id
    assert first.cancel()
    assert definition.start(unique="a.csv").id != first.id


@pytest.fixture
def failed_run(tasks, mq_settings):
    """Return a workflow, and a run of it with the unique key `a.csv` that has failed."""
    definition = chain((tasks.add, 1))
    run = definition.start(unique="a.csv")
    end_steps(run.id, Bury(error="ValueError", reason="attempts"), 1)
    assert run.state == "failed"
    return definition, run


def test_a_run_that_continues_takes_its_unique_key_again(failed_run):
    definition, run = failed_run
    assert run.retry() == 1
    assert definition.start(unique="a.csv").id == run.id
    assert run.cancel()
    assert definition.start(unique="a.csv").id != run.id


def test_a_run_whose_unique_key_another_one_has_continues_without_it(failed_run):
    definition, run = failed_run
    other = definition.start(unique="a.csv")
    assert (run.retry(), run.state) == (1, "running")
    assert run.cancel()
    assert definition.start(unique="a.csv").id == other.id
    assert other.cancel()
    assert definition.start(unique="a.csv").id not in {run.id, other.id}


def test_workflows_are_parts_of_others(tasks, untouched):
    @workflow
    def inner(flow, number):
        return flow.add(tasks.double, number)

    flow = Flow()
    last = flow.add(tasks.add, flow.add(inner, 4), flow.add(chain((tasks.add, 1), tasks.double)))
    assert (len(flow), last.number) == (4, 4)
    assert [record.waits for record in flow._records("0run00000")] == [0, 0, 1, 2]

    @workflow(on_finish=tasks.told)
    def loud(flow):
        flow.add(tasks.add)

    for other in (flow, Flow()):
        with pytest.raises(InvalidWorkflow, match="callbacks"):
            other.add(loud)


def test_a_chain_keeps_its_order_also_if_a_workflow_in_it_returns_nothing(tasks, untouched):
    @workflow
    def silent(flow, *given):
        flow.add(tasks.add, 1)
        flow.add(tasks.double, flow.add(tasks.add, 2))

    flow = Flow()
    flow.add(chain((tasks.add, 0), silent, tasks.add))
    found = [(record.number, record.waits, record.after) for record in flow._records("0run00000")]
    assert found == [(1, 0, "2-3"), (2, 1, "5"), (3, 1, "4"), (4, 1, "5"), (5, 2, "")]


def test_arguments_that_the_workflow_does_not_take_are_refused(tasks, untouched):
    @workflow
    def one(flow, path):
        flow.add(tasks.add)

    for call in (one.start, lambda: one.start("a", "b"), lambda: Flow().add(one, name=1)):
        with pytest.raises(InvalidArguments, match="one"):
            call()


def test_only_plain_functions_are_workflows(untouched):
    async def coroutine(flow):
        """Add nothing."""

    def generator(flow):
        yield

    for function in (coroutine, generator, tasks.noop, partial(print)):
        with pytest.raises(InvalidWorkflow, match="plain function"):
            workflow(function)


def test_a_flow_whose_run_is_started_takes_no_more_steps(tasks, mq_settings):
    with workflow("once") as flow:
        step = flow.add(tasks.add)
    for late in (lambda: flow.add(tasks.add), lambda: step.after(step)):
        with pytest.raises(InvalidWorkflow, match="is started"):
            late()
    with pytest.raises(InvalidWorkflow, match="with statement"), chain(tasks.add):
        pass
