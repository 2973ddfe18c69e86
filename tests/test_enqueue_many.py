import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from mq_django import aenqueue_many, enqueue_many, queues
from mq_django.errors import InvalidArguments, InvalidMessage, MessageTooLarge
from mq_django.task_backend.compat import TaskResultStatus, task_enqueued
from mq_django.transport.sessions import Pooled
from tests.hearing import hears
from tests.task_api import IMMEDIATE, plain_task
from tests.testapp import tasks
from tests.working import work

pytestmark = pytest.mark.versions


@pytest.fixture(autouse=True)
def ran(mq_settings):
    tasks.ran.clear()
    return tasks.ran


def double(number, *, times=2):
    return number * times


def test_each_call_has_a_result_in_the_order_of_the_calls(ran):
    results = tasks.send_receipt.enqueue_many([[7], (8,), {"order_id": 9, "copies": 2}])
    assert [(result.args, result.kwargs) for result in results] == [
        ([7], {}),
        ([8], {}),
        ([], {"order_id": 9, "copies": 2}),
    ]
    assert len(work("emails")) == 3
    assert sorted(ran) == [(7, 1), (8, 1), (9, 2)]
    for result in results:
        result.refresh()
        assert result.status == TaskResultStatus.SUCCESSFUL
    assert results[2].return_value == {"order": 9, "copies": 2}


def test_a_thousand_are_one_round_trip(monkeypatch):
    seen, pipeline = [], Pooled.pipeline

    def counted(self, commands, **options):
        seen.append(len(commands))
        return pipeline(self, commands, **options)

    monkeypatch.setattr(Pooled, "pipeline", counted)
    tasks.note.enqueue_many([number] for number in range(1000))
    assert seen == [1001]  # the results, and the messages


def test_options_apply_to_all():
    delayed = tasks.note.using(delay=3600, key="order:7", priority=3).enqueue_many([[1], [2]])
    for result in delayed:
        message = queues["default"].find(result.id).message
        assert (message.key, message.priority) == ("order:7", 3)


def test_all_are_checked_before_the_first_is_sent(redis_client, namespace, subtests):
    for calls, error in [
        *(([[7], []], InvalidArguments), ([[7], {"copies": 2}], InvalidArguments), ([7], InvalidArguments)),
        *((["seven"], InvalidArguments), ([[7], [object()]], InvalidArguments)),
        ([[7], ["x" * 300_000]], MessageTooLarge),
    ]:
        with subtests.test(calls=calls):
            with pytest.raises(error):
                tasks.send_receipt.enqueue_many(calls)
            assert list(redis_client.scan_iter(f"{namespace}:*")) == []


def test_a_unique_key_is_for_one_message():
    with pytest.raises(InvalidMessage, match="unique="):
        tasks.note.using(unique="x", delay=5).enqueue_many([[1]])


def test_what_is_no_task_is_refused(subtests):
    for value in [print, None, "tests.testapp.tasks.note"]:
        with subtests.test(value=value), pytest.raises(InvalidArguments, match=r"^enqueue_many\(\) takes a task"):
            enqueue_many(value, [[1]])


@pytest.mark.django_db(transaction=True)
def test_inside_a_transaction_they_wait_for_the_commit():
    with hears(task_enqueued) as told:
        with transaction.atomic():
            tasks.note.enqueue_many([[1], [2]])
            transaction.set_rollback(True)
        assert work("default") == []
        with transaction.atomic():
            results = tasks.note.enqueue_many([[1], [2]])
            assert work("default") == []
            assert told == []
    assert [given["task_result"].id for given in told] == [result.id for result in results]
    assert len(work("default")) == 2


def test_from_async_code():
    results = async_to_sync(tasks.note.aenqueue_many)([[1], [2]])
    results += async_to_sync(aenqueue_many)(tasks.note, [[3]])
    assert [message.id for message in work("default")] == [result.id for result in results]


def test_a_plain_task_of_our_backend(settings):
    settings.TASKS = {"default": {"BACKEND": "mq_django.task_backend.MQBackend"}}
    made = plain_task(double)
    results = enqueue_many(made, [[1], {"number": 2, "times": 3}])
    work("default")
    assert [made.get_result(result.id).return_value for result in results] == [2, 6]


def test_a_task_of_another_backend_is_enqueued_one_by_one(settings):
    settings.TASKS = {"default": {"BACKEND": IMMEDIATE}}
    results = enqueue_many(plain_task(double), [[1], {"number": 2, "times": 3}])
    assert [result.return_value for result in results] == [2, 6]
