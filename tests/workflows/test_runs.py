"""Runs of workflows with real consumers: of a plain queue, and of one with partitions on a cluster."""

from collections import Counter

import pytest

from mq_django.conf import get_config
from mq_django.errors import InvalidArguments, UnknownRun
from mq_django.inspector import workflow_runs
from mq_django.stores import open_store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from mq_django.workflows import chain, get_run, parallel, workflow
from tests.purging import purge
from tests.waiting import wait_until

PLAIN = {"default": {}}
PARTITIONED = {"default": {"PARTITIONS": 8}}


class Site:
    """A tree whose tasks note what they did."""

    def __init__(self, history, tasks, folder):
        self.history, self.tasks, self._folder, self._files = history, tasks, folder, 0

    def flag(self):
        """Return the path of a file that is not there."""
        self._files += 1
        return self._folder / f"flag{self._files}"

    def ran(self):
        return Counter(line["name"] for line in self.history.lines("step"))

    def callbacks(self):
        return [line["id"] for line in self.history.lines("callback")]


def ended(run, state):
    """Wait until a run has ended, and check how."""
    wait_until(lambda: run.state not in {"building", "running"}, timeout=20)
    assert run.state == state


def values_are_passed_on(site):
    tasks = site.tasks
    run = chain((tasks.add, 1, 2), parallel((tasks.add, 10), tasks.double), tasks.total).start()
    ended(run, "succeeded")
    assert run.progress == (4, 4, 0, 0, 0)
    steps = sorted((line["name"], line["args"]) for line in site.history.lines("step"))
    assert steps == [("add", [1, 2]), ("add", [3, 10]), ("double", 3), ("total", 2)]


def a_running_step_adds_steps(site):
    definition = workflow("grow", on_success=site.tasks.told)
    with definition as flow:
        flow.add(site.tasks.grow, 300)
    ended(definition.run, "succeeded")
    wait_until(lambda: site.callbacks() == [definition.run.id])
    assert site.ran() == {"grow": 1, "double": 300, "total": 1}


def what_has_failed_is_retried(site):
    tasks, flag = site.tasks, site.flag()
    definition = workflow("fails", on_failure=tasks.told, on_success=tasks.told, policy="continue")
    with definition as flow:
        for number in range(6):
            step = tasks.fail_unless.using(key=f"k{number}") if number % 2 else tasks.fail_unless
            flow.add(tasks.add, flow.add(step, str(flag), number))
    run = definition.run
    ended(run, "failed")
    assert run.progress == (12, 0, 6, 6, 0)
    assert len(workflow_runs.dead_letters_of([workflow_runs.step(run.id, number) for number in range(1, 13)])) == 6
    wait_until(lambda: site.callbacks() == [run.id])
    flag.touch()
    assert run.retry() == 6
    ended(run, "succeeded")
    assert run.progress == (12, 12, 0, 0, 0)
    wait_until(lambda: len(site.callbacks()) >= 2)
    assert site.callbacks() == [run.id, run.id]
    assert site.ran() == {"fail_unless": 12, "add": 6}


def a_cancelled_run_starts_nothing_more(site):
    flag = site.flag()
    run = chain((site.tasks.wait_for, str(flag)), (site.tasks.add, 2)).start()
    site.history.wait_for("step")
    assert (run.cancel(), run.cancel()) == (True, False)
    flag.touch()
    wait_until(lambda: run.progress.done == 1, timeout=20)
    assert run.state == "cancelled"
    assert run.retry() == 0
    ended(run, "succeeded")
    assert site.ran() == {"wait_for": 1, "add": 1}


def a_step_whose_argument_is_missing_fails_at_once(site):
    """No later attempt would find the value of a step that was skipped."""
    run = chain((site.tasks.fail_unless, str(site.flag())), site.tasks.increase).start()
    ended(run, "failed")
    with pytest.raises(InvalidArguments, match="number of a step, not '1'"):
        run.skip("1")
    assert [run.skip(step) for step in (0, -(10**5000), 10**5000)] == [False] * 3
    assert run.skip(1)
    ended(run, "failed")
    assert run.progress == (2, 1, 1, 0, 0)


@pytest.fixture(
    params=[
        pytest.param("plain", marks=pytest.mark.versions),
        pytest.param("cluster", marks=pytest.mark.cluster),
    ]
)
def options(request, mq_settings):
    """The settings of the trees of a test."""
    found = {"QUEUES": PLAIN if request.param == "plain" else PARTITIONED}
    if request.param == "cluster":
        found["CONNECTION"] = request.getfixturevalue("cluster").url
    mq_settings(**found)
    return found


def test_runs_end_as_their_steps_do(trees, history, tasks, tmp_path, options):
    tree = trees("--processes", "2", **options)
    site = Site(history, tasks, tmp_path)
    for scenario in (
        values_are_passed_on,
        a_running_step_adds_steps,
        what_has_failed_is_retried,
        a_cancelled_run_starts_nothing_more,
        a_step_whose_argument_is_missing_fails_at_once,
    ):
        history.path.write_text("")
        scenario(site)
    assert tree.stop() == 0
    parts = get_config().queue("default").each_part
    assert all(
        open_store(part, Pooled(get_client("produce", part.connection, key=part.keys.ready))).depths().depth == 0
        for part in parts
    )


def test_a_purged_step_fails_and_retry_starts_it_again(trees, tasks, history):
    run = chain((tasks.add, 1), (tasks.add, 2)).start()
    assert len(purge(get_config().queue("default"))) == 1
    trees()
    ended(run, "failed")
    assert run.retry() == 1
    ended(run, "succeeded")
    assert Counter(line["name"] for line in history.lines("step")) == {"add": 2}


def test_an_unknown_run(mq_settings):
    with pytest.raises(UnknownRun):
        get_run("x")
    with pytest.raises(UnknownRun):
        get_run("0123456789abcd").cancel()
    with pytest.raises(UnknownRun):
        _ = get_run("0123456789abcd").state
