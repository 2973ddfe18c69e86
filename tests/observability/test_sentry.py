"""What arrives at Sentry: one event for each burial, about one message only, and without its data."""

import asyncio
import json
import logging
from datetime import timedelta

import pytest
from django.utils.decorators import sync_and_async_middleware

from mq_django import Bury, Retry, RetryPolicy, handler, queues, registry, subscriber, topics
from mq_django.conf import get_config
from mq_django.consumers.decisions import Evidence, settlement
from mq_django.consumers.processes import Grace
from mq_django.consumers.shared_state import Receipt, SharedState
from mq_django.consumers.worker.consumer import Consumer, slots
from mq_django.core import clock
from mq_django.errors import HandlerTimeout
from mq_django.middleware import around_handling, publishing_chain
from mq_django.stores import open_store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.seeding import opened
from tests.testapp import tasks
from tests.waiting import wait_until
from tests.working import run

sentry_sdk = pytest.importorskip("sentry_sdk")

from sentry_sdk.consts import DEFAULT_OPTIONS  # noqa: E402
from sentry_sdk.integrations.dedupe import DedupeIntegration  # noqa: E402
from sentry_sdk.integrations.logging import LoggingIntegration  # noqa: E402

from tests.observability.sentry_transport import Kept  # noqa: E402

COLLECTED = {"data_collection": {"queues": True}}
needs_data_collection = pytest.mark.skipif(
    "data_collection" not in DEFAULT_OPTIONS, reason="this version of sentry-sdk has no data_collection"
)

PATH = "mq_django.observability.sentry"
SECRET = "hunter2"


def refuse(message):
    raise LookupError(f"no such order: {len(message.data)} items")


def step(name):
    """Raise in a function of its own, which a grouping by stack trace sees."""
    raise ValueError(name)


def work(message):
    sentry_sdk.add_breadcrumb(message=f"working on {message.id}")
    sentry_sdk.set_tag("of the handler", message.id)
    order = dict(message.data)
    step(order["fail"])


async def awork(message):
    sentry_sdk.add_breadcrumb(message=f"working on {message.id}")
    sentry_sdk.set_tag("of the handler", message.id)
    order = dict(message.data)
    # All run at the same time.
    await asyncio.sleep(0.05)
    step(order["fail"])


async def wait_long(message):
    await asyncio.sleep(60)


def copy(message):
    """Fail with secrets of the message in variables of other names, in log lines, and in the text of the error."""
    found, code = message.data["card"]["pin"], [message.data["card"]["cvv"]]
    logging.getLogger("shop").warning(
        "Charging %s", found, extra={"card": message.data["card"], "order": message.data["street"]}
    )
    step(f"{found} is refused {code}")


def capture(message):
    try:
        step("captured by the handler")
    except ValueError:
        sentry_sdk.capture_exception()
        raise


@around_handling
@sync_and_async_middleware
def failing(handle):
    def middleware(handling):
        handle(handling)
        raise RuntimeError("of another middleware")

    return middleware


ONCE, TWICE = RetryPolicy(max_attempts=1), RetryPolicy(max_attempts=2, jitter=0)


@pytest.fixture
def project(mq_settings, handlers):
    """Set the middleware, beside the one that reports burials."""
    for name, call in {"work": work, "copy": copy, "refuse": refuse, "capture": capture}.items():
        handler("default", name, retry=ONCE)(call)
    handler("default", "again", retry=TWICE)(work)
    handler("default", "bury")(lambda message: Bury("there is no order 4"))
    handler("default", "retry")(lambda message: Retry(delay=60))
    handler("default", "fine")(lambda message: None)
    handler("emails", "work", retry=ONCE)(awork)
    handler("emails", "slow", retry=ONCE, timeout=timedelta(seconds=0.05))(wait_long)

    def configure(*middleware, **queue):
        paths = [f"{PATH}.{name}" if "." not in name else name for name in ("report_burials", *middleware)]
        mq_settings(QUEUES={"default": queue, "emails": {}}, MIDDLEWARE=paths)

    configure()
    return configure


@pytest.fixture
def sentry(project):
    """Initialise the SDK with a transport that keeps what it is given; call it for other options."""
    with sentry_sdk.isolation_scope():

        def init(**options):
            kept = Kept()
            sentry_sdk.init(
                dsn="https://key@sentry.invalid/1",
                transport=kept,
                auto_enabling_integrations=False,
                default_integrations=False,
                integrations=[LoggingIntegration(), DedupeIntegration()],
                **options,
            )
            return kept

        yield init
    sentry_sdk.get_client().close()
    sentry_sdk.get_global_scope().set_client(None)


def handle(queue, count=1):
    """Handle messages of a queue with a consumer's threads and loop."""
    shared_state = SharedState.create(slots(4))
    consumer = Consumer("c1", [get_config().queue(queue)], threads=4, shared_state=shared_state)
    consumer.start()
    try:
        wait_until(lambda: consumer.settled() >= count, timeout=30)
    finally:
        assert consumer.stop(Grace(60))
        shared_state.close()


def tags_of(event):
    return {name: value for name, value in event["tags"].items() if name.startswith("mq.")}


def test_of_a_batch_each_burial_is_an_event_of_its_own_message(sentry, project):
    handler("default", "store", batch=10)(lambda messages: [None, Bury("odd"), Bury("odd")])
    project("report_retries")
    kept = sentry()
    ids = queues["default"].publish_many([("store", number) for number in range(3)])
    run("default")
    assert {event["tags"]["mq.message_id"] for event in kept.events} == set(ids[1:])


@pytest.mark.parametrize(("queue", "function"), [("default", "work"), ("emails", "awork")])
def test_a_burial_is_one_event_with_the_exception_and_tags(sentry, queue, function):
    kept = sentry()
    sent = queues[queue].publish("work", {"fail": "on purpose"})
    handle(queue)
    (event,) = kept.events
    assert (event["level"], event["transaction"]) == ("error", f"{__name__}.{function}")
    assert tags_of(event) == {
        "mq.queue": queue,
        "mq.message": "work",
        "mq.message_id": sent,
        "mq.handler": f"{__name__}.{function}",
        "mq.attempt": "1",
        "mq.reason": "attempts",
    }
    (exception,) = event["exception"]["values"]
    assert (exception["type"], exception["value"]) == ("ValueError", "on purpose")
    assert [frame["function"] for frame in exception["stacktrace"]["frames"]][-2:] == [function, "step"]
    assert (exception["mechanism"]["type"], exception["mechanism"]["handled"]) == ("mq_django", False)
    # Sentry groups by the stack trace.
    assert "fingerprint" not in event


def test_the_failure_of_a_task_is_one_event(sentry, settings):
    settings.TASKS = {"default": {"BACKEND": "mq_django.task_backend.MQBackend", "QUEUES": ["default"]}}
    kept = sentry()
    result = tasks.refuse.enqueue()
    handle("default")
    (event,) = kept.events
    assert event["tags"]["mq.message_id"] == result.id
    assert event["transaction"] == event["tags"]["mq.handler"] == "tests.testapp.tasks.refuse"
    assert event["exception"]["values"][0]["stacktrace"]["frames"][-1]["function"] == "refuse"


def test_the_queue_of_a_subscriber_is_its_group(sentry, mq_settings, monkeypatch):
    mq_settings(TOPICS={"orders": {}}, MIDDLEWARE=[f"{PATH}.report_burials"])
    monkeypatch.setattr(registry, "_starts", dict(registry._starts))
    subscriber("orders", group="billing", retry=ONCE)(work)
    kept = sentry()
    opened("orders:billing")
    sent = topics["orders"].publish("paid", {"fail": "x"})
    handle("orders:billing")
    (event,) = kept.events
    assert (event["tags"]["mq.queue"], event["tags"]["mq.message_id"]) == ("orders:billing", sent)


@pytest.mark.parametrize("queue", ["default", "emails"])
def test_tags_and_breadcrumbs_of_one_message_are_on_no_other(sentry, queue):
    kept = sentry()
    ids = [queues[queue].publish("work", {"fail": f"number {number}"}) for number in range(12)]
    handle(queue, len(ids))
    assert sorted(event["tags"]["mq.message_id"] for event in kept.events) == sorted(ids)
    for event in kept.events:
        mine = event["tags"]["mq.message_id"]
        assert event["tags"]["of the handler"] == mine
        crumbs = [crumb["message"] for crumb in event["breadcrumbs"]["values"]]
        assert crumbs == [f"working on {mine}"]


def test_a_retried_attempt_is_no_event(sentry):
    kept = sentry()
    queues["default"].publish("again", {"fail": "for now"})
    handle("default")
    assert kept.events == []


@pytest.mark.parametrize("events_from", ["ERROR", "WARNING"])
def test_retried_attempts_are_warnings_if_the_project_says_so(sentry, project, events_from):
    project("report_retries")
    kept = sentry()
    sentry_sdk.get_client().integrations["logging"]._handler.setLevel(events_from)
    sent = queues["default"].publish("again", {"fail": "for now"})
    queues["default"].publish("retry", None)
    handle("default", 2)
    assert [event["level"] for event in kept.events] == ["warning", "warning"]
    by_name = {event["tags"]["mq.message"]: event for event in kept.events}
    assert by_name["again"]["tags"]["mq.message_id"] == sent
    assert by_name["again"]["exception"]["values"][0]["value"] == "for now"
    assert by_name["retry"]["logentry"]["message"] == "The handler returned Retry"
    assert "mq.reason" not in by_name["again"]["tags"]


def test_warnings_of_retries_have_tags_without_the_other_middleware(sentry, mq_settings, project):
    mq_settings(MIDDLEWARE=[f"{PATH}.report_retries"])
    kept = sentry()
    sent = queues["default"].publish("again", {"fail": "for now", "street": "Elm Street"})
    handle("default")
    (event,) = kept.events
    assert (event["level"], event["tags"]["mq.message_id"]) == ("warning", sent)
    assert event["transaction"] == f"{__name__}.work"
    assert "Elm Street" not in json.dumps(kept.items)


def test_what_a_handler_has_captured_itself_is_not_reported_again(sentry):
    kept = sentry()
    sent = queues["default"].publish("capture", None)
    handle("default")
    assert [tags_of(event)["mq.message_id"] for event in kept.events] == [sent]


def test_a_burial_that_a_handler_returns_is_grouped_by_its_handler(sentry):
    kept = sentry()
    queues["default"].publish("bury", None)
    handle("default")
    (event,) = kept.events
    assert event["logentry"]["message"] == "there is no order 4"
    assert event["fingerprint"][0] == "{{ default }}"
    assert event["tags"]["mq.reason"] == "error"


def test_timeouts_are_grouped_by_their_handler(sentry):
    kept = sentry()
    queues["emails"].publish("slow", None)
    handle("emails")
    (event,) = kept.events
    assert event["fingerprint"] == ["mq_django.errors.HandlerTimeout", f"{__name__}.wait_long"]
    assert event["exception"]["values"][-1]["type"] == HandlerTimeout.__name__


def test_an_exception_of_another_middleware_is_reported_once(sentry, project):
    project(f"{__name__}.failing")
    kept = sentry()
    sent = queues["default"].publish("refuse", ["secret of a message"])
    handle("default")
    (event,) = kept.events
    assert event["exception"]["values"][-1]["value"] == "of another middleware"
    assert tags_of(event)["mq.message_id"] == sent
    assert "secret of a message" not in json.dumps(kept.items)


# burials that no middleware sees


def test_the_burial_of_an_expired_message_has_the_same_tags(sentry, project):
    project(ON_EXPIRE="bury")
    kept = sentry()
    sent, expired = queues["default"].publish("work", None, expires=0.001), clock.now() + 0.002
    queues["default"].publish("again", {"fail": "of another message"}, priority=1)
    wait_until(lambda: clock.now() > expired)
    handle("default", 2)
    (event,) = kept.events
    assert "breadcrumbs" not in event
    assert (event["level"], event["transaction"]) == ("error", f"{__name__}.work")
    assert tags_of(event) == {
        "mq.queue": "default",
        "mq.message": "work",
        "mq.message_id": sent,
        "mq.handler": f"{__name__}.work",
        "mq.attempt": "1",
        "mq.reason": "expired",
    }
    assert event["fingerprint"][1:] == [f"{__name__}.work", "expired"]


def test_the_burial_of_what_killed_its_process_has_the_same_tags(sentry, project):
    # A supervisor makes no middleware, but its checks import it.
    publishing_chain()
    kept = sentry()
    queues["default"].publish("work", None)
    config = get_config().queue("default")
    store = open_store(config, Pooled(get_client("consume")))
    store.create_groups()
    (delivery,) = store.take("dead", count=1)
    found = settlement(config, 0, delivery, Evidence(running=[Receipt.of(0, delivery.stream, delivery.entry)]))
    assert isinstance(found.outcome, Bury)
    (event,) = kept.events
    assert tags_of(event)["mq.message_id"] == delivery.message.id
    assert tags_of(event)["mq.reason"] == "crashed"


def test_the_burial_of_an_entry_that_cannot_be_decoded_names_its_queue(sentry, redis_client):
    kept = sentry()
    keys = get_config().queue("default").keys
    redis_client.xadd(keys.ready, {"nonsense": "x"})
    handle("default")
    (event,) = kept.events
    assert tags_of(event) == {"mq.queue": "default", "mq.reason": "undecodable"}


# data


def test_no_data_of_messages_is_sent(sentry):
    kept = sentry(traces_sample_rate=1.0)
    queues["default"].publish("work", {"fail": "x", "street": "Elm Street"}, key="customer:7", headers={"who": "Ann"})
    handle("default")
    assert len(kept.events) == 1
    sent = json.dumps(kept.items)
    assert [text for text in ("Elm Street", "customer:7", "Ann", '"vars"') if text in sent] == []


@pytest.mark.filterwarnings("ignore:The send_default_pii option is deprecated:DeprecationWarning")
@pytest.mark.parametrize("options", [{"send_default_pii": True}, pytest.param(COLLECTED, marks=needs_data_collection)])
def test_if_the_project_says_so_the_data_is_sent_without_secrets(sentry, options):
    kept = sentry(**options)
    data = {"fail": f"password={SECRET}", "street": "Elm Street", "card": {"pin": SECRET}}
    queues["default"].publish("work", data, key="customer:7", headers={"who": "Ann", "authtoken": SECRET})
    handle("default")
    (event,) = kept.events
    shown = event["contexts"]["mq message"]
    assert (shown["data"]["street"], shown["key"], shown["headers"]["who"]) == ("Elm Street", "customer:7", "Ann")
    frame = next(f for f in event["exception"]["values"][0]["stacktrace"]["frames"] if f["function"] == "work")
    assert "Elm Street" in frame["vars"]["order"]["street"]
    assert SECRET not in json.dumps(kept.items)


@pytest.mark.filterwarnings("ignore:The send_default_pii option is deprecated:DeprecationWarning")
@pytest.mark.parametrize("sends_data", [True, False])
def test_a_secret_of_the_message_is_not_sent_under_another_name(sentry, sends_data):
    kept = sentry(send_default_pii=sends_data)
    queues["default"].publish("copy", {"street": "Elm Street 1234", "card": {"pin": SECRET, "cvv": 1234}})
    handle("default")
    (event,) = kept.events
    sent = json.dumps(kept.items)
    assert SECRET not in sent
    assert ("'[redacted]'" in sent, "'1234'" in sent) == (sends_data, False)
    (crumb,) = event["breadcrumbs"]["values"]
    # A short one may be a part of something else.
    assert (crumb["message"], crumb["data"]["order"]) == ("Charging [redacted]", "Elm Street 1234")


def test_nothing_is_left_of_a_secret_that_begins_with_another(sentry):
    kept = sentry()
    longer = [f"{SECRET}{'-more' * times}" for times in range(8)]
    queues["default"].publish("copy", {"street": "Elm Street", "card": {"pin": longer[-1], "cvv": longer}})
    handle("default")
    assert len(kept.events) == 1
    assert "-more" not in json.dumps(kept.items)


@pytest.mark.filterwarnings("ignore:The send_default_pii option is deprecated:DeprecationWarning")
def test_a_secret_in_the_key_or_the_id_of_a_message_is_not_sent(sentry):
    kept = sentry(send_default_pii=True)
    secret = f"redis://:{SECRET}@host"
    queues["default"].publish("work", {"fail": "x"}, key=secret, message_id=secret)
    handle("default")
    (event,) = kept.events
    assert event["contexts"]["mq message"]["key"] == event["tags"]["mq.message_id"] == "redis://:[redacted]@host"


# traces


def test_errors_belong_to_the_trace_of_the_publisher_without_tracing(sentry):
    kept = sentry()
    trace = "0123456789abcdef0123456789abcdef"
    headers = {"sentrytrace": f"{trace}-0123456789abcdef-1"}
    queues["default"].publish("work", {"fail": "x"}, headers=headers)
    handle("default")
    assert [event["contexts"]["trace"]["trace_id"] for event in kept.events] == [trace]
    assert kept.transactions == []


def test_a_handler_continues_the_trace_of_its_publisher(sentry, project):
    project("trace_publishing")
    kept = sentry(traces_sample_rate=1.0)
    with sentry_sdk.start_transaction(name="a page", op="http.server") as page:
        sent = queues["default"].publish("fine", None)
    queues["default"].publish("work", {"fail": "x"})
    handle("default", 2)
    spans = [(found, span) for found in kept.transactions for span in found["spans"]]
    (publishing,) = [span for _, span in spans if span["op"] == "queue.publish"]
    assert publishing["trace_id"] == page.trace_id
    expected = {"messaging.message.id": sent, "messaging.destination.name": "default", "messaging.system": "redis"}
    assert expected.items() <= publishing["data"].items()
    (transaction, process) = next(
        (found, span) for found, span in spans if span["op"] == "queue.process" and span["trace_id"] == page.trace_id
    )
    trace = transaction["contexts"]["trace"]
    assert (trace["op"], trace["status"]) == ("queue.task.mq_django", "ok")
    assert trace["parent_span_id"] == publishing["span_id"]
    assert expected.items() <= process["data"].items()
    assert process["data"]["messaging.message.retry.count"] == 0
    assert 0 <= process["data"]["messaging.message.receive.latency"] < 60_000
    (failed,) = [found for found in kept.transactions if found["contexts"]["trace"].get("status") == "internal_error"]
    assert failed["contexts"]["trace"]["trace_id"] == kept.events[0]["contexts"]["trace"]["trace_id"]


def taken():
    store = opened("default")
    return [delivery.message for delivery in store.take("c1", count=10)]


def test_headers_are_added_only_if_tracing_is_on(sentry, project):
    project("trace_publishing")
    kept = sentry()
    queues["default"].publish("fine", None)
    assert [message.headers for message in taken()] == [{}]
    kept = sentry(traces_sample_rate=0.0)
    queues["default"].publish("fine", None, headers={"baggage": "mine=1"})
    (message,) = taken()
    assert set(message.headers) == {"sentrytrace", "baggage"}
    assert kept.items == []


def test_the_text_of_an_rsmq_queue_stays_text(sentry, mq_settings, redis_client, namespace):
    legacy = {"STORE": "rsmq", "NAMESPACE": namespace}
    mq_settings(QUEUES={"default": {}, "legacy": legacy}, MIDDLEWARE=[f"{PATH}.trace_publishing"])
    sentry(traces_sample_rate=0.0)
    message_id = queues["legacy"].publish("message", "hello")
    assert redis_client.hget(f"{namespace}:legacy:Q", message_id) == b"hello"


def test_a_sampler_that_fails_does_not_fail_the_message(sentry):
    seen = []

    def sampler(context):
        seen.append(context["mq_django"])
        raise ZeroDivisionError

    kept = sentry(traces_sampler=sampler)
    queues["default"].publish("fine", None)
    queues["default"].publish("work", {"fail": "x"})
    handle("default", 2)
    assert [event["exception"]["values"][0]["type"] for event in kept.events] == ["ValueError"]
    assert {"queue": "default", "handler": f"{__name__}.work", "message": "work"} in seen


def test_nothing_is_done_without_init(project):
    queues["default"].publish("work", {"fail": "x"})
    handle("default")
    assert not sentry_sdk.get_client().is_active()
    assert opened("default").depths().dead == 1
