"""The headers, the timeout and the retry policy of one call of a task."""

import json
from datetime import timedelta

import pytest

from mq_django import Message, RetryPolicy
from mq_django.conf import get_config
from mq_django.consumers.decisions import Evidence, settlement
from mq_django.consumers.shared_state import Receipt
from mq_django.core.messages import Bury, Delivery, Retry
from mq_django.errors import ConfigurationError, InvalidMessage
from mq_django.registry import Handler, find, of_call
from mq_django.workflows import chain
from tests.consumers.rig import Rig
from tests.testapp import tasks
from tests.working import take, work

pytestmark = pytest.mark.versions
POLICY = RetryPolicy(max_attempts=7, delay=0.5, factor=3, max_delay=90, jitter=0, bury_on=(tasks.Refused, KeyError))


class Cautious(RetryPolicy):
    """What no message can carry."""


@pytest.fixture(autouse=True)
def _settings(mq_settings):
    """Each test has a server."""


def handler_for(message):
    return of_call(find(message.queue, message.name), message)


def test_a_call_has_its_own_timeout_retry_policy_and_headers():
    plain = tasks.fail.enqueue("x")
    called = tasks.fail.using(timeout=2.5, headers={"tenant": "north"}).using(retry=POLICY)
    called.enqueue("x")
    called.using(headers={"tenant": "south"}).enqueue_many([["x"]])
    messages = {message.headers.get("tenant"): message for message in take("default")}
    assert sorted(messages, key=str) == [None, "north", "south"]
    # A message of any other call carries nothing.
    assert (messages[None].id, dict(messages[None].headers)) == (plain.id, {})
    assert handler_for(messages[None]) is find("default", tasks.fail.module_path)
    for tenant in ("north", "south"):
        found = handler_for(messages[tenant])
        assert (found.timeout, found.retry) == (timedelta(seconds=2.5), POLICY)
    assert (called.timeout, called.retry, tasks.fail.timeout) == (timedelta(seconds=2.5), POLICY, None)


def test_a_consumer_starts_each_call_with_its_own(monkeypatch):
    rig, given = Rig(threads=1), []
    monkeypatch.setattr(rig.threads, "put", given.append)
    name, long = tasks.noop.module_path, {"mqtimeout": "2500"}
    rig.dispatcher.remember(name, find("default", name))
    calls = [Message(str(n), name, None, "default", headers=headers) for n, headers in enumerate([{}, long, {}, long])]
    rig.dispatcher.dispatch([Delivery(call, 0, call.id.encode(), b"null") for call in calls])
    assert [job.path.handler.timeout for job in given] == [None, timedelta(seconds=2.5)] * 2
    rig.close()


def test_the_policy_of_the_call_decides():
    once = tasks.fail.using(retry=RetryPolicy(max_attempts=1)).enqueue("x")
    refused = tasks.fail.using(retry=RetryPolicy(bury_on=(tasks.Refused,))).enqueue("x")
    usual = tasks.fail.enqueue("x")
    work("default")
    for result in (once, refused, usual):
        result.refresh()
    assert [str(result.status) for result in (once, refused, usual)] == ["FAILED", "FAILED", "READY"]


def test_the_policy_of_the_call_also_decides_for_a_consumer_that_died():
    evidence = Evidence(running=[Receipt.of(0, 0, b"1-0")])
    for policy, kind in [(RetryPolicy(max_attempts=1), Bury), (None, Retry)]:
        tasks.fail.using(retry=policy).enqueue("x")
        (message,) = take("default")
        found = settlement(get_config().queue("default"), 0, Delivery(message, 0, b"1-0", b"{}"), evidence)
        assert type(found.outcome) is kind


def test_a_step_of_a_workflow_carries_them_too():
    chain(tasks.noop.using(timeout=2, headers={"tenant": "north"})).start()
    (message,) = take("default")
    assert (handler_for(message).timeout, message.headers["tenant"]) == (timedelta(seconds=2), "north")


def test_what_cannot_be_carried_is_refused_at_once(subtests):
    for options, error in [
        *(({"timeout": value}, ConfigurationError) for value in (0, -1, "x", timedelta.max)),
        *(({"retry": value}, ConfigurationError) for value in ({"delay": 1}, 3, Cautious())),
        ({"retry": RetryPolicy(bury_on=[KeyError] * 1000)}, ConfigurationError),
        *(({"headers": value}, InvalidMessage) for value in ({"Tenant": "x"}, {"id": "x"}, {"tenant": 7}, "x")),
    ]:
        with subtests.test(options=options), pytest.raises(error):
            tasks.noop.using(**options)


def test_what_another_program_has_written_is_bounded_and_ignored(caplog, subtests):
    path, data = tasks.noop.module_path, {"args": [], "kwargs": {}}
    usual = find("default", path)
    for name, text in [
        *(("mqtimeout", text) for text in ("", "0", "-1", "x", "1e3", "٣", "9" * 5000)),
        *(("mqretry", text) for text in ("", "[]", "7", "null", "{", "[" * 4000, "x" * 5000, '{"other": 1}')),
        *(("mqretry", json.dumps(arguments)) for arguments in ({"delay": -1}, {"factor": 10**400}, {"delay": "x"})),
        *(("mqretry", json.dumps(arguments)) for arguments in ({"max_attempts": 0}, {"bury_on": 7}, {"jitter": []})),
    ]:
        with subtests.test(name=name, text=text[:20]):
            caplog.clear()
            assert of_call(usual, Message("1", path, data, "default", headers={name: text})) is usual
            assert "Ignored the options of message 1 of queue default" in caplog.text
    with subtests.test("no exception is imported"):
        text = json.dumps({"bury_on": ["this.one", "os.system", 7, "ValueError", "tests.testapp.tasks.Refused"]})
        found = of_call(usual, Message("1", path, data, "default", headers={"mqretry": text}))
        assert found.retry.bury_on == (ValueError, tasks.Refused)


def test_a_handler_that_is_no_task_does_not_read_them():
    plain = Handler(name="plain", queue=None, call=print)
    assert of_call(plain, Message("1", "plain", None, "default", headers={"mqtimeout": "5"})) is plain
