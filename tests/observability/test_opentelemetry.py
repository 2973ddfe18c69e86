"""Spans and metrics around publishing and handling, with OpenTelemetry's SDK and real queues."""

import asyncio
import logging
from datetime import timedelta

import pytest
from django.db import transaction

from mq_django import Bury, Retry, RetryPolicy, handler, queues, subscriber, topics
from mq_django.errors import MessageTooLarge, QueueFull
from mq_django.inspector.dead_letters import redrive_messages
from mq_django.middleware import around_handling
from tests.waiting import wait_until
from tests.working import run

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")

from opentelemetry import baggage, context, propagate, trace
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import SpanKind, StatusCode

pytestmark = pytest.mark.usefixtures("traced")

TRACER = trace.get_tracer("test")
#: Of a program in another language.
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.fixture
def seen():
    """The headers of what the handlers `note` of `default` and `emails` got; the second is a coroutine function."""
    found = []

    @handler("default", "note")
    def note(message):
        found.append(dict(message.headers))

    @handler("emails", "note")
    async def anote(message):
        found.append(dict(message.headers))

    return found


def hexadecimal(context):
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


def linked(span):
    return [hexadecimal(link.context) for link in span.links]


BOTH = pytest.mark.parametrize("queue", ["default", "emails"])


@BOTH
def test_the_span_of_an_attempt_is_a_child_of_the_one_that_published(telemetry, seen, queue):
    message_id = queues[queue].publish("note", 1)
    run()
    published, processed = telemetry.spans()
    assert (published.name, published.kind) == (f"publish {queue}", SpanKind.PRODUCER)
    assert dict(published.attributes) == {
        "messaging.system": "mq_django",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": queue,
        "messaging.message.id": message_id,
        "mq_django.message.type": "note",
    }
    assert (processed.name, processed.kind) == (f"process {queue}", SpanKind.CONSUMER)
    assert dict(processed.attributes) == {
        "messaging.system": "mq_django",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": queue,
        "messaging.message.id": message_id,
        "mq_django.message.type": "note",
        "mq_django.handler": f"{__name__}.seen.<locals>.{'anote' if queue == 'emails' else 'note'}",
        "mq_django.attempt": 1,
    }
    assert processed.context.trace_id == published.context.trace_id
    assert processed.parent.span_id == published.context.span_id
    assert linked(processed) == [hexadecimal(published.context)]
    assert {published.status.status_code, processed.status.status_code} == {StatusCode.UNSET}
    assert list(seen[0]) == ["traceparent"]


@BOTH
def test_with_a_link_it_is_a_trace_of_its_own(traced, telemetry, seen, queue):
    traced("trace_handling_with_link")
    queues[queue].publish("note", 1)
    run()
    published, processed = telemetry.spans()
    assert processed.parent is None
    assert processed.context.trace_id != published.context.trace_id
    assert linked(processed) == [hexadecimal(published.context)]


def test_spans_of_the_handler_are_inside(telemetry):
    @handler("default", "work")
    def work(message):
        with TRACER.start_as_current_span("query"):
            queues["emails"].publish("done", None)

    @handler("emails", "done")
    async def done(message):
        with TRACER.start_as_current_span("mail"):
            pass

    with TRACER.start_as_current_span("request"):
        queues["default"].publish("work", None)
    run()
    names = ["request", "publish default", "process default", "query", "publish emails", "process emails", "mail"]
    spans = telemetry.spans()
    assert [span.name for span in spans] == names
    assert [span.parent and span.parent.span_id for span in spans] == [
        None,
        *(span.context.span_id for span in spans[:-1]),
    ]


def test_baggage_travels_and_ends_with_the_message(traced, seen):
    found = []
    handler("default", "tell")(lambda message: found.append(baggage.get_baggage("tenant")))
    token = context.attach(baggage.set_baggage("tenant", "acme & co"))
    queues["default"].publish("tell", None)
    context.detach(token)
    run()
    traced("trace_handling_with_link")
    queues["default"].publish("tell", None, headers={"baggage": "tenant=other"})
    run()
    assert found == ["acme & co", "other"]
    assert baggage.get_all() == {}


def test_a_batch_is_one_span_whose_context_all_messages_have(telemetry, seen):
    queues["default"].publish_many([("note", 1), ("note", 2)])
    run()
    published, *processed = telemetry.spans()
    assert published.attributes["messaging.batch.message_count"] == 2
    assert "messaging.message.id" not in published.attributes
    assert [span.parent.span_id for span in processed] == [published.context.span_id] * 2


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_of_a_handler_of_batches_is_a_span_with_links(telemetry, is_async):
    def store(messages):
        return [None, Bury("odd")]

    async def astore(messages):
        return store(messages)

    handler("default", "store", batch=10)(astore if is_async else store)
    queues["default"].publish("store", 1)
    queues["default"].publish("store", 2)
    run()
    first, second, processed = telemetry.spans()
    assert processed.parent is None
    assert linked(processed) == [hexadecimal(first.context), hexadecimal(second.context)]
    assert processed.attributes["messaging.batch.message_count"] == 2
    assert "messaging.message.id" not in processed.attributes
    assert processed.status.status_code is StatusCode.ERROR


def test_each_group_of_a_topic_has_a_span(traced, telemetry):
    traced(TOPICS={"orders": {}})
    for group in ("billing", "stock"):
        subscriber("orders", group=group)(print)
    topics["orders"].group("billing").subscribe("beginning")
    topics["orders"].group("stock").subscribe("beginning")
    topics["orders"].publish("paid", 1)
    run()
    published, *processed = telemetry.spans()
    assert published.name == "publish orders"
    assert {span.name for span in processed} == {"process orders"}
    assert {span.parent.span_id for span in processed} == {published.context.span_id}
    named = [
        (span.attributes["messaging.destination.name"], span.attributes["messaging.consumer.group.name"])
        for span in processed
    ]
    assert sorted(named) == [("orders", "billing"), ("orders", "stock")]


def test_a_delayed_unique_message_has_the_context_of_the_publish_that_it_came_from(telemetry, seen):
    queues["default"].publish("note", 1, delay=0.01, unique="cart:1")
    queues["default"].publish("note", 2, delay=0, unique="cart:1")
    wait_until(run)
    first, second, processed = telemetry.spans()
    assert processed.parent.span_id == second.context.span_id
    assert first.attributes["messaging.message.id"] != second.attributes["messaging.message.id"]


def test_the_span_of_a_publish_has_the_id_of_the_message_that_was_kept(telemetry, seen):
    kept = queues["default"].publish("note", 1, delay=60, unique="cart:1")
    assert queues["default"].publish("note", 2, delay=60, unique="cart:1", on_conflict="keep") == kept
    assert [span.attributes["messaging.message.id"] for span in telemetry.spans()] == [kept, kept]


@pytest.mark.django_db(transaction=True)
def test_the_span_of_a_publish_ends_before_the_commit(telemetry, seen):
    with transaction.atomic():
        queues["default"].publish("note", 1)
        published = telemetry.span("publish")
        assert "messaging.client.sent.messages" not in telemetry.points()
    (sent,) = telemetry.points()["messaging.client.sent.messages"]
    assert sent.value == 1
    run()
    assert telemetry.span("process").parent.span_id == published.context.span_id


def test_a_publish_that_fails_is_an_error(traced, telemetry):
    traced(QUEUES={"default": {"MAX_DEPTH": 1}})
    queues["default"].publish("n", 1)
    with pytest.raises(QueueFull):
        queues["default"].publish("n", 2)
    _, failed = telemetry.spans()
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes["error.type"] == "mq_django.errors.QueueFull"
    assert failed.events[0].attributes["exception.type"] == "mq_django.errors.QueueFull"
    points = telemetry.points()
    for name, value in (("messaging.client.sent.messages", "value"), ("messaging.client.operation.duration", "count")):
        assert {point.attributes.get("error.type"): getattr(point, value) for point in points[name]} == {
            None: 1,
            "mq_django.errors.QueueFull": 1,
        }


@BOTH
def test_an_attempt_that_fails_is_an_error_with_its_exception_and_its_delay(telemetry, queue):
    async def afail(message):
        raise LookupError("no such user")

    def fail(message):
        raise LookupError("no such user")

    handler(queue, "fail", retry=RetryPolicy(max_attempts=2, delay=0.02, jitter=0))(
        afail if queue == "emails" else fail
    )
    queues[queue].publish("fail", None)
    wait_until(lambda: run() is not None and len(telemetry.spans("process")) == 2)
    published, first, second = telemetry.spans()
    for span, attempt in ((first, 1), (second, 2)):
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description == "LookupError: no such user"
        assert span.attributes["error.type"] == "LookupError"
        assert span.attributes["mq_django.attempt"] == attempt
        assert span.events[0].name == "exception"
        assert span.events[0].attributes["exception.message"] == "no such user"
        assert "in afail" in span.events[0].attributes["exception.stacktrace"] or queue == "default"
        assert span.parent.span_id == published.context.span_id
    retried, buried = first.events[1], second.events[1]
    assert (retried.name, dict(retried.attributes)) == (
        "mq_django.retry",
        {"mq_django.attempt": 1, "mq_django.retry.delay": 0.02},
    )
    assert (buried.name, dict(buried.attributes)) == (
        "mq_django.bury",
        {"mq_django.attempt": 2, "mq_django.bury.reason": "attempts"},
    )


def test_a_redriven_message_stays_in_its_trace(telemetry):
    found = []

    @handler("default", "bury first")
    def bury_first(message):
        found.append(message.id)
        return Bury("no") if len(found) == 1 else None

    queues["default"].publish("bury first", None)
    run()
    redrive_messages("default", found)
    run()
    published, *processed = telemetry.spans()
    assert [span.parent.span_id for span in processed] == [published.context.span_id] * 2
    assert processed[1].status.status_code is StatusCode.UNSET


def test_a_publish_from_a_coroutine_is_in_its_trace(telemetry):
    async def publish():
        with TRACER.start_as_current_span("request"):
            await queues["default"].apublish("n", 1)

    asyncio.run(publish())
    assert telemetry.span("publish").parent.span_id == telemetry.span("request").context.span_id


@pytest.mark.parametrize(
    ("outcome", "error", "event"),
    [
        (Retry(delay=30, error="later"), "mq_django.Retry", {"mq_django.attempt": 1, "mq_django.retry.delay": 30.0}),
        (
            Retry(delay=timedelta(minutes=1)),
            "mq_django.Retry",
            {"mq_django.attempt": 1, "mq_django.retry.delay": 60.0},
        ),
        (Bury("no"), "mq_django.Bury", {"mq_django.attempt": 1, "mq_django.bury.reason": "error"}),
    ],
)
def test_a_handler_that_returns_an_outcome_has_failed_without_an_exception(telemetry, outcome, error, event):
    handler("default", "give")(lambda message: outcome)
    queues["default"].publish("give", None)
    run()
    processed = telemetry.span("process")
    assert processed.status.status_code is StatusCode.ERROR
    assert processed.attributes["error.type"] == error
    assert [dict(found.attributes) for found in processed.events] == [event]


@around_handling
def refusing(handle):
    def middleware(handling):
        raise PermissionError("not now")

    return middleware


def test_an_error_of_another_middleware_is_in_the_span(traced, telemetry, monkeypatch):
    monkeypatch.setattr("mq_django.registry._handlers", {})
    handler("default", "note")(print)
    traced("trace_handling", f"{__name__}.refusing")
    queues["default"].publish("note", None)
    run()
    processed = telemetry.span("process")
    assert processed.status.status_code is StatusCode.ERROR
    assert processed.attributes["error.type"] == "PermissionError"


def test_metrics_have_no_ids(telemetry, seen):
    queues["default"].publish_many([("note", number) for number in range(3)])
    run()
    points = telemetry.points()
    sending = {
        "messaging.system": "mq_django",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": "default",
    }
    processing = {
        "messaging.system": "mq_django",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "default",
        "mq_django.handler": f"{__name__}.seen.<locals>.note",
    }
    (sent,), (call,) = points["messaging.client.sent.messages"], points["messaging.client.operation.duration"]
    (consumed,), (processed,) = points["messaging.client.consumed.messages"], points["messaging.process.duration"]
    assert (dict(sent.attributes), sent.value, dict(call.attributes), call.count) == (sending, 3, sending, 1)
    assert (dict(consumed.attributes), consumed.value) == (processing, 3)
    assert (dict(processed.attributes), processed.count) == (processing, 3)
    assert processed.explicit_bounds[0] == 0.005
    assert processed.sum < 10


@pytest.mark.parametrize(
    "fields",
    [
        {"traceparent": TRACEPARENT, "tracestate": "vendor=1"},
        {"message": f'{{"specversion":"1.0","id":"1","source":"/shop","type":"note","traceparent":"{TRACEPARENT}"}}'},
    ],
)
def test_a_context_of_another_language_is_the_parent(telemetry, seen, redis_client, namespace, fields):
    redis_client.xadd(f"{namespace}:{{default}}:ready", {"type": "note", "data": "null", **fields})
    run()
    processed = telemetry.span("process")
    assert hexadecimal(processed.parent) == (TRACE, SPAN)
    assert processed.context.trace_state.get("vendor") == ("1" if "tracestate" in fields else None)


def test_a_context_that_cannot_be_read_fails_no_message(telemetry, seen, redis_client, namespace):
    wrong = (
        "",
        "x",
        "00-1",
        TRACEPARENT.replace("00-", "ff-"),
        f"00-{'0' * 32}-{SPAN}-01",
        "é\x00\n" * 99,
        "0" * 100_000,
    )
    for traceparent in wrong:
        fields = {"type": "note", "data": "null", "traceparent": traceparent, "tracestate": "=,=", "baggage": "%%;=,"}
        redis_client.xadd(f"{namespace}:{{default}}:ready", fields)
    run()
    assert len(seen) == len(wrong)
    processed = [(span.parent, span.status.status_code) for span in telemetry.spans()]
    assert processed == [(None, StatusCode.UNSET)] * len(wrong)


def test_a_context_in_the_callers_own_headers_is_kept(telemetry, seen):
    with TRACER.start_as_current_span("request"):
        queues["default"].publish("note", 1, headers={"traceparent": TRACEPARENT})
    run()
    assert seen == [{"traceparent": TRACEPARENT}]
    assert linked(telemetry.span("publish")) == [(TRACE, SPAN)]
    assert hexadecimal(telemetry.span("process").parent) == (TRACE, SPAN)


def test_a_span_around_a_consumer_is_linked(traced, telemetry, seen):
    queues["default"].publish("note", 1)
    with TRACER.start_as_current_span("batch") as batch:
        run()
    published, processed = telemetry.span("publish"), telemetry.span("process")
    assert processed.parent.span_id == published.context.span_id
    assert linked(processed) == [hexadecimal(published.context), hexadecimal(batch.context)]
    traced("trace_handling_with_link")
    telemetry.clear()
    queues["default"].publish("note", 1)
    with TRACER.start_as_current_span("batch") as batch:
        run()
    assert telemetry.span("process").parent.span_id == batch.context.span_id


class Vendor(TextMapPropagator):
    """A propagator whose field no message can have under its own name."""

    fields = {"X-Vendor-Trace", "id"}

    def inject(self, carrier, context=None, setter=None):
        setter.set(carrier, "X-Vendor-Trace", "17")
        setter.set(carrier, "id", "never")

    def extract(self, carrier, context=None, getter=None):
        assert getter.get(carrier, "x-vendor-trace") == ["17"]
        assert getter.get(carrier, "x-other") is None
        assert "xvendortrace" in getter.keys(carrier)
        raise RuntimeError("a defect of the propagator")


@pytest.fixture
def vendor():
    """Use the propagator of a vendor."""
    before = propagate.get_global_textmap()
    propagate.set_global_textmap(Vendor())
    yield
    propagate.set_global_textmap(before)


def test_fields_of_other_propagators_travel_under_a_name_that_headers_can_have(vendor, seen, caplog):
    queues["default"].publish("note", 1)
    with caplog.at_level(logging.WARNING):
        run()
    assert seen == [{"xvendortrace": "17"}]
    assert "cannot be read" in caplog.text


def test_the_text_of_an_rsmq_queue_stays_text(traced, telemetry, redis_client, namespace):
    traced(QUEUES={"default": {}, "legacy": {"STORE": "rsmq", "NAMESPACE": namespace}})
    text = queues["legacy"].publish("message", "hello")
    other = queues["legacy"].publish("paid", {"n": 1})
    bodies = redis_client.hgetall(f"{namespace}:legacy:Q")
    assert bodies[text.encode()] == b"hello"
    assert b"traceparent" in bodies[other.encode()]
    assert len(telemetry.spans("publish legacy")) == 2


def test_a_message_that_is_refused_at_the_call_has_no_span(telemetry):
    with pytest.raises(MessageTooLarge):
        queues["default"].publish("n", "x" * 1024 * 1024)
    assert telemetry.spans() == []
