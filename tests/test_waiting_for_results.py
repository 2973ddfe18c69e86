import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation
from django.db import transaction

from mq_django import (
    aget_result,
    aiter_results,
    await_result,
    await_results,
    get_result,
    iter_results,
    queues,
    wait_result,
    wait_results,
)
from mq_django.consumers.decisions import Evidence, settle_for, settlement
from mq_django.consumers.shared_state import Receipt
from mq_django.core import clock, running_handler
from mq_django.core.messages import HandBack
from mq_django.errors import CannotWait, ConnectionLost, InvalidWait, MQError, StoreError, WaitTimeout
from mq_django.producers import watcher
from mq_django.stores import open_store
from mq_django.stores.base import Settlement
from mq_django.stores.results import RunningTask, copy_results, note_running
from mq_django.task_backend.compat import TaskResultDoesNotExist
from mq_django.transport.connections import get_client
from mq_django.transport.private_server import PrivateServer
from mq_django.transport.sessions import Pooled
from tests.purging import purge
from tests.task_api import DUMMY, IMMEDIATE, plain_task
from tests.testapp import tasks
from tests.waiting import wait_until
from tests.working import work

#: Seconds: a result comes by a notification long before.
LONG = 60


@pytest.fixture(autouse=True)
def ran(mq_settings, monkeypatch):
    # The thread of a watcher ends after that: each test waits for it.
    monkeypatch.setattr(watcher, "TRY_AGAIN", 0.01)
    tasks.ran.clear()
    yield tasks.ran
    watcher.watchers.forget_all()


@pytest.fixture
def no_looks(monkeypatch):
    """Nobody looks again: a result is known only by its notification."""
    monkeypatch.setattr(watcher, "CHECK_EVERY", 3600.0)


@pytest.fixture
def early_looks(monkeypatch):
    """Look again soon, where a second would be waited for."""
    monkeypatch.setattr(watcher, "CHECK_EVERY", 0.05)


@pytest.fixture
def in_background():
    """Call a function in a thread, and return its future."""
    with ThreadPoolExecutor(4) as pool:
        yield pool.submit


@pytest.fixture
def begin_wait(in_background):
    """Wait for a result in a thread; return its future once Redis knows of the wait."""

    def begin_wait(result, queue="default"):
        waiting = in_background(wait_result, result, timeout=LONG)
        await_registration(result, queue=queue)
        return waiting

    return begin_wait


def waiters(queue="default"):
    key = config_of(queue).keys.waiters
    return get_client("produce", key=key).hgetall(key)


def config_of(queue):
    return queues[queue].config


def await_registration(*results, queue="default"):
    keys = {config_of(queue).keys.result(each.id).encode() for each in results}
    wait_until(lambda: keys <= set(waiters(queue)))


# Woken.


def succeed(monkeypatch):
    yield tasks.shout.enqueue("hello")
    work("default")


def fail(monkeypatch):
    yield tasks.refuse.enqueue()
    work("default")


def be_cancelled(monkeypatch):
    result = tasks.note.using(delay=3600).enqueue(1)
    yield result
    queues["default"].cancel(result.id)


def be_purged(monkeypatch):
    yield tasks.note.enqueue(1)
    purge(config_of("default"))


def expire(monkeypatch):
    yield tasks.note.using(expires=timedelta(hours=1)).enqueue(1)
    monkeypatch.setattr(clock, "_shift", 2 * 3600 * 1_000_000_000)
    work("default")


#: How a task ends: it is enqueued, and the rest happens during the wait. What the result says of it.
ENDS = {
    succeed: ("SUCCESSFUL", []),
    fail: ("FAILED", ["tests.testapp.tasks.Refused"]),
    be_cancelled: ("FAILED", ["mq_django.errors.Cancelled"]),
    be_purged: ("FAILED", ["mq_django.errors.Cancelled"]),
    expire: ("FAILED", ["mq_django.errors.MessageExpired"]),
}


@pytest.mark.usefixtures("no_looks")
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_a_wait_ends_with_its_task_and_does_not_raise(end, monkeypatch, begin_wait):
    happens = end(monkeypatch)
    result = next(happens)
    waiting = begin_wait(result)
    assert next(happens, None) is None
    ended = waiting.result(LONG)
    assert ended.id == result.id
    assert (ended.status.value, [each.exception_class_path for each in ended.errors]) == ENDS[end]
    assert ended.status.value == "FAILED" or ended.return_value == "HELLO"
    assert waiters() == {}


@pytest.mark.usefixtures("no_looks")
def test_a_task_that_is_tried_again_has_not_ended(begin_wait):
    result = tasks.fail.enqueue("no")
    waiting = begin_wait(result)
    work("default")
    assert waiters()
    assert not waiting.done()
    queues["default"].reschedule(result.id, delay=0)
    work("default")
    assert [each.exception_class for each in waiting.result(LONG).errors] == [tasks.Refused] * 2


@pytest.mark.usefixtures("no_looks")
def test_a_task_that_a_supervisor_buries_for_a_dead_consumer_ends_a_wait(mq_settings, begin_wait):
    mq_settings(QUEUES={"default": {"MAX_ATTEMPTS": 1}})
    result = tasks.noop.enqueue()
    waiting = begin_wait(result)
    store = open_store(config_of("default"), Pooled(get_client("produce")))
    store.create_groups()
    (delivery,) = store.take("dead", count=1)
    evidence = Evidence(running=[Receipt.of(0, delivery.stream, delivery.entry)])
    assert settle_for(store, "dead", [settlement(store.config, 0, delivery, evidence)]) == []
    ended = waiting.result(LONG)
    assert (ended.status.value, ended.worker_ids) == ("FAILED", ["dead"])
    assert ended.errors[0].traceback == "running when its process died"
    assert waiters() == {}


@pytest.mark.usefixtures("no_looks")
def test_a_task_that_is_running_has_not_ended(begin_wait):
    result = tasks.noop.enqueue()
    waiting = begin_wait(result)
    store = open_store(config_of("default"), Pooled(get_client("produce")))
    store.create_groups()
    (delivery,) = store.take("c1", count=1)
    get_client("produce", key=store.keys.consumers).hset(store.keys.consumers, "consumer:c1", "{}")
    note_running(Pooled(get_client("produce")), store.config, "c1", [RunningTask(delivery, 1000)])
    assert get_result(result.id).status.value == "RUNNING"
    assert waiters()
    with pytest.raises(WaitTimeout):
        wait_result(result, timeout=0)
    store.settle("c1", [Settlement(delivery, HandBack())])
    work("default")
    assert waiting.result(LONG).status.value == "SUCCESSFUL"


@pytest.mark.usefixtures("no_looks")
def test_a_result_that_is_too_long_for_a_notification_is_read(begin_wait):
    result = tasks.shout.enqueue("a" * 100_000)
    waiting = begin_wait(result)
    work("default")
    assert waiting.result(LONG).return_value == "A" * 100_000


def test_a_task_that_has_ended_needs_no_wait():
    short, long = tasks.shout.enqueue("a"), tasks.shout.enqueue("a" * 100_000)
    work("default")
    assert [each.return_value for each in wait_results([short, long], timeout=0)] == ["A", "A" * 100_000]
    assert wait_result(short.id, timeout=0).return_value == "A"
    assert waiters() == {}


def test_a_result_that_is_known_to_have_ended_is_returned_as_it_is():
    result = tasks.shout.enqueue("a")
    work("default")
    ended = wait_result(result, timeout=0)
    assert wait_result(ended, timeout=0) is ended


@pytest.mark.usefixtures("no_looks")
def test_all_results_are_returned_in_their_order(in_background):
    enqueued = [tasks.shout.enqueue(str(n)) for n in range(3)]
    other = tasks.send_receipt.enqueue(7)
    waiting = in_background(wait_results, [enqueued[2], other, enqueued[0].id, enqueued[1], enqueued[2]], timeout=LONG)
    await_registration(*enqueued)
    await_registration(other, queue="emails")
    work("default")
    work("emails")
    assert [each.return_value for each in waiting.result(LONG)] == ["2", {"order": 7, "copies": 1}, "0", "1", "2"]


@pytest.mark.usefixtures("no_looks")
def test_results_come_in_the_order_of_their_ends():
    first, second = tasks.shout.enqueue("first"), tasks.send_receipt.enqueue(2)
    done = tasks.shout.using(queue_name="emails", priority=50).enqueue("before")
    work("emails", count=1)
    found = iter_results([first, second, done], timeout=LONG)
    assert next(found).id == done.id
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, found)
        await_registration(second, queue="emails")
        work("emails")
        assert waiting.result(LONG).id == second.id
    work("default")
    assert [each.id for each in found] == [first.id]


# Timeouts.


def test_a_wait_ends_with_its_timeout_and_names_what_is_missing():
    here, missing = tasks.shout.enqueue("a"), tasks.send_receipt.enqueue(1)
    work("default")
    with pytest.raises(WaitTimeout, match=rf"1 result has not ended within 0\.05 s: {missing.id}") as raised:
        wait_results([here, missing], timeout=timedelta(milliseconds=50))
    assert raised.value.missing == [missing.id]
    assert isinstance(raised.value, TimeoutError)


def test_the_text_of_a_timeout_names_ten_of_many():
    results = [tasks.shout.enqueue(str(n)) for n in range(12)]
    with pytest.raises(WaitTimeout, match=r"12 results .* and 2 more$") as raised:
        wait_results(results, timeout=0)
    assert len(raised.value.missing) == 12


def test_what_is_not_waited_for_any_more_is_forgotten():
    result = tasks.shout.enqueue("a")
    with pytest.raises(WaitTimeout):
        wait_result(result, timeout=0)
    assert watcher.watchers.of("")._awaited == {}
    key = config_of("default").keys.waiters
    registered = get_client("produce", key=key).pttl(key)
    assert 0 < registered <= 30_000


# When Redis or pub/sub fails.


@pytest.mark.usefixtures("early_looks")
def test_without_its_notification_a_result_is_found_by_looking(monkeypatch, begin_wait):
    monkeypatch.setattr(watcher.ResultWatcher, "_hear", lambda *_: None)
    result = tasks.shout.enqueue("hello")
    waiting = begin_wait(result)
    work("default")
    assert waiting.result(LONG).return_value == "HELLO"


@pytest.mark.usefixtures("no_looks")
def test_what_ended_while_the_subscription_was_broken_is_found_by_the_next(begin_wait):
    # After this wait there is a subscription, whose start looks at every result once more.
    before = tasks.shout.enqueue("before")
    subscribing = begin_wait(before)
    work("default")
    assert subscribing.result(LONG).return_value == "BEFORE"
    result = tasks.shout.enqueue("hello")
    waiting = begin_wait(result)
    client = get_client("produce", key=config_of("default").keys.waiters)
    client.hdel(config_of("default").keys.waiters, config_of("default").keys.result(result.id))
    work("default")
    assert not waiting.done()
    for each in client.client_list(_type="pubsub"):
        if watcher.watchers.of("")._process in str(each) or each["name"] == "mq_django:produce":
            client.client_kill_filter(_id=each["id"])
    assert waiting.result(LONG).return_value == "HELLO"


@pytest.mark.usefixtures("early_looks")
def test_a_server_that_restarts_during_a_wait_delays_it(mq_settings, in_background, tmp_path):
    settings = {"appendfsync": "always"}
    with PrivateServer(directory=tmp_path, append_only=True, settings=settings, tcp=True) as server:
        mq_settings(CONNECTION=server.url)
        before, after = tasks.shout.enqueue("before"), tasks.shout.enqueue("after")
        waiting = [in_background(wait_result, each, timeout=LONG) for each in (before, after)]
        await_registration(before, after)
        work("default", count=1)
        assert waiting[0].result(LONG).return_value == "BEFORE"
        server.kill()
        server.start()
        get_client("consume").connection_pool.disconnect()
        work("default")
        assert waiting[1].result(LONG).return_value == "AFTER"
        watcher.watchers.forget_all()


@pytest.mark.usefixtures("early_looks")
def test_a_user_who_may_not_subscribe_gets_results_by_looking(monkeypatch, caplog, begin_wait):
    def refuse(_):
        raise StoreError("no permission")

    monkeypatch.setattr("mq_django.transport.subscription.Subscription.open", refuse)
    result = tasks.shout.enqueue("hello")
    waiting = begin_wait(result)
    work("default")
    assert waiting.result(LONG).return_value == "HELLO"
    assert "no permission" in caplog.text


def test_a_redis_that_cannot_be_reached_is_an_error_at_once(mq_settings, monkeypatch):
    result = tasks.shout.enqueue("hello")

    def lost(*_):
        raise ConnectionLost("gone")

    monkeypatch.setattr(watcher, "watch", lost)
    with pytest.raises(ConnectionLost, match="gone"):
        wait_result(result, timeout=LONG)
    assert watcher.watchers.of("")._awaited == {}


@pytest.mark.usefixtures("early_looks")
def test_a_result_that_is_deleted_ends_a_wait_with_an_error(begin_wait):
    result = tasks.shout.enqueue("hello")
    waiting = begin_wait(result)
    key = config_of("default").keys.result(result.id)
    get_client("produce", key=key).delete(key)
    with pytest.raises(TaskResultDoesNotExist):
        waiting.result(LONG)


def test_registrations_of_processes_that_are_gone_are_removed():
    keys = config_of("default").keys
    client = get_client("produce", key=keys.waiters)
    client.hset(keys.waiters, mapping={f"gone{n}": "1000 abc\n" for n in range(3)})
    results = [tasks.shout.enqueue(str(n)) for n in range(20)]
    for each in results:
        with pytest.raises(WaitTimeout):
            wait_result(each, timeout=0)
    assert not [key for key in waiters() if key.startswith(b"gone")]


def test_two_processes_can_wait_for_one_result(in_background):
    keys = config_of("default").keys
    result = tasks.shout.enqueue("hello")
    far = int(time.time() * 1000) + 60_000
    get_client("produce", key=keys.waiters).hset(keys.waiters, keys.result(result.id), f"{far} other\n1000 dead\n")
    heard = get_client("produce").pubsub()
    heard.subscribe(keys.results_channel("other"))
    waiting = in_background(wait_result, result, timeout=LONG)
    wait_until(lambda: waiters()[keys.result(result.id).encode()].count(b"\n") == 2)
    work("default")
    assert waiting.result(LONG).return_value == "HELLO"
    wait_until(lambda: (event := heard.get_message()) and event["type"] == "message")
    heard.close()


# What could only time out.


def test_all_watchers_are_forgotten_while_another_thread_makes_one():
    class Made:
        def __init__(self, connection):
            self.connection, self.is_retired = connection, False

        def retire(self):
            # What another thread does at this moment.
            self.is_retired, self.next = True, watchers.of(f"after {self.connection}")

    watchers = watcher.Watchers(Made)
    first, second = watchers.of("first"), watchers.of("second")
    watchers.forget_all()
    assert [first.is_retired, second.is_retired, first.next.is_retired] == [True, True, False]
    assert watchers.of("first") is not first
    assert watchers.of("after first") is first.next


@pytest.mark.django_db
def test_a_task_that_waits_for_the_commit_of_this_thread_cannot_be_waited_for():
    with transaction.atomic():
        result = tasks.shout.enqueue("hello")
        for call in (lambda: wait_result(result, timeout=LONG), lambda: iter_results([result.id], timeout=LONG)):
            with pytest.raises(CannotWait, match=f"{result.id} is enqueued when the open transaction commits"):
                call()
        with pytest.raises(CannotWait, match="enqueued when the open transaction commits"):
            async_to_sync(await_result)(result, timeout=LONG)
        now = tasks.shout.using(on_commit=False).enqueue("now")
        work("default")
        assert wait_result(now, timeout=LONG).return_value == "NOW"


@pytest.mark.django_db
def test_for_a_row_of_the_open_transaction_the_advice_is_only_to_wait_after_it(mq_settings):
    """`on_commit=False` has no effect on it."""
    mq_settings(QUEUES={"default": {"OUTBOX": True}, "emails": {}})
    with transaction.atomic():
        result = tasks.shout.using(on_commit=False).enqueue("hello")
        with pytest.raises(CannotWait, match=r"Wait after atomic\(\)") as refused:
            wait_result(result, timeout=LONG)
    assert "on_commit" not in str(refused.value)


def _in_handler(call):
    def run():
        running_handler.enter()
        return call()

    return run


def test_a_handler_does_not_wait_unless_it_says_so(in_background):
    result = tasks.shout.enqueue("hello")
    work("default")
    with pytest.raises(CannotWait, match="in_handler=True"):
        in_background(_in_handler(lambda: wait_result(result, timeout=LONG))).result(LONG)
    allowed = in_background(_in_handler(lambda: wait_result(result, timeout=LONG, in_handler=True)))
    assert allowed.result(LONG).return_value == "HELLO"


def test_a_queue_without_results_cannot_be_waited_for(mq_settings):
    mq_settings(QUEUES={"default": {"RESULT_TTL": 0}, "emails": {}})
    with pytest.raises(CannotWait, match="Queue 'default' keeps no results"):
        wait_result(tasks.shout.enqueue("a"), timeout=LONG)


def test_the_results_of_other_backends(settings):
    settings.TASKS = {
        "default": {"BACKEND": IMMEDIATE},
        "dummy": {"BACKEND": DUMMY},
    }
    assert wait_result(plain_task(tasks.noop.func).enqueue(), timeout=0).is_finished
    kept = plain_task(backend="dummy")(tasks.noop.func).enqueue()
    with pytest.raises(CannotWait, match="DummyBackend runs nothing"):
        wait_result(kept, timeout=LONG)
    assert get_result(kept.id).id == kept.id
    with pytest.raises(TaskResultDoesNotExist):
        get_result("unknown")


def test_what_cannot_be_waited_for_is_refused(subtests):
    timeouts = [None, -1, "10", True, float("nan"), float("inf"), timedelta(days=4000)]
    for call, given, timeout, said in [
        *((wait_result, "some-id", timeout, "timeout must be") for timeout in timeouts),
        *((wait_result, result, 1, "Give the result that enqueue") for result in (None, "", 7, tasks.shout)),
        *((iter_results, results, 1, "Give a list of results or ids") for results in ("some-id", None, 7)),
    ]:
        with subtests.test(given=given, timeout=timeout), pytest.raises(InvalidWait, match=said):
            call(given, timeout=timeout)


def test_an_unknown_id_is_an_error_at_once():
    with pytest.raises(TaskResultDoesNotExist):
        wait_result("unknown", timeout=LONG)


def test_nothing_is_waited_for_without_results():
    assert wait_results([], timeout=0) == []


def test_the_errors_are_of_our_tree():
    assert issubclass(CannotWait, MQError)
    assert issubclass(InvalidWait, CannotWait)
    assert issubclass(InvalidWait, ValueError)


# On an event loop.


def test_waiting_does_not_block_an_event_loop():
    async def run():
        calls = {"await_result": wait_result, "await_results": wait_results, "aiter_results": iter_results}
        for name, call in calls.items():
            with pytest.raises(SynchronousOnlyOperation, match=rf"await {name}\(\)"):
                call([], timeout=1)

    asyncio.run(run())


@pytest.mark.usefixtures("no_looks")
def test_many_coroutines_share_one_subscription():
    results = [tasks.shout.enqueue(str(n)) for n in range(200)]

    async def run():
        waited = asyncio.gather(*(await_result(each, timeout=LONG) for each in results))
        await asyncio.to_thread(await_registration, *results)
        channel = config_of("default").keys.results_channel(watcher.watchers.of("")._process)
        assert get_client("produce", key=channel).pubsub_numsub(channel)[0][1] == 1
        assert not waited.done()
        await asyncio.to_thread(work, "default", count=len(results))
        return await waited

    assert [each.return_value for each in asyncio.run(run())] == [str(n) for n in range(200)]
    assert watcher.watchers.of("")._awaited == {}


def test_results_on_an_event_loop_come_in_the_order_of_their_ends():
    first, second = tasks.shout.enqueue("first"), tasks.send_receipt.enqueue(2)

    async def run():
        ends = []
        work_off = asyncio.ensure_future(asyncio.to_thread(work, "emails"))
        async for each in aiter_results([first, second], timeout=LONG):
            ends.append(each.id)
            await work_off
            await asyncio.to_thread(work, "default")
        return ends, await aget_result(first.id)

    ends, found = asyncio.run(run())
    assert ends == [second.id, first.id]
    assert found.return_value == "FIRST"


def test_a_timeout_on_an_event_loop():
    result = tasks.shout.enqueue("a")
    with pytest.raises(WaitTimeout) as raised:
        asyncio.run(await_results([result], timeout=0.05))
    assert raised.value.missing == [result.id]
    assert watcher.watchers.of("")._awaited == {}


# Results of any queue.


def test_a_result_is_found_by_its_id_alone(settings):
    settings.TASKS = {
        "default": {"BACKEND": "mq_django.task_backend.MQBackend", "QUEUES": ["default"]},
        "mails": {"BACKEND": "mq_django.task_backend.MQBackend", "QUEUES": ["emails"]},
    }
    here, there = tasks.shout.enqueue("a"), tasks.send_receipt.enqueue(1)
    assert [get_result(each.id).task.queue_name for each in (here, there)] == ["default", "emails"]


def test_a_result_that_was_moved_is_waited_for_in_its_new_queue(begin_wait):
    result = tasks.shout.enqueue("a")
    keys = config_of("default").keys
    client = get_client("produce", key=keys.waiters)
    copy_results((config_of("default"), Pooled(client)), (config_of("emails"), Pooled(client)), [result.id])
    client.delete(keys.result(result.id))
    waiting = begin_wait(result, queue="emails")
    queues["emails"].publish(tasks.shout.module_path, {"args": ["a"], "kwargs": {}}, message_id=result.id)
    work("emails")
    assert waiting.result(LONG).return_value == "A"


def test_a_result_of_another_program_ends_a_wait_with_an_error():
    result = tasks.shout.enqueue("a")
    key = config_of("default").keys.result(result.id)
    get_client("produce", key=key).set(key, b"\x00 no result\n{}")
    with pytest.raises(WaitTimeout):
        wait_result(result, timeout=0)
