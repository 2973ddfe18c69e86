"""A correlation id from the request to the log lines of the last handler."""

import asyncio
import json
import logging
from types import SimpleNamespace

import pytest
from asgiref.sync import iscoroutinefunction
from django.http import HttpResponse
from django.test import AsyncRequestFactory, RequestFactory

from mq_django import RetryPolicy, handler, queues
from mq_django.core.logs import JsonFormatter
from mq_django.observability.correlation import (
    CorrelationIdFilter,
    correlate_requests,
    correlated,
    get_correlation_id,
)
from mq_django.task_backend.compat import LOGGER
from mq_django.workflows import workflow
from tests.observability.conftest import CORRELATION
from tests.testapp import tasks
from tests.working import run

pytestmark = pytest.mark.usefixtures("correlating")


@pytest.fixture
def correlating(handlers, mq_settings):
    """Configure the middleware of messages; call it to change settings."""

    def configure(**settings):
        entries = [f"{CORRELATION}.send_correlation_id", f"{CORRELATION}.receive_correlation_id"]
        mq_settings(MIDDLEWARE=entries, **settings)

    configure()
    return configure


@pytest.fixture
def seen():
    """The correlation ids of what the handlers `note` got; `pass on` publishes to them."""
    found = []

    @handler("default", "note")
    def note(message):
        found.append((get_correlation_id(), message.headers.get("correlationid")))

    @handler("emails", "note")
    async def anote(message):
        found.append((get_correlation_id(), message.headers.get("correlationid")))

    @handler("default", "pass on")
    def pass_on(message):
        queues["emails"].publish("note", None)

    return found


def test_a_batch_has_the_id_of_all_its_messages_or_a_new_one():
    found = []
    handler("default", "store", batch=10)(lambda messages: found.append(get_correlation_id()))
    with correlated("request-1"):
        queues["default"].publish_many([("store", 1), ("store", 2)])
    run()
    with correlated("request-2"):
        queues["default"].publish("store", 1)
    with correlated("request-3"):
        queues["default"].publish("store", 2)
    run()
    same, other = found
    assert same == "request-1"
    assert other
    assert other not in {"request-1", "request-2", "request-3"}


def respond(request):
    return HttpResponse(get_correlation_id())


async def arespond(request):
    return HttpResponse(get_correlation_id())


def answer(view, headers):
    """Return the response of a view to a request with these headers."""
    if iscoroutinefunction(view):
        return asyncio.run(correlate_requests(view)(AsyncRequestFactory().get("/", headers=headers)))
    return correlate_requests(view)(RequestFactory().get("/", headers=headers))


VIEWS = pytest.mark.parametrize("view", [respond, arespond])


@VIEWS
def test_a_request_keeps_its_id(view):
    for header in ("X-Request-ID", "X-Correlation-ID"):
        response = answer(view, {header: "7f9c"})
        assert response.content == b"7f9c"
        assert [value for name, value in response.items() if name.startswith("X-")] == ["7f9c"]
        assert response.headers[header] == "7f9c"
        assert get_correlation_id() is None


@VIEWS
def test_a_request_without_a_valid_id_gets_a_new_one(view):
    for headers in ({}, {"X-Request-ID": "a b"}, {"X-Request-ID": "x" * 129}, {"X-Request-ID": "é"}):
        first, second = answer(view, headers), answer(view, headers)
        assert first.headers["X-Request-ID"].encode() == first.content
        assert len(first.content) == 32
        assert first.content != second.content, headers


def fail(request):
    raise LookupError


async def afail(request):
    raise LookupError


def test_the_id_ends_with_a_request_that_fails():
    for view in (fail, afail):
        with pytest.raises(LookupError):
            answer(view, {"X-Request-ID": "7f9c"})
        assert get_correlation_id() is None


def test_the_id_of_a_request_goes_with_all_that_its_messages_publish(seen):
    with correlated("7f9c"):
        queues["default"].publish_many([("note", 1), ("pass on", 2)])
    run()
    assert seen == [("7f9c", "7f9c")] * 2
    assert get_correlation_id() is None


def test_the_id_of_a_request_goes_with_all_steps_of_a_workflow_and_its_callbacks(monkeypatch):
    found = []
    monkeypatch.setattr(tasks, "ran", SimpleNamespace(append=lambda _: found.append(get_correlation_id())))
    definition = workflow("correlated", on_finish=tasks.note)
    with correlated("7f9c"), definition as flow:
        flow.add(tasks.note).after(flow.add(tasks.send_receipt, 1))
    run()
    assert definition.run.state == "succeeded"
    assert found == ["7f9c"] * 3


def test_without_an_id_nothing_is_sent_and_the_handler_has_that_of_its_message(seen):
    first = queues["default"].publish("note", None)
    second = queues["default"].publish("pass on", None)
    run()
    assert seen == [(first, None), (second, second)]


def test_a_message_keeps_its_own_header(seen):
    with correlated("7f9c"):
        queues["default"].publish("note", None, headers={"correlationid": "own"})
    run()
    assert seen == [("own", "own")]


def test_an_id_that_another_program_has_sent_and_that_is_none_is_not_used(seen, redis_client, namespace):
    redis_client.xadd(f"{namespace}:{{default}}:ready", {"id": "m1", "type": "note", "correlationid": "a\nb"})
    run()
    assert seen == [("m1", "a\nb")]


def test_the_text_of_an_rsmq_queue_stays_text(correlating, redis_client, namespace):
    correlating(QUEUES={"default": {}, "legacy": {"STORE": "rsmq", "NAMESPACE": namespace}})
    with correlated("7f9c"):
        text, other = queues["legacy"].publish("message", "hello"), queues["legacy"].publish("paid", 1)
    bodies = redis_client.hgetall(f"{namespace}:legacy:Q")
    assert bodies[text.encode()] == b"hello"
    assert b'"correlationid":"7f9c"' in bodies[other.encode()]


def record():
    return logging.LogRecord("shop", logging.INFO, __file__, 1, "paid", (), None)


def test_the_filter_adds_the_id_to_records():
    inside, outside = record(), record()
    with correlated("7f9c"):
        assert CorrelationIdFilter().filter(inside)
    assert CorrelationIdFilter().filter(outside)
    assert (inside.correlation_id, outside.correlation_id) == ("7f9c", "-")
    assert json.loads(JsonFormatter().format(inside))["correlation_id"] == "7f9c"


def test_the_line_about_an_attempt_that_failed_has_the_id_of_its_message(caplog):
    handler("default", "fail", retry=RetryPolicy(max_attempts=1))(fail)
    with correlated("7f9c"):
        queues["default"].publish("fail", None)
    queues["default"].publish("fail", None)
    run()
    with_id, without = (record for record in caplog.records if "buried after attempt" in record.getMessage())
    CorrelationIdFilter().filter(with_id)
    assert with_id.correlation_id == "7f9c"
    assert not hasattr(without, "correlation_id")
    assert "correlation_id" not in json.loads(JsonFormatter().format(without))


@pytest.mark.parametrize("task", [tasks.noop, tasks.refuse, tasks.shout], ids=lambda task: task.name)
def test_djangos_line_about_the_end_of_a_task_has_the_id_of_its_message(correlating, settings, caplog, task):
    settings.TASKS = {"default": {"BACKEND": "mq_django.task_backend.MQBackend", "QUEUES": []}}
    correlating(QUEUES={"default": {"MAX_ATTEMPTS": 1}})
    caplog.set_level(logging.INFO, logger=LOGGER)
    with correlated("7f9c"):
        task.enqueue(*["x"] * (task is tasks.shout))
    task.enqueue(*["x"] * (task is tasks.shout))
    run()
    with_id, without = (record for record in caplog.records if record.name == LOGGER and _is_end(record))
    CorrelationIdFilter().filter(with_id)
    assert with_id.correlation_id == "7f9c"
    assert not hasattr(without, "correlation_id")


def _is_end(record):
    return any(state in record.getMessage() for state in ("state=SUCCESSFUL", "state=FAILED"))
