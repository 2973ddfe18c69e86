"""Tasks in a queue with partitions: their results, progress and cancellation are in the partition of the message."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from mq_django import get_result, iter_results, queues, wait_result, wait_results
from mq_django.conf import get_config
from mq_django.consumers.worker.databases import databases_within
from mq_django.core.partitions import number_in, partition_of
from mq_django.errors import WaitTimeout
from mq_django.producers import watcher
from mq_django.stores.results import copy_results, find_result, part_with
from mq_django.task_backend.compat import TaskResultDoesNotExist
from mq_django.testing.runs import QueueRun
from mq_django.transport.connections import get_client, open_transport, open_transports
from tests.testapp import tasks
from tests.waiting import wait_until
from tests.working import work

pytestmark = pytest.mark.cluster
PARTITIONS = 4
#: Seconds: a result comes by a notification long before.
LONG = 60


@pytest.fixture(autouse=True)
def _partitioned(mq_settings):
    mq_settings(QUEUES={"default": {"PARTITIONS": PARTITIONS}, "emails": {}})
    tasks.ran.clear()
    yield
    watcher.watchers.forget_all()


@pytest.fixture
def no_looks(monkeypatch):
    """Nobody looks again: a result is known only by its notification."""
    monkeypatch.setattr(watcher, "CHECK_EVERY", 3600.0)


def parts():
    return get_config().queue("default").parts


def work_all():
    for part in parts():
        work(part.name)


def await_registration(*results):
    def registered():
        keys = [part.keys.waiters for part in parts()]
        return {found for key in keys for found in get_client("produce", key=key).hgetall(key)}

    def key_of(result):
        return parts()[number_in(result.id)].keys.result(result.id).encode()

    wait_until(lambda: {key_of(result) for result in results} <= registered())


def test_a_result_is_in_the_partition_that_its_id_names():
    results = [tasks.shout.enqueue(f"hello {number}") for number in range(PARTITIONS)]
    assert {number_in(result.id) for result in results} == set(range(PARTITIONS))
    assert [get_result(result.id).status.value for result in results] == ["READY"] * PARTITIONS
    work_all()
    for number, result in enumerate(results):
        result.refresh()
        assert result.return_value == f"HELLO {number}"
        assert get_result(result.id).task.queue_name == "default"
    keyed = tasks.note.using(key="order:7").enqueue(7)
    assert number_in(keyed.id) == partition_of("order:7", PARTITIONS)
    many = tasks.note.enqueue_many([[number] for number in range(3)])
    assert [get_result(each.id).args for each in many] == [[0], [1], [2]]


def asked(client):
    """Return how many results were read."""
    return sum(row["calls"] for name, row in client.info("commandstats").items() if name == "cmdstat_getrange")


@pytest.mark.single_server(why="on a cluster the nodes count on their own")
def test_a_generated_id_asks_one_partition(redis_client):
    result = tasks.note.enqueue(1)
    named, *others, last = [place.name for place in get_config().partitions_for_id(result.id)]
    assert (named, last, len(others)) == (f"default.{number_in(result.id)}", "emails", PARTITIONS - 1)
    before = asked(redis_client)
    get_result(result.id)
    assert asked(redis_client) - before == 2
    assert len(get_config().partitions_for_id("order.3")) == PARTITIONS + 1
    assert [place.name for place in get_config().partitions_for_id("order.3", {"emails"})] == ["emails"]


def test_a_result_that_does_not_exist_is_refused():
    with pytest.raises(TaskResultDoesNotExist):
        get_result("order.3")
    with pytest.raises(TaskResultDoesNotExist):
        get_result(get_config().queue("default").parts[2].new_id())


@pytest.mark.usefixtures("no_looks")
def test_waits_end_by_the_notifications_of_all_partitions():
    results = [tasks.shout.enqueue(str(number)) for number in range(2 * PARTITIONS)]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait_results, results, timeout=LONG)
        await_registration(*results)
        work_all()
        assert [each.return_value for each in waiting.result(LONG)] == [str(number) for number in range(2 * PARTITIONS)]
    again = [tasks.shout.enqueue("x") for _ in range(PARTITIONS)]
    work_all()
    assert {each.id for each in iter_results(again, timeout=LONG)} == {each.id for each in again}


def test_a_result_is_awaited_in_the_partition_to_which_it_was_moved():
    """Its id names no partition."""
    result = tasks.shout.using(queue_name="emails").enqueue("hello")
    source, target = get_config().queue("emails"), parts()[3]
    transport = open_transport("produce", "")
    copy_results((source, transport), (target, transport), [result.id])
    get_client("produce", key=source.keys.ready).delete(source.keys.result(result.id))
    transports = open_transports("produce", [""] * PARTITIONS)
    assert (
        part_with(transports, get_config().queue("default").partitions_for_id(result.id), result.id).name == "default.3"
    )
    assert find_result(transports[:1], [target], result.id).queue == "default"
    with pytest.raises(WaitTimeout):
        wait_result(result.id, timeout=0.1)
    assert get_result(result.id).task.queue_name == "default"


def test_a_delayed_task_is_cancelled_by_its_id():
    result = tasks.note.using(delay=3600).enqueue(1)
    assert queues["default"].cancel(result.id).name == "CANCELLED"
    result.refresh()
    assert [each.exception_class_path for each in result.errors] == ["mq_django.errors.Cancelled"]
    ready = tasks.note.enqueue(1)
    assert queues["default"].cancel(ready.id, running=True).name == "ASKED"


def test_the_unique_key_of_a_task_leads_to_the_earlier_result():
    first = tasks.note.using(delay=3600, unique="once", on_conflict="keep").enqueue(1)
    assert tasks.note.using(delay=3600, unique="once", on_conflict="keep").enqueue(2).id == first.id


def test_results_in_partitions_of_a_cluster(cluster, mq_settings):
    mq_settings(CONNECTION=cluster.url, QUEUES={"default": {"PARTITIONS": PARTITIONS}})
    results = [tasks.shout.enqueue(str(number)) for number in range(2 * PARTITIONS)]
    assert [get_result(each.id).status.value for each in results] == ["READY"] * 2 * PARTITIONS
    with pytest.raises(TaskResultDoesNotExist):
        get_result("order.3")
    assert queues["default"].progress("order.3") is None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait_results, results, timeout=LONG)
        await_registration(*results)
        assert queues["default"].cancel(results[0].id).name == "NOT_WAITING"
        with databases_within() as databases:
            for part in parts():
                QueueRun(part, databases).handle_ready([], raise_errors=True, limit=100)
        assert {each.status.value for each in waiting.result(LONG)} == {"SUCCESSFUL"}
