"""What the result of a task says while real trees run it, and when they die, are cancelled or try again."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from mq_django import get_result, queues, wait_result
from mq_django.inspector import actions
from mq_django.producers import watcher
from mq_django.transport.connections import get_client
from tests.consumers.long_tasks.tasks import await_for, fail_first, wait_for
from tests.waiting import wait_until

#: So that a task is running at once.
AT_ONCE = {"mq_django.consumers.worker.progress:AFTER": 0.1}


@pytest.fixture(autouse=True)
def _with_tasks(monkeypatch):
    monkeypatch.setenv("MQ_TEST_APPS", "tests.consumers.long_tasks")


@pytest.fixture
def go(tmp_path):
    """The file that ends the tasks."""
    return tmp_path / "go"


def await_status(result, status):
    return wait_until(lambda: (found := get_result(result.id)).status.value == status and found, timeout=20)


def test_tasks_are_running_after_a_while_and_end_and_a_wait_goes_on_until_then(trees, go, monkeypatch):
    monkeypatch.setattr(watcher, "CHECK_EVERY", 3600.0)
    trees("--processes", "1", "--threads", "4", limits=AT_ONCE)
    tasks = [wait_for.enqueue(str(go)), await_for.enqueue(str(go))]
    pool = ThreadPoolExecutor(1)
    waiting = pool.submit(wait_result, tasks[0], timeout=90)
    failing, cancelled = fail_first.enqueue(str(go)), wait_for.enqueue(str(go))
    running = [await_status(enqueued, "RUNNING") for enqueued in tasks]
    now = datetime.now(UTC)
    keys = queues["default"].config.keys
    for found in running:
        assert found.started_at < now
        assert (found.last_attempted_at, found.finished_at, found.is_finished) == (found.started_at, None, False)
        (worker,) = found.worker_ids
        assert get_client("produce", key=keys.consumers).hexists(keys.consumers, f"consumer:{worker}")
    # The second attempt is running with the error of the first.
    again = await_status(failing, "RUNNING")
    assert [each.exception_class for each in again.errors] == [ValueError]
    assert (again.attempts, again.started_at < again.last_attempted_at) == (2, True)
    # What is cancelled while it is running has failed.
    await_status(cancelled, "RUNNING")
    queues["default"].cancel(cancelled.id, running=True)
    ended = await_status(cancelled, "FAILED")
    assert [each.exception_class_path for each in ended.errors] == ["mq_django.errors.Cancelled"]
    assert ended.worker_ids[0]
    assert get_client("produce", key=keys.waiters).hexists(keys.waiters, keys.result(tasks[0].id))
    assert not waiting.done()
    go.touch()
    assert waiting.result(60).return_value == str(go)
    pool.shutdown()
    watcher.watchers.forget_all()
    for enqueued, found in zip(tasks, running, strict=True):
        ended = await_status(enqueued, "SUCCESSFUL")
        assert (ended.return_value, ended.worker_ids) == (str(go), found.worker_ids)
        assert abs(ended.started_at - found.started_at) < timedelta(seconds=5)
    assert await_status(failing, "SUCCESSFUL").attempts == 2


def test_a_task_is_running_nowhere_when_its_tree_is_dead_and_again_where_it_is_taken_over(trees, go, store):
    tree = trees("--processes", "1", limits=AT_ONCE)
    enqueued = wait_for.enqueue(str(go))
    first = await_status(enqueued, "RUNNING")
    actions.pause(store.config.name)
    tree.kill_all()
    other = trees("--processes", "1", "--grace", "0.5", limits=AT_ONCE)
    await_status(enqueued, "READY")
    actions.resume(store.config.name)
    second = await_status(enqueued, "RUNNING")
    assert second.worker_ids[-1] not in {"", first.worker_ids[0]}
    # What is handed back at a stop is ready.
    other.stop()
    assert get_result(enqueued.id).status.value == "READY"
