"""Runs of workflows as the tests of a project see them."""

from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.core.management import call_command
from shop.tasks import confirm, confirm_all, report

from mq_django import Ack, Bury, queues
from mq_django.errors import TestKitError, UnknownRun
from mq_django.inspector import dead_letters
from mq_django.workflows import chain, get_run, parallel, workflow

DAY = timedelta(days=1)


@pytest.fixture
def failing(monkeypatch):
    """Let the mail of the report fail until monkeypatch.undo()."""
    monkeypatch.setattr("shop.tasks.send_mail", lambda *args: 1 / 0)


def start(definition, *args, **options):
    return definition.start(*args, on_commit=False, **options)


class TestRunning:
    def test_run_drives_a_workflow_to_its_end(self, mq, db, mailoutbox):
        run = start(confirm_all, [1, 2, 3])
        assert mq.workflows == [run]
        assert (mq.workflows[0].state, run.name) == ("running", "shop.tasks.confirm_all")

        handled = mq.run()
        assert [isinstance(each.outcome, Ack) for each in handled] == [True] * 4
        assert mq.workflows[0].state == "succeeded"
        assert mq.workflows[0].progress == (4, 4, 0, 0, 0)
        assert mailoutbox[0].body == "3 orders"

    def test_one_message_at_a_time(self, mq, db):
        run = start(confirm_all, [1, 2, 3])
        mq.run("default")
        assert (run.state, run.progress.done) == ("running", 3)
        mq.run("emails")
        assert run.state == "succeeded"

    def test_steps_are_messages(self, mq, db):
        start(confirm_all, [7])
        mq.run()
        assert mq.published(task=confirm)[0].args == [7]
        assert len(mq.published("emails", task=report)) == 1
        assert len(mq.published()) == 2

    def test_a_step_that_is_delayed(self, mq, db):
        run = start(chain((confirm, 1), report.using(delay=3600)))
        mq.run()
        assert (run.state, run.progress.done) == ("running", 1)
        mq.advance(hours=1)
        (handled,) = mq.run(raise_errors=False)
        assert handled.handler == "shop.tasks.report"

    def test_run_until_idle_waits_for_delays_and_retries(self, mq, db, failing):
        run = start(confirm_all, [1])
        handled = mq.run_until_idle(raise_errors=False)
        assert type(handled[-1].outcome) is Bury
        assert len(handled) == 4
        assert (run.state, run.progress.failed) == ("failed", 1)

    @async_to_sync
    async def _start_and_run(self, mq):
        run = await chain((report, [1])).astart(on_commit=False)
        await mq.arun()
        return run

    def test_in_a_coroutine(self, mq):
        run = self._start_and_run(mq)
        assert mq.workflows.get(name="chain", state="succeeded") == run


class TestExpiry:
    def test_a_run_expires_when_the_time_has_moved(self, mq):
        definition = workflow("slow", on_failure=report, expires=DAY)
        with definition as flow:
            flow.add(report.using(delay=DAY * 2), [1])
        mq.advance(hours=23)
        assert mq.workflows[0].state == "running"
        mq.advance(hours=1)
        assert mq.workflows[0].state == "expired"
        assert mq.published(task=report)[-1].args == [definition.run.id]

    def test_a_run_is_forgotten_after_a_week(self, mq, db):
        start(confirm_all, [1])
        mq.run()
        mq.advance(days=8)
        with pytest.raises(UnknownRun):
            _ = mq.workflows[0].state
        assert mq.workflows[0].name == "shop.tasks.confirm_all"
        assert "deleted, or ended more than a week ago" in repr(mq.workflows)


class TestFailures:
    @pytest.fixture
    def failed(self, mq, db, failing, monkeypatch):
        run = start(confirm_all, [1, 2])
        mq.run_until_idle(raise_errors=False)
        assert run.state == "failed"
        monkeypatch.undo()
        return run

    def test_a_run_is_retried(self, mq, failed):
        assert failed.retry() == 1
        mq.run()
        assert failed.state == "succeeded"
        assert not mq.dead

    def test_a_dead_letter_is_redriven(self, mq, failed):
        (letter,) = mq.dead
        assert letter.message.name == f"step:{report.module_path}"
        assert dead_letters.redrive_messages("emails", [letter.message.id]).done == 1
        mq.run()
        assert failed.state == "succeeded"

    def test_a_failed_step_is_skipped(self, mq, failed):
        assert failed.skip(3)
        assert failed.state == "succeeded"

    def test_what_was_purged_has_failed(self, mq, db):
        run = start(confirm_all, [1])
        call_command("mq", "purge", "default", "--state", "ready", "--yes")
        assert mq.run() == []
        assert run.state == "failed"

    def test_a_cancelled_run_handles_nothing(self, mq, db):
        run = start(confirm_all, [1])
        assert run.cancel()
        mq.run()
        assert (run.state, run.progress.done) == ("cancelled", 0)

    def test_the_text_has_the_state_of_each_run(self, mq, failed):
        start(chain((confirm, 1)))
        assert repr(mq.workflows) == (
            "[\n"
            "  shop.tasks.confirm_all: failed, 2 of 3 steps done, 1 failed; "
            "step 3: ZeroDivisionError\n"
            "  chain: running, 0 of 1 steps done, 1 started\n"
            "]"
        )


class TestFinding:
    def test_runs_are_in_the_order_of_their_start(self, mq, db):
        runs = [start(chain((confirm, number))) for number in range(30)]
        assert mq.workflows == runs
        assert "  and 10 more\n" in repr(mq.workflows)

    def test_by_workflow_name_and_state(self, mq, db):
        run, other = start(confirm_all, [1]), start(parallel((confirm, 1)))
        assert mq.workflows.get(confirm_all) is run
        assert mq.workflows.get(name="parallel", state="running") is other
        assert get_run(run.id) == run

    def test_what_there_is_not_is_an_error_with_what_there_is(self, mq, db):
        with pytest.raises(AssertionError, match=r"any name and state, found 0: \[\]: no run was started"):
            mq.workflows.get()
        start(confirm_all, [1])
        start(confirm_all, [2])
        with pytest.raises(AssertionError, match=r"state 'failed', found 0: .*\n.*confirm_all: running, 0 of 2"):
            mq.workflows.get(state="failed")
        with pytest.raises(AssertionError, match=r"name 'shop.tasks.confirm_all', found 2"):
            mq.workflows.get(confirm_all)
        with pytest.raises(IndexError, match=r"there is no run 2: \[\n  shop.tasks.confirm_all: running"):
            _ = mq.workflows[2]
        with pytest.raises(TestKitError, match="not 'done'"):
            mq.workflows.get(state="done")
        with pytest.raises(TestKitError, match="takes a workflow"):
            mq.workflows.get(confirm)

    def test_a_run_that_was_not_started_is_not_there(self, mq, db):
        first, second = (start(confirm_all, [1], unique="a") for _ in range(2))
        assert first == second
        assert len(mq.workflows) == 1

    def test_clear_forgets_them(self, mq, db):
        start(confirm_all, [1])
        mq.clear()
        assert mq.workflows == []
        mq.run()

    def test_those_of_another_test_are_not_there(self, mq):
        assert mq.workflows == []


class TestCommit:
    def test_a_run_waits_for_the_commit(self, mq, db, caplog):
        run = confirm_all.start([1])
        assert mq.workflows == []
        text = "1 run of a workflow waits for the commit: call mq.commit()\n  shop.tasks.confirm_all"
        assert repr(mq.workflows) == f"[]: {text}"
        assert mq.run() == []
        assert "1 run of a workflow waits for the commit: call mq.commit()" in caplog.text

        assert mq.commit() == 1
        assert mq.workflows == [run]
        mq.run()
        assert mq.workflows[0].state == "succeeded"

    def test_a_run_starts_once(self, mq, db, django_capture_on_commit_callbacks):
        with django_capture_on_commit_callbacks(execute=True):
            confirm_all.start([1])
        assert mq.commit() == 0
        assert len(mq.workflows) == 1

    def test_started_by_a_handler(self, mq, db):
        start(chain((confirm, 1)))
        mq.run()
        assert mq.workflows.get().state == "succeeded"


def test_a_step_that_a_full_queue_has_refused_is_published_later(mq, db, settings):
    options = {**settings.MQ_DJANGO["QUEUES"], "emails": {"MAX_DEPTH": 1}}
    settings.MQ_DJANGO = {**settings.MQ_DJANGO, "QUEUES": options}
    queues["emails"].publish("welcome", {"email": "ann@shop.example"}, on_commit=False)
    run = start(confirm_all, [1])
    mq.run("default")
    assert mq.published(task=report) == []
    mq.run()
    assert run.state == "succeeded"
