import asyncio
import enum
import functools
import logging
import pickle
import re
import sys
from contextlib import contextmanager
from dataclasses import FrozenInstanceError
from datetime import UTC, date, datetime, timedelta
from unittest import mock
from uuid import UUID

import django
import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.checks import run_checks
from django.db import transaction
from django.db.models import IntegerChoices
from django.template import Context, Template
from django.utils import timezone

from mq_django import RetryPolicy, get_result, queues, task, topics
from mq_django.conf import get_config
from mq_django.consumers.decisions import Evidence, settle_for, settlement
from mq_django.consumers.processes import Grace
from mq_django.consumers.shared_state import Receipt, SharedState
from mq_django.consumers.worker.consumer import Consumer, slots
from mq_django.core.messages import CANCEL, Cancel
from mq_django.core.texts import repr_of
from mq_django.errors import (
    AlreadyPublished,
    Cancelled,
    ConfigurationError,
    HandlerTimeout,
    InvalidArguments,
    InvalidMessage,
    MessageExpired,
    MessageTooLarge,
    QueueFull,
    WrongKeyType,
)
from mq_django.registry import find
from mq_django.stores import open_store
from mq_django.stores.base import Settlement
from mq_django.stores.results import RunningTask, note_running
from mq_django.task_backend import MQBackend, MQTask
from mq_django.task_backend.compat import (
    LOGGER,
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from mq_django.task_backend.task_api import AttemptError
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.hearing import hears
from tests.purging import purge
from tests.task_api import DUMMY, TaskResultMismatch, plain_task
from tests.testapp import tasks
from tests.waiting import wait_until
from tests.working import work

pytestmark = pytest.mark.versions

OURS = {"default": {"BACKEND": "mq_django.task_backend.MQBackend", "QUEUES": ["default", "emails"]}}
READY, FAILED, SUCCESSFUL = TaskResultStatus.READY, TaskResultStatus.FAILED, TaskResultStatus.SUCCESSFUL


@pytest.fixture(autouse=True)
def ran(mq_settings):
    tasks.ran.clear()
    return tasks.ran


@pytest.fixture
def plain(settings):
    """Plain tasks go to our backend."""
    settings.TASKS = OURS
    return settings


def takes_delay(other, delay):
    return other, delay


def module_level(a=None, *, b=None):
    return [a, b]


async def module_level_async(a=None):
    return a


def module_level_too(a):
    return a


def _adding(function):
    @functools.wraps(function)
    def wrapper(a):
        return function("added", a)

    return wrapper


@_adding
def wrapped(added, a):
    tasks.ran.append((added, a))


def no_context(a):
    return a


def ids_of(told):
    """Return the ids of the results that receivers of a signal were given."""
    return [given["task_result"].id for given in told]


# enqueue


def test_a_task_runs_with_its_arguments(ran):
    tasks.send_receipt.enqueue(7, copies=2)
    (message,) = work("emails")
    assert message.name == "tests.testapp.tasks.send_receipt"
    assert message.data == {"args": [7], "kwargs": {"copies": 2}}
    assert message.priority == 5
    assert ran == [(7, 2)]


def test_an_enqueued_task_is_ready():
    before = timezone.now() - timedelta(milliseconds=1)
    result = tasks.send_receipt.enqueue(7)
    assert result.status == READY
    assert before <= result.enqueued_at <= timezone.now()
    assert (result.args, result.kwargs, result.attempts, result.errors) == ([7], {}, 0, [])
    assert not result.is_finished
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value


def test_a_task_is_enqueued_and_looked_up_from_async_code():
    async def there_and_back():
        result = await tasks.send_receipt.aenqueue(7)
        found = await tasks.send_receipt.aget_result(result.id)
        work_off = sync_to_async(work)
        await work_off("emails")
        await found.arefresh()
        return found

    assert async_to_sync(there_and_back)().return_value == {"order": 7, "copies": 1}


def test_a_called_task_runs_here_and_now(ran):
    assert tasks.send_receipt.call(7) == {"order": 7, "copies": 1}
    # As without the decorator: 82 places of one project that moved here call tasks.
    assert tasks.send_receipt(7, copies=2) == {"order": 7, "copies": 2}
    assert asyncio.run(tasks.shout("hello")) == "HELLO"
    with pytest.raises(TypeError, match="order_id"):
        tasks.send_receipt()
    # A template must not call what it shows.
    shown = Template("{{ result.task.name }}").render(Context({"result": tasks.noop.enqueue()}))
    assert (shown, ran) == ("noop", [(7, 1), (7, 2), "HELLO"])


def test_what_other_queues_write_is_an_error_that_says_what_to_write(subtests):
    for name, said in [
        ("delay", r"^A task has no attribute 'delay': write task\.enqueue\(\.\.\.\)$"),
        ("apply_async", r"write task\.using\(delay=\.\.\., queue_name=\.\.\.\)\.enqueue\(\.\.\.\)$"),
        *((name, r"write chain\(\(task, ") for name in ("s", "si", "signature")),
        *((name, r"write task\.(using|enqueue|call)") for name in ("send", "send_with_options", "schedule", "fn")),
        ("nothing", "^A task has no attribute 'nothing'$"),
    ]:
        with subtests.test(name=name), pytest.raises(AttributeError, match=said):
            getattr(tasks.noop, name)
    assert not hasattr(tasks.noop, "delay")


def test_options_of_other_decorators_are_refused_with_ours(subtests):
    for options, said in [
        ({"bind": True}, r"'bind'\. Write @task\(takes_context=\.\.\.\)$"),
        ({"queue": "emails", "max_retries": 3}, r"Write @task\(queue_name=\.\.\., retry=\.\.\.\)$"),
        ({"acks_late": True}, "unexpected keyword argument 'acks_late'$"),
    ]:
        with subtests.test(options=options), pytest.raises(InvalidArguments, match=said):
            task(**options)


def test_options_among_the_arguments_are_told_from_wrong_arguments(subtests):
    for arguments, said in [
        ({"delay": 5}, r"unexpected keyword argument 'delay'\. Write task\.using\(delay=\.\.\.\)\.enqueue\(\.\.\.\)$"),
        ({"countdown": 5, "queue": "emails"}, r"Write task\.using\(delay=\.\.\., queue_name=\.\.\.\)"),
        ({"eta": 5}, r"Write task\.using\(run_after=\.\.\.\)"),
        ({"colour": 5}, "unexpected keyword argument 'colour'$"),
    ]:
        with subtests.test(arguments=arguments), pytest.raises(InvalidArguments, match=said):
            tasks.send_receipt.enqueue(7, **arguments)
    # It is a parameter of the function here.
    with pytest.raises(InvalidArguments, match=r"argument: 'other'$"):
        task(takes_delay).enqueue(delay=5)


def test_a_test_may_replace_a_method_of_a_task(subtests):
    path = "tests.testapp.tasks.send_receipt"
    for name in ("enqueue", "enqueue_many", "using"):
        with subtests.test(name=name):
            with mock.patch(f"{path}.{name}") as replaced:
                getattr(tasks.send_receipt, name)(7)
                replaced.assert_called_once_with(7)
            assert tasks.send_receipt.__dict__ == {}
    # What using() makes has the same replacement.
    with mock.patch.object(tasks.send_receipt, "enqueue") as enqueue:
        tasks.send_receipt.using(delay=5).enqueue(7)
    enqueue.assert_called_once_with(7)
    for option, change in [("priority", 5), ("timeout", 5), ("func", 5)]:
        with subtests.test(option=option), pytest.raises(FrozenInstanceError, match=f"^The {option} .* a test patches"):
            setattr(tasks.send_receipt, option, change)
        with subtests.test(option=option), pytest.raises(FrozenInstanceError):
            delattr(tasks.send_receipt, option)


def test_arguments_become_what_json_has():
    """Each alone has a form in JSON; together they were refused, or shown as they were given."""

    class Size(enum.StrEnum):
        LARGE = "L"

    day, number = date(2026, 1, 2), UUID(int=7)
    result = tasks.note.using(queue_name="emails").enqueue(
        b"ab", day, [Size.LARGE, range(2)], (1, (2,)), key=number, more={1: b"x"}
    )
    assert result.args == ["ab", "2026-01-02", ["L", [0, 1]], [1, [2]]]
    assert result.kwargs == {"key": str(number), "more": {"1": "x"}}
    assert not isinstance(result.args[2][0], Size)
    assert tasks.note.enqueue(bytearray(b"ab"), [memoryview(b"cd")], key={"é": bytearray()}).args == ["ab", ["cd"]]


def test_what_json_has_not_is_refused_and_nothing_is_written(redis_client, namespace, subtests):
    for argument, error in [
        *(({1, 2}, InvalidArguments), (Exception, InvalidArguments), (object(), InvalidArguments)),
        *((b"\xff", InvalidArguments), (float("nan"), InvalidArguments), ("\ud800", InvalidArguments)),
        *((bytearray(b"\xff"), InvalidArguments), (memoryview(b"\xff"), InvalidArguments)),
        ("x" * 300_000, MessageTooLarge),
    ]:
        with subtests.test(argument=argument):
            with pytest.raises(error):
                tasks.note.enqueue(argument)
            named = error is InvalidArguments
            with pytest.raises(
                error, match=r"^Task .*\.note cannot be enqueued with kwargs\['key'\]: " if named else "."
            ):
                tasks.note.enqueue(key=argument)
            assert list(redis_client.scan_iter(f"{namespace}:*")) == []


def test_an_argument_that_contains_itself_is_refused(subtests):
    for beside in [1, b"bytes"]:
        with subtests.test(beside=beside):
            argument = [beside]
            argument.append(argument)
            with pytest.raises((ValueError, InvalidArguments), match="with kwargs: a value is nested too deep"):
                tasks.note.enqueue(key=argument)


def test_arguments_that_the_function_does_not_take_are_refused(redis_client, namespace, subtests):
    for call, said in [
        (lambda: tasks.noop.enqueue(1), "too many positional arguments"),
        (tasks.send_receipt.enqueue, "missing a required argument: 'order_id'"),
        (lambda: tasks.send_receipt.enqueue(7, copy=2), "unexpected keyword argument 'copy'"),
        (lambda: tasks.send_receipt.enqueue(7, order_id=7), "multiple values for argument 'order_id'"),
        (lambda: tasks.context_of.enqueue("a", "b"), "too many positional arguments"),
        (tasks.context_of.enqueue, "missing a required argument: 'word'"),
        (tasks.shout.enqueue, "missing a required argument: 'text'"),
    ]:
        with subtests.test(call=call):
            for _ in range(2):
                with pytest.raises(
                    InvalidArguments, match=rf"^Task tests\.testapp\.tasks\.\w+ cannot be enqueued: .*{said}"
                ):
                    call()
            assert list(redis_client.scan_iter(f"{namespace}:*")) == []


def test_a_decorated_function_takes_what_its_wrapper_takes(ran):
    task(wrapped).enqueue(7)
    work("default")
    assert ran == [("added", 7)]


# transactions


@pytest.mark.django_db(transaction=True)
def test_inside_a_transaction_a_task_waits_for_the_commit(ran):
    with transaction.atomic():
        result = tasks.noop.enqueue()
        assert work("default") == []
        with pytest.raises(TaskResultDoesNotExist):
            tasks.noop.get_result(result.id)
    assert [message.id for message in work("default")] == [result.id]


@pytest.mark.django_db(transaction=True)
def test_the_backend_may_enqueue_at_once(plain):
    plain.TASKS = {"default": {**OURS["default"], "OPTIONS": {"ON_COMMIT": False}}}
    with transaction.atomic():
        plain_task(module_level).enqueue(1)
        assert len(work("default")) == 1


# using


def test_using_makes_another_task():
    changed = tasks.noop.using(priority=3, queue_name="emails")
    assert (changed.priority, changed.queue_name) == (3, "emails")
    assert (tasks.noop.priority, tasks.noop.queue_name) == (0, "default")
    assert changed.using(priority=4).queue_name == "emails"
    assert changed.func is tasks.noop.func


def test_an_option_that_does_not_exist_is_an_error_of_ours_that_says_what_to_write(subtests):
    for options, said in [
        ({"foo": 1}, "'foo'$"),
        ({"unknown": 1}, "'unknown'$"),
        ({"self_": 1, "key": "a"}, "'self_'$"),
        ({"countdown": 5}, r"'countdown'\. Write task\.using\(delay=\.\.\.\)\.enqueue\(\.\.\.\)$"),
        ({"eta": 5, "queue": "emails"}, r"'eta'\. Write task\.using\(run_after=\.\.\., queue_name=\.\.\.\)"),
        ({"time_limit": 5, "soft_time_limit": 4}, r"'time_limit'\. Write task\.using\(timeout=\.\.\.\)"),
        ({"max_retries": 5}, r"Write task\.using\(retry=\.\.\.\)"),
    ]:
        with subtests.test(options=options), pytest.raises(InvalidArguments, match=said) as raised:
            tasks.noop.using(**options)
        assert isinstance(raised.value, TypeError)
        assert str(raised.value).startswith("MQTask.using() got an unexpected keyword argument ")


@pytest.mark.usefixtures("mq_settings")
def test_an_option_that_publishing_does_not_have_is_the_same(mq_settings, subtests):
    mq_settings(QUEUES={"emails": {}}, TOPICS={"orders": {}})
    queue, topic = queues["emails"], topics["orders"]
    for name, call, options, said in [
        (
            "Queue.publish",
            functools.partial(queue.publish, "n", 1),
            {"countdown": 5},
            r"Write publish\(\.\.\., delay=\.\.\.\)$",
        ),
        (
            "Queue.publish",
            functools.partial(queue.publish, "n"),
            {"eta": 5, "task_id": 1},
            "deliver_at=..., message_id=...",
        ),
        ("Queue.publish", functools.partial(async_to_sync(queue.apublish), "n"), {"foo": 5}, "'foo'$"),
        ("Queue.publish_many", functools.partial(queue.publish_many, [("n", 1)]), {"run_at": 5}, "deliver_at="),
        ("Topic.publish", functools.partial(topic.publish, "n"), {"ttl": 5}, "expires="),
        ("Topic.publish", functools.partial(topic.publish, "n"), {"delay": 5}, "'delay'$"),
        ("Topic.publish_many", functools.partial(topic.publish_many, [("n", 1)]), {"countdown": 5}, "'countdown'$"),
    ]:
        with subtests.test(name, options=options), pytest.raises(InvalidArguments, match=said) as raised:
            call(**options)
        assert isinstance(raised.value, TypeError)
        assert str(raised.value).startswith(f"{name}() got an unexpected keyword argument ")


def test_a_task_waits_for_its_delay_or_run_after(ran):
    hour = timedelta(hours=1)
    tasks.noop.using(delay=hour).enqueue()
    tasks.noop.using(run_after=timezone.now() + hour).enqueue()
    assert work("default") == []
    due = [tasks.noop.using(delay=0).enqueue(), tasks.noop.using(run_after=timezone.now() - hour).enqueue()]
    assert {message.id for message in work("default")} == {result.id for result in due}


def test_delay_and_run_after_replace_each_other():
    moment = timezone.now() + timedelta(hours=1)
    delayed = tasks.noop.using(run_after=moment).using(delay=5)
    assert (delayed.run_after, delayed.publishing.delay) == (None, 5)
    deferred = delayed.using(run_after=moment)
    assert (deferred.run_after, deferred.publishing.delay) == (moment, None)
    with pytest.raises(InvalidMessage, match="not both"):
        tasks.noop.using(run_after=moment, delay=5)


def test_a_time_without_a_zone_is_the_projects(settings, redis_client, namespace):
    settings.USE_TZ = False
    settings.TIME_ZONE = "Asia/Tokyo"
    result = tasks.noop.using(run_after=datetime(2030, 1, 1, 9)).enqueue()  # noqa: DTZ001 - what is tried
    due = redis_client.zscore(f"{namespace}:{{default}}:due", result.id)
    assert due == datetime(2030, 1, 1, tzinfo=UTC).timestamp() * 1000


@pytest.mark.parametrize("use_tz", [True, False])
def test_a_result_with_a_time_on_the_last_day_can_be_read(settings, redis_client, namespace, use_tz):
    settings.USE_TZ = use_tz
    settings.TIME_ZONE = "Asia/Tokyo"
    result = tasks.noop.enqueue()
    key = f"{namespace}:{{default}}:result:{result.id}"
    redis_client.set(key, redis_client.get(key).replace(b'"due":null', b'"due":253402300799000'))
    assert tasks.noop.get_result(result.id).task.run_after.year == 9999


def test_a_unique_task_waits_once_and_keeps_the_last_arguments(ran):
    reminder = tasks.send_receipt.using(delay=3600, unique="receipt:7")
    first = reminder.enqueue(1)
    second = reminder.using(delay=0).enqueue(2)
    assert first.id != second.id
    assert [message.data["args"] for message in work("emails")] == [[2]]


@pytest.fixture
def announced():
    """What receivers of task_enqueued were given."""
    with hears(task_enqueued) as told:
        yield told


def test_a_unique_task_may_keep_the_first_and_answers_with_its_result(announced):
    reminder = tasks.send_receipt.using(delay=3600, unique="receipt:7", on_conflict="keep")
    first, second = reminder.enqueue(1, copies=3), reminder.enqueue(2)
    assert (second.id, second.args, second.kwargs) == (first.id, [1], {"copies": 3})
    assert second.enqueued_at == first.enqueued_at
    assert ids_of(announced) == [first.id]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("on_commit", [True, False])
@pytest.mark.parametrize("options", [{"delay": 3600}, {"unique_for": 3600}])
def test_a_task_that_was_not_enqueued_has_no_result(options, on_commit, redis_client, namespace, announced):
    keeping = tasks.note.using(unique="x", on_conflict="keep", on_commit=on_commit, **options)
    first = keeping.enqueue(1)
    with transaction.atomic():
        second = keeping.enqueue(2)
    prefix = f"{namespace}:{{default}}:result:"
    assert [*redis_client.scan_iter(f"{prefix}*")] == [f"{prefix}{first.id}".encode()]
    assert (second.id == first.id) is not on_commit
    # Before the commit nobody knows that the first one is kept.
    assert ids_of(announced) == ([first.id, second.id] if on_commit else [first.id])
    with pytest.raises(AlreadyPublished):
        keeping.using(on_conflict="error", on_commit=False).enqueue(3)
    assert len([*redis_client.scan_iter(f"{prefix}*")]) == 1


def test_a_task_that_a_full_queue_refuses_has_no_result(mq_settings, redis_client, namespace):
    mq_settings(QUEUES={"default": {"MAX_DEPTH": 1}})
    tasks.note.enqueue(1)
    with pytest.raises(QueueFull):
        tasks.note.enqueue_many([[2], [3]])
    assert len([*redis_client.scan_iter(f"{namespace}:{{default}}:result:*")]) == 1


def test_a_task_that_the_server_refuses_has_no_result(mq_settings, redis_client, namespace):
    mq_settings()
    redis_client.set(f"{namespace}:{{default}}:ready", "x")
    with pytest.raises(WrongKeyType):
        tasks.note.enqueue(1)
    assert [*redis_client.scan_iter(f"{namespace}:{{default}}:result:*")] == []


def test_a_kept_task_of_another_path_is_named():
    first = tasks.send_receipt.using(delay=3600, unique="x").enqueue(1)
    second = tasks.note.using(queue_name="emails", delay=3600, unique="x", on_conflict="keep").enqueue("a", "b")
    assert second.id == first.id
    assert second.task.func is tasks.send_receipt.func


def test_the_arguments_of_a_kept_task_without_a_result_are_known_only_while_it_waits(mq_settings):
    mq_settings(QUEUES={"default": {"RESULT_TTL": 0}})
    waiting = tasks.note.using(delay=3600, unique="x", on_conflict="keep")
    first, second = waiting.enqueue(1), waiting.enqueue(2)
    assert (second.id, second.args) == (first.id, [1])
    ready = tasks.note.using(unique="y", unique_for=3600, on_conflict="keep")
    first, second = ready.enqueue(1), ready.enqueue(2)
    assert (second.id, second.args, second.enqueued_at) == (first.id, [], None)


def test_a_task_that_is_cancelled_has_failed(redis_client, namespace, subtests):
    for names in [lambda result: {"message_id": result.id}, lambda result: {"unique": "x"}]:
        with subtests.test(names=names):
            result = tasks.noop.using(delay=3600, unique="x").enqueue()
            assert queues["default"].cancel(**names(result))
            result.refresh()
            assert result.status == FAILED
            assert (result.attempts, result.worker_ids, result.started_at) == (0, [], None)
            assert result.enqueued_at <= result.finished_at <= timezone.now()
            (error,) = result.errors
            assert error.exception_class is Cancelled
            assert (
                redis_client.pttl(f"{namespace}:{{default}}:result:{result.id}")
                <= get_config().queue("default").result_ttl.total_seconds() * 1000
            )


def test_a_task_that_is_cancelled_after_an_attempt_has_failed():
    result = tasks.fail.enqueue("broken pipe")
    work("default")
    assert queues["default"].cancel(result.id)
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == (FAILED, 1, 2)
    assert [error.exception_class for error in result.errors] == [tasks.Refused, Cancelled]
    assert result.last_attempted_at == result.started_at


def test_a_task_that_is_cancelled_by_its_consumer_has_failed(subtests):
    for outcome, micros, runs in [(CANCEL, 5000, 1), (Cancel("Cancelled before it started"), None, 0)]:
        with subtests.test(outcome=outcome):
            result = tasks.noop.enqueue()
            config = get_config().queue("default")
            store = open_store(config, Pooled(get_client("consume")))
            store.create_groups()
            (item,) = store.take("me", count=1)
            assert settle_for(store, "me", [Settlement(item, outcome, 0, micros, keeps_result=True)]) == []
            result.refresh()
            assert (result.status, result.attempts, result.worker_ids) == (FAILED, runs, ["me"] * runs)
            (error,) = result.errors
            assert (error.exception_class, error.traceback) == (Cancelled, outcome.error)


def test_a_task_that_is_replaced_has_failed():
    reminder = tasks.note.using(delay=3600, unique="x")
    first, second = reminder.enqueue(1), reminder.enqueue(2)
    first.refresh()
    second.refresh()
    assert (first.status, second.status) == (FAILED, READY)
    assert first.errors[0].traceback == "Replaced under its unique key"


def test_tasks_that_are_purged_have_failed():
    options = [{}, {"delay": 3600}, {"delay": 3600, "unique": "x"}, {"priority": 5}]
    results = [tasks.noop.using(**each).enqueue() for each in options]
    purge(get_config().queue("default"))
    for result in results:
        result.refresh()
        assert result.status == FAILED
        assert result.errors[0].exception_class is Cancelled


def test_a_cancelled_message_that_is_no_task_has_no_result(redis_client, namespace):
    message_id = queues["default"].publish("x", {}, delay=3600)
    assert queues["default"].cancel(message_id)
    assert list(redis_client.scan_iter(f"{namespace}:*:result:*")) == []


def test_a_result_that_cannot_be_written_does_not_undo_the_cancellation(redis_client, namespace, caplog):
    result = tasks.noop.using(delay=3600).enqueue()
    key = f"{namespace}:{{default}}:result:{result.id}"
    redis_client.delete(key)
    redis_client.hset(key, "a", "b")
    assert queues["default"].cancel(result.id)
    assert "stay READY" in caplog.text


# what makes no task


def test_a_priority_is_a_whole_number_from_minus_100_to_100(subtests):
    for priority in [-101, 101, 3.1, "x", True]:
        with subtests.test(priority=priority), pytest.raises(InvalidTask, match="priority must be"):
            tasks.noop.using(priority=priority)
    assert tasks.noop.using(priority=3).using(priority="low").priority == -10
    assert tasks.noop.using(priority=3).using(priority="normal").priority == 0
    assert task(priority="high")(module_level).priority == 10


def test_a_priority_may_be_one_of_integer_choices(plain):
    level = IntegerChoices("Level", [("SOON", 7)]).SOON
    for made in [
        tasks.noop.using(priority=level),
        task(priority=level)(module_level),
        plain_task(priority=level)(module_level),
    ]:
        assert made.enqueue().task.priority == 7
    message_id = queues["default"].publish("welcome", 1, priority=level, delay=60)
    assert queues["default"].find(message_id).message.priority == 7


def test_the_queue_must_be_configured(plain):
    queues_of_settings = r'MQ_DJANGO\["QUEUES"\] has default, emails'
    with pytest.raises(InvalidTask, match=rf"^Queue 'sms' is not valid for backend\. {queues_of_settings}"):
        tasks.noop.using(queue_name="sms").enqueue()
    with pytest.raises(InvalidTask, match=r"A dot is for partitions: write 'mail-out'\.$"):
        tasks.noop.using(queue_name="mail.out").enqueue()
    with pytest.raises(InvalidTask, match="not valid for backend"):
        tasks.noop.using(queue_name=["emails"])
    with pytest.raises(InvalidTask, match="not valid for backend"):
        plain_task(queue_name="sms")(module_level)


def test_the_queue_must_be_one_of_the_backends(plain):
    plain.TASKS = {"default": {**OURS["default"], "QUEUES": ["emails"]}}
    with pytest.raises(
        InvalidTask, match=r"^Queue 'default' is not valid for backend\. TASKS\['default'\]\['QUEUES'\] has emails\.$"
    ):
        plain_task(module_level)


def test_what_is_refused_is_said_in_djangos_words(plain, subtests):
    """As Django's own tests of its backends look for it."""
    task = plain_task(module_level)
    for change, said in [
        (lambda: task.using(priority=-101), "priority must be a whole number between -100 and 100."),
        (lambda: plain_task(priority="high")(module_level), "priority must be a whole number between -100 and 100."),
        (lambda: plain_task(priority="urgent")(module_level), "is not; mq_django.task and using() also take high"),
        (lambda: task.using(queue_name="queue-2"), "Queue 'queue-2' is not valid for backend."),
        (lambda: task.using(run_after=datetime(2100, 1, 1)), "run_after must be an aware datetime."),  # noqa: DTZ001
        (lambda: plain_task(any), "Task function must be defined at a module level."),
        (
            lambda: plain_task(takes_context=True)(no_context),
            "Task takes context but does not have a first argument of 'context'.",
        ),
    ]:
        with subtests.test(said=said), pytest.raises(InvalidTask, match=re.escape(said)):
            change()
    failed = AttemptError(exception_class_path="subprocess.run", traceback="")
    with pytest.raises(ValueError, match=r"^'subprocess\.run' does not reference a valid exception\.$"):
        _ = failed.exception_class


def test_wrong_settings_do_not_keep_a_module_from_being_imported(mq_settings):
    mq_settings(NAMESPACE="")
    made = task(module_level)
    with pytest.raises(ConfigurationError):
        made.enqueue()


def test_only_a_function_of_a_module_is_a_task(subtests):
    for function in ["text", any, MQTask, tasks.noop.enqueue, lambda: None]:
        said = rf"module level\. {re.escape(repr_of(function))} is not: .*functools\.wraps\(\).*queue_name="
        with subtests.test(function=function), pytest.raises(InvalidTask, match=said):
            task(function)


def test_ours_is_ours_whatever_tasks_says(settings):
    settings.TASKS = {"default": {"BACKEND": "nowhere.Backend"}}
    assert isinstance(task(module_level).get_backend(), MQBackend)
    assert tasks.noop.enqueue().backend == "mq_django"


@pytest.mark.skipif(django.VERSION < (6, 1), reason="tasks of Django 6.1 can be pickled")
def test_a_task_can_be_pickled():
    delayed = tasks.send_receipt.using(delay=5, unique="x")
    again = pickle.loads(pickle.dumps(delayed))
    assert again == delayed
    assert again.publishing == delayed.publishing


# the consumers' side


def test_a_task_is_registered_when_it_is_made():
    handler = find("emails", "tests.testapp.tasks.send_receipt")
    assert handler.retry == RetryPolicy(max_attempts=2)
    assert handler.timeout == timedelta(seconds=30)
    assert handler.keeps_result
    assert not handler.is_async
    assert find("default", "tests.testapp.tasks.shout").is_async


def test_data_that_are_no_arguments_are_buried(ran, redis_client, namespace):
    wrong = [None, [], {"args": 1, "kwargs": {}}, {"args": []}, {"args": [], "kwargs": []}]
    queues["default"].publish_many([("tests.testapp.tasks.noop", data) for data in wrong])
    work("default")
    assert ran == []
    assert redis_client.xlen(f"{namespace}:{{default}}:dead") == len(wrong)


def test_a_context_tells_the_attempt(ran):
    result = tasks.context_of.enqueue("hi")
    work("default")
    assert ran == [(1, "hi", TaskResultStatus.RUNNING)]
    assert tasks.context_of.get_result(result.id).return_value == [1, "hi"]


# results


def test_the_result_of_a_task_that_ran():
    enqueued = tasks.send_receipt.enqueue(7)
    work("emails")
    result = tasks.send_receipt.get_result(enqueued.id)
    assert result.status == SUCCESSFUL
    assert result.is_finished
    assert result.return_value == {"order": 7, "copies": 1}
    assert result.task == tasks.send_receipt
    assert (result.args, result.kwargs, result.errors) == ([7], {}, [])
    assert (result.attempts, result.worker_ids) == (1, ["the-test"])
    assert result.enqueued_at == enqueued.enqueued_at
    assert result.enqueued_at - timedelta(milliseconds=5) <= result.started_at <= result.finished_at
    assert result.last_attempted_at == result.started_at
    enqueued.refresh()
    assert enqueued.status == SUCCESSFUL
    assert enqueued.return_value == {"order": 7, "copies": 1}


def test_a_result_tells_how_it_was_enqueued():
    moment = timezone.now().replace(microsecond=0) + timedelta(hours=1)
    enqueued = tasks.noop.using(queue_name="emails", priority=-3, run_after=moment).enqueue()
    found = tasks.noop.get_result(enqueued.id).task
    assert (found.queue_name, found.priority, found.run_after) == ("emails", -3, moment)


def test_a_task_of_another_backend_can_be_enqueued_here(settings):
    settings.TASKS = {"default": {"BACKEND": DUMMY}}
    made = plain_task(module_level_too)
    settings.TASKS = OURS
    result = made.enqueue(5)
    work("default")
    result.refresh()
    assert result.return_value == 5


def test_a_result_of_nothing_does_not_exist():
    for wrong in ("", "none", "x" * 1000, "a b\nc", None, 7):
        with pytest.raises(TaskResultDoesNotExist):
            tasks.noop.get_result(wrong)


def test_a_result_of_another_task_does_not_match():
    result = tasks.noop.enqueue()
    with pytest.raises(TaskResultMismatch):
        tasks.send_receipt.get_result(result.id)


def test_a_key_that_holds_something_else_is_no_result(redis_client, namespace, subtests):
    for kept in [b"", b"x", b"[]", b'{"name":1}', b'{"name":"os.system","queue":"default"}']:
        with subtests.test(kept=kept):
            redis_client.set(f"{namespace}:{{default}}:result:abc", kept)
            with pytest.raises(TaskResultDoesNotExist):
                tasks.noop.get_result("abc")


def test_a_task_that_fails_is_ready_again_and_then_failed(redis_client, namespace, finished):
    enqueued = tasks.fail.enqueue("broken pipe")
    work("default")
    result = tasks.fail.get_result(enqueued.id)
    assert (result.status, result.attempts) == (READY, 1)
    assert result.errors[0].exception_class is tasks.Refused
    assert "broken pipe" in result.errors[0].traceback
    assert result.finished_at is None
    # Receivers are told only of the last attempt, with its error.
    assert finished == []

    redis_client.zadd(f"{namespace}:{{default}}:due", {enqueued.id: 0})
    work("default")
    result = tasks.fail.get_result(enqueued.id)
    assert (result.status, result.attempts, len(result.errors)) == (FAILED, 2, 2)
    assert result.started_at <= result.last_attempted_at <= result.finished_at
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value
    (told,) = finished
    (error,) = told["task_result"].errors
    assert (told["task_result"].status, error.exception_class) == (FAILED, tasks.Refused)
    assert "broken pipe" in error.traceback


def test_a_task_that_is_running_says_so_and_since_when(redis_client, namespace):
    enqueued = tasks.fail.enqueue("broken pipe")
    work("default")
    first = tasks.fail.get_result(enqueued.id)
    redis_client.zadd(f"{namespace}:{{default}}:due", {enqueued.id: 0})
    redis_client.hset(f"{namespace}:{{default}}:consumers", "consumer:c2", "{}")
    config, transport = get_config().queue("default"), Pooled(redis_client)
    store = open_store(config, transport)
    store.promote(limit=1)
    (delivery,) = store.take("c2", count=1)
    note_running(transport, config, "c2", [RunningTask(delivery, 1_800_000_000_000)])
    enqueued.refresh()
    assert (enqueued.status, enqueued.is_finished, enqueued.attempts) == (TaskResultStatus.RUNNING, False, 2)
    assert (enqueued.started_at, enqueued.finished_at) == (first.started_at, None)
    assert enqueued.last_attempted_at == datetime(2027, 1, 15, 8, tzinfo=UTC)
    assert enqueued.worker_ids == [*first.worker_ids, "c2"]
    assert [each.exception_class for each in enqueued.errors] == [tasks.Refused]
    with pytest.raises(ValueError, match="not finished"):
        _ = enqueued.return_value
    assert get_result(enqueued.id).status == TaskResultStatus.RUNNING


def test_a_task_that_recovers_is_successful_with_its_errors(redis_client, namespace):
    enqueued = tasks.third_time_lucky.enqueue()
    for _ in range(3):
        work("default")
        redis_client.zadd(f"{namespace}:{{default}}:due", {enqueued.id: 0}, xx=True)
    result = tasks.third_time_lucky.get_result(enqueued.id)
    assert (result.status, result.attempts, result.return_value) == (SUCCESSFUL, 3, "lucky")
    assert [error.exception_class for error in result.errors] == [ValueError, ValueError]


def test_an_exception_that_redis_names_is_looked_up_and_never_imported(redis_client, namespace, subtests):
    for path, error in [
        *(("tests.example_imports.Marked", ImportError), ("os.system", ValueError), ("os.path", ValueError)),
        *(("nowhere.Nothing", ImportError), ("Unheard", ImportError), ("mq_django.core", ValueError)),
    ]:
        with subtests.test(path=path):
            enqueued = tasks.refuse.enqueue()
            work("default")
            key = f"{namespace}:{{default}}:result:{enqueued.id}"
            redis_client.set(key, redis_client.get(key).replace(b"tests.testapp.tasks.Refused", path.encode()))
            result = tasks.refuse.get_result(enqueued.id)
            (failed,), before = result.errors, set(sys.modules)
            with pytest.raises(error):
                _ = failed.exception_class
            assert set(sys.modules) == before


def test_a_value_that_cannot_be_kept_fails_without_running_again(subtests):
    kinds = [("set", TypeError), ("nan", InvalidMessage), ("deep", InvalidMessage), ("long", MessageTooLarge)]
    for kind, error in kinds:
        with subtests.test(kind=kind):
            enqueued = tasks.give_back.enqueue(kind)
            work("default")
            result = tasks.give_back.get_result(enqueued.id)
            assert (result.status, result.attempts) == (FAILED, 1)
            assert result.errors[0].exception_class is error
            assert ": The task " in result.errors[0].traceback  # has run, and returned what cannot be kept


def test_a_value_is_kept_as_json_has_it():
    enqueued = tasks.give_back.enqueue("tuple")
    nothing = tasks.give_back.enqueue("none")
    work("default")
    assert tasks.give_back.get_result(enqueued.id).return_value == [1, [2, 3]]
    assert tasks.give_back.get_result(nothing.id).return_value is None


def test_a_task_may_return_an_outcome():
    again = tasks.give_back.enqueue("retry")
    enough = tasks.give_back.enqueue("bury")
    work("default")
    assert tasks.give_back.get_result(again.id).status == READY
    result = tasks.give_back.get_result(enough.id)
    assert result.status == FAILED
    assert result.errors[0].traceback == "no use"


@pytest.mark.parametrize(("kind", "attempts"), [("retry without an error", 2), ("bury without an error", 1)])
def test_each_attempt_that_has_failed_has_an_error_even_if_the_task_gave_none(
    mq_settings, redis_client, namespace, finished, kind, attempts
):
    mq_settings(QUEUES={"default": {"MAX_ATTEMPTS": 2}})
    enqueued = tasks.give_back.enqueue(kind)
    for _ in range(attempts):
        work("default")
        redis_client.zadd(f"{namespace}:{{default}}:due", {enqueued.id: 0}, xx=True)
    (told,), stored = finished, tasks.give_back.get_result(enqueued.id)
    for result, count in ((told["task_result"], 1), (stored, attempts)):
        assert result.status == FAILED
        assert [(error.exception_class, error.traceback) for error in result.errors] == [
            (Exception, "ended by a Retry or Bury without an error")
        ] * count


def test_a_result_is_kept_for_the_queues_result_ttl(mq_settings, redis_client, namespace):
    mq_settings(QUEUES={"default": {"RESULT_TTL": 60}})
    result = tasks.noop.enqueue()
    work("default")
    assert 0 < redis_client.pttl(f"{namespace}:{{default}}:result:{result.id}") <= 60_000


def test_a_queue_without_results_keeps_none(mq_settings, redis_client, namespace):
    mq_settings(QUEUES={"default": {"RESULT_TTL": 0}})
    result = tasks.give_back.enqueue("set")
    work("default")
    assert list(redis_client.scan_iter(f"{namespace}:*:result:*")) == []
    assert redis_client.xlen(f"{namespace}:{{default}}:dead") == 0
    with pytest.raises(TaskResultDoesNotExist):
        tasks.noop.get_result(result.id)


def test_a_task_published_by_another_program_has_a_result(redis_client, namespace):
    message_id = queues["default"].publish("tests.testapp.tasks.noop", {"args": [], "kwargs": {}})
    with pytest.raises(TaskResultDoesNotExist):
        tasks.noop.get_result(message_id)
    work("default")
    assert tasks.noop.get_result(message_id).status == SUCCESSFUL


# Django's own tasks, on our backend


def test_plain_tasks_run(plain):
    results = [plain_task(module_level).enqueue(1, b=2), plain_task(module_level_async).enqueue("a")]
    work("default")
    for result in results:
        result.refresh()
    assert [(result.return_value, result.backend) for result in results] == [([1, 2], "default"), ("a", "default")]


def test_a_plain_task_takes_our_options(plain):
    made = plain_task(module_level)
    assert isinstance(made, MQTask)
    made.using(delay=3600, unique="x").enqueue()
    assert work("default") == []


def test_a_backend_says_what_it_can(plain):
    backend = task_backends["default"]
    assert backend.supports_defer
    assert backend.supports_async_task
    assert backend.supports_get_result
    assert backend.supports_priority
    assert backend.get_result(plain_task(module_level).enqueue().id).status == READY


def test_signals_and_logs_are_as_with_djangos_own_backends(plain, caplog):
    caplog.set_level(logging.DEBUG, logger=LOGGER)
    with hears(task_enqueued, task_started, task_finished) as told:
        result = plain_task(module_level).enqueue()
        work("default")
    statuses = [TaskResultStatus.READY, TaskResultStatus.RUNNING, TaskResultStatus.SUCCESSFUL]
    assert [(given["sender"], given["task_result"].status, given["task_result"].id) for given in told] == [
        (MQBackend, status, result.id) for status in statuses
    ]
    lines = [(r.levelno, r.getMessage()) for r in caplog.records if r.name == LOGGER]
    path = f"id={result.id} path={__name__}.module_level"
    assert lines == [
        (logging.DEBUG, f"Task {path} enqueued backend=default"),
        (logging.INFO, f"Task {path} state=RUNNING"),
        (logging.INFO, f"Task {path} state=SUCCESSFUL"),
    ]


def test_a_failure_is_one_error_once_it_is_final(caplog, redis_client, namespace):
    caplog.set_level(logging.INFO)

    def alarms():
        return [record for record in caplog.records if record.levelno > logging.INFO]

    enqueued = tasks.fail.enqueue("broken pipe")
    work("default")
    (line,) = alarms()
    assert (line.levelno, line.exc_info[0], line.attempt) == (logging.WARNING, tasks.Refused, 1)
    caplog.clear()
    redis_client.zadd(f"{namespace}:{{default}}:due", {enqueued.id: 0})
    work("default")
    (line,) = alarms()
    assert (line.levelno, line.exc_info[0]) == (logging.ERROR, tasks.Refused)
    assert (line.queue, line.message_id, line.attempt) == ("default", enqueued.id, 2)
    assert line.handler == "tests.testapp.tasks.fail"
    assert caplog.messages[-1] == f"Task id={enqueued.id} path=tests.testapp.tasks.fail state=FAILED"


@pytest.mark.parametrize("returned", ["bury", "set"])
def test_a_burial_without_an_exception_is_one_error_without_a_traceback(caplog, returned):
    caplog.set_level(logging.INFO)
    enqueued = tasks.give_back.enqueue(returned)
    work("default")
    (line,) = [record for record in caplog.records if record.levelno > logging.INFO]
    assert (line.levelno, line.message_id) == (logging.ERROR, enqueued.id)
    assert "NoneType: None" not in caplog.text
    assert caplog.messages[-1].endswith("state=FAILED")


def test_a_logger_that_logs_errors_only_hears_of_no_failure_twice(caplog):
    caplog.set_level(logging.ERROR, logger=LOGGER)
    tasks.refuse.enqueue()
    work("default")
    assert [record.levelno for record in caplog.records if record.name == LOGGER] == []


@pytest.fixture
def finished():
    """What receivers of task_finished were given."""
    with hears(task_finished) as told:
        yield told


@pytest.mark.parametrize("expired", ["discard", "bury"])
def test_a_task_that_has_expired_does_not_run_and_has_finished(finished, mq_settings, ran, expired):
    mq_settings(QUEUES={"default": {"ON_EXPIRE": expired}})
    enqueued = tasks.noop.using(expires=timezone.now() - timedelta(seconds=1)).enqueue()
    work("default")
    (told,) = finished
    for result in (told["task_result"], tasks.noop.get_result(enqueued.id)):
        assert (result.status, [error.exception_class for error in result.errors]) == (FAILED, [MessageExpired])
    assert ran == []


def test_a_task_whose_process_died_at_its_last_attempt_has_finished(finished):
    store = open_store(get_config().queue("default"), Pooled(get_client("chores")))
    store.create_groups()
    enqueued = tasks.fail.enqueue("never runs")
    (delivery,) = store.take("dead", count=1)
    last = delivery._replace(message=delivery.message._replace(attempt=2))
    killed = Evidence(running=[Receipt.of(0, delivery.stream, delivery.entry)])
    settle_for(store, "dead", [settlement(store.config, 0, last, killed)])
    result = finished[0]["task_result"]
    assert ids_of(finished) == [enqueued.id]
    assert (result.id, result.status) == (enqueued.id, TaskResultStatus.FAILED)
    assert result.errors[0].traceback == "running when its process died"


class Unusable(logging.Handler):
    """As of a project whose filter reads `record.request`."""

    def filter(self, record):
        raise AttributeError("request")


@contextmanager
def unusable_logging():
    root, level, logger = logging.getLogger(), logging.getLogger(LOGGER).level, logging.getLogger(LOGGER)
    unusable = Unusable()
    root.addHandler(unusable)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.removeHandler(unusable)
        logger.setLevel(level)


#: What a project may do wrong around a task.
AROUND = {
    f"{error.__name__} of a receiver of {name}": functools.partial(hears, signal, raises=error("not our problem"))
    for error in (RuntimeError, SystemExit)
    for name, signal in (("enqueued", task_enqueued), ("started", task_started), ("finished", task_finished))
}


@pytest.mark.parametrize("around", [*AROUND.values(), unusable_logging], ids=[*AROUND, "logging"])
def test_no_receiver_and_no_logging_changes_what_happens_to_a_task(around, caplog):
    with around():
        results = [tasks.noop.enqueue(), tasks.shout.enqueue("x"), tasks.refuse.enqueue()]
        work("default")
    for result in results:
        result.refresh()
    assert [result.status for result in results] == [SUCCESSFUL, SUCCESSFUL, FAILED]
    assert [[error.exception_class for error in result.errors] for result in results] == [[], [], [tasks.Refused]]
    assert "A receiver of a signal failed" in caplog.text or "Error calling" in caplog.text


@pytest.mark.parametrize("task", [tasks.noop, tasks.shout])
def test_a_timeout_while_a_receiver_runs_is_that_of_the_task(task):
    with hears(task_started, raises=HandlerTimeout("late")):
        enqueued = task.enqueue(*(["x"] if task is tasks.shout else []))
        work("default")
    enqueued.refresh()
    assert [error.exception_class for error in enqueued.errors] == [HandlerTimeout]


@pytest.mark.django_db(transaction=True)
def test_what_a_rollback_takes_back_is_not_announced():
    with hears(task_enqueued) as told:
        with transaction.atomic():
            tasks.noop.enqueue()
            transaction.set_rollback(True)
        with transaction.atomic():
            result = tasks.noop.enqueue()
            assert told == []
        assert [given["task_result"].id for given in told] == [result.id]


@pytest.mark.django_db(transaction=True)
def test_a_receiver_that_fails_after_the_commit_is_logged_and_keeps_nothing_back(caplog):
    seen = []

    with hears(task_enqueued, raises=RuntimeError("no")), transaction.atomic():
        tasks.noop.enqueue()
        transaction.on_commit(lambda: seen.append("later"))
    assert seen == ["later"]
    assert "Error calling hears.<locals>.receiver" in caplog.text
    assert len(work("default")) == 1


# in a consumer


@pytest.mark.django_db(transaction=True)
def test_a_consumer_runs_tasks_in_threads_and_on_its_loop(ran):
    shared_state = SharedState.create(slots(2))
    consumer = Consumer("c1", [get_config().queue("default")], threads=2, shared_state=shared_state)
    consumer.start()
    try:
        results = [tasks.shout.enqueue("hello"), tasks.give_back.enqueue("tuple"), tasks.sleep_long.enqueue()]
        for result in results:
            wait_until(lambda result=result: task_ended(result))
    finally:
        assert consumer.stop(Grace(5))
        shared_state.close()
    shouted, given, slept = results
    assert (shouted.return_value, shouted.worker_ids) == ("HELLO", ["c1"])
    assert given.return_value == [1, [2, 3]]
    assert slept.errors[0].exception_class is HandlerTimeout


def task_ended(result):
    """Look the result up, and tell whether an attempt has ended."""
    result.refresh()
    return result.attempts > 0


# checks


def messages(settings, **backend):
    settings.TASKS = {"default": {**OURS["default"], **backend}}
    return list(task_backends["default"].check())


def test_what_is_wrong_with_the_backend_is_named(settings):
    for backend, ids, said in [
        ({"OPTIONS": {"ON_COMMIT": False}}, [], ""),
        ({"OPTIONS": {"ON_COMIT": 1, "ON_COMMIT": "yes"}}, ["mq_django.E006"] * 2, "ON_COMIT"),
        ({"QUEUES": ["default", "sms"]}, ["mq_django.E007"], "sms"),
    ]:
        found = messages(settings, **backend)
        assert [problem.id for problem in found] == ids
        assert said in "".join(problem.msg for problem in found[:1])


@pytest.mark.skipif(django.VERSION < (6, 0), reason="the check belongs to Django 6.0")
def test_djangos_check_asks_the_backend(settings):
    settings.TASKS = {"default": {**OURS["default"], "QUEUES": ["sms"]}}
    assert "mq_django.E007" in [problem.id for problem in run_checks()]
