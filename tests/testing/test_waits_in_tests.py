import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from mq_django import as_completed, await_, wait
from mq_django.errors import CannotWait, WaitTimeout
from mq_django.testing import MQ
from mq_django.transport import test_mode
from tests.testapp import tasks


def test_code_that_waits_for_a_result_gets_it(mq):
    assert wait(tasks.shout.enqueue("hello"), timeout=60).return_value == "HELLO"
    assert [each.return_value for each in as_completed([tasks.shout.enqueue("a").id], timeout=60)] == ["A"]


def test_code_that_awaits_a_result_gets_it(mq):
    result = tasks.shout.enqueue("hello")
    assert async_to_sync(await_)(result, timeout=60).return_value == "HELLO"


def test_a_delayed_task_is_a_timeout_at_once(mq):
    result = tasks.shout.using(delay=10).enqueue("hello")
    with pytest.raises(WaitTimeout, match=r"it is not ready, and in a test .* mq\.advance\(\)"):
        wait(result, timeout=60)
    mq.advance(seconds=10)
    assert wait(result, timeout=60).return_value == "HELLO"


@pytest.mark.django_db
def test_the_transaction_of_a_test_must_commit_before(mq):
    with transaction.atomic():
        result = tasks.shout.enqueue("hello")
        with pytest.raises(CannotWait, match=r"call mq\.commit\(\)"):
            wait(result, timeout=60)
        mq.commit()
        assert wait(result, timeout=60).return_value == "HELLO"


def test_waits_are_as_usual_after_the_test():
    mq = MQ()
    mq.start()
    mq.stop()
    assert test_mode.handle_ready is None
