"""Middleware that reports to Sentry: `docs/sentry.md`.

A burial is one event. The consumer logs an error for it, which Sentry's logging integration would report as well: that
one is dropped if the middleware has reported the same attempt. Burials that no middleware sees, because a process died
or a message expired, are reported by their log line, which gets the same tags.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from django.utils.decorators import sync_and_async_middleware

from mq_django.core import clock
from mq_django.core.messages import Ack, Bury, HandBack, Outcome, Retry
from mq_django.core.texts import class_name
from mq_django.errors import HandlerTimeout
from mq_django.middleware import (
    AsyncHandle,
    Ended,
    Handle,
    Handling,
    Publish,
    PublishCall,
    around,
    around_handling,
    around_publishing,
    may_add_headers,
)
from mq_django.observability.sentry_events import (
    LOGGERS,
    Event,
    Hint,
    add_global_event_processor,
    capture_internal_exceptions,
    describe,
    describe_record,
    event_from_exception,
    run_of,
    sentry_sdk,
)

__all__ = ["report_burials", "report_retries", "report_schedules", "trace_publishing"]

#: The headers of a message that continue a trace: names of attributes have no hyphens in CloudEvents.
TRACE_HEADER, BAGGAGE_HEADER = "sentrytrace", "baggage"
SYSTEM, ORIGIN = "redis", "auto.queue.mq_django"

#: The attempt that was reported last in this context: queue, id and number.
_reported: ContextVar[tuple[str, str, int] | None] = ContextVar("mq_django_reported", default=None)


def _middleware(handle: Any, within: Callable[[Handling], AbstractContextManager[Ended]]) -> Handle | AsyncHandle:
    """Return a middleware. Without `sentry_sdk.init()` it does nothing."""

    def entered(handling: Handling) -> AbstractContextManager[Ended]:
        return within(handling) if sentry_sdk.get_client().is_active() else nullcontext(lambda _: None)

    return around(handle, entered)


@around_handling
@sync_and_async_middleware
def report_burials(handle: Any) -> Handle | AsyncHandle:
    """Report each message that is buried as one event, and run each attempt in a scope and a transaction of its own.

    Args:
        handle: runs the handler and the middleware that is listed after this one.
    """
    return _middleware(handle, _attempt)


@around_handling
@sync_and_async_middleware
def report_retries(handle: Any) -> Handle | AsyncHandle:
    """Report each attempt that will be retried as a warning. List it after `report_burials`.

    Args:
        handle: runs the handler and the middleware that is listed after this one.
    """
    return _middleware(handle, _retried)


@around_handling
@sync_and_async_middleware
def report_schedules(handle: Any) -> Handle | AsyncHandle:
    """Report the messages of schedules to Sentry's cron monitors, which alarm when one is missing or late.

    Args:
        handle: runs the handler and the middleware that is listed after this one.
    """
    return _middleware(handle, _monitored)


@around_publishing
def trace_publishing(publish: Publish) -> Publish:
    """Add a span to the current trace, and headers to the messages, so that their handlers continue that trace.

    Args:
        publish: publishes the messages.
    """

    def middleware(call: PublishCall) -> Sequence[str | None]:
        if not _is_tracing():
            return publish(call)
        with sentry_sdk.start_span(op="queue.publish", name=call.queue, origin=ORIGIN) as span:
            _set_data(span, call.queue, call.messages[0].id if len(call.messages) == 1 else None)
            if len(call.messages) > 1:
                span.set_data("messaging.batch.message_count", len(call.messages))
            if may_add_headers(call):
                _add_headers(call)
            return publish(call)

    return middleware


@contextmanager
def _attempt(handling: Handling) -> Iterator[Ended]:
    with sentry_sdk.isolation_scope() as scope, ExitStack() as stack:
        scope.clear_breadcrumbs()
        describe(scope, handling)
        spans = _spans(stack, handling)

        def ended(outcome: Outcome) -> None:
            # Of several messages the log line of each burial is reported: it says which one it is.
            if isinstance(outcome, Bury) and len(handling.messages) == 1:
                _report(handling, outcome, "error")
            for span in spans:
                span.set_status("ok" if isinstance(outcome, Ack | HandBack) else "internal_error")

        yield ended


@contextmanager
def _retried(handling: Handling) -> Iterator[Ended]:
    def ended(outcome: Outcome) -> None:
        # A call with several messages is made again with halves.
        if isinstance(outcome, Retry) and len(handling.messages) == 1:
            _report(handling, outcome, "warning")

    yield ended


@contextmanager
def _monitored(handling: Handling) -> Iterator[Ended]:
    runs = [run for message in handling.messages if (run := run_of(message)) is not None]
    for run in runs if handling.attempt == 1 else ():
        run.check_in("in_progress")

    def ended(outcome: Outcome) -> None:
        # An attempt that will be retried decides nothing, and of several messages any may be the one that is buried.
        if isinstance(outcome, Ack) or (isinstance(outcome, Bury) and len(handling.messages) == 1):
            for run in runs:
                run.check_in("ok" if isinstance(outcome, Ack) else "error")

    yield ended


def _report(handling: Handling, outcome: Retry | Bury, level: Any) -> None:
    """Send the event of a failed attempt. An error of the SDK must not fail the attempt."""
    message, error = handling.message, handling.exception
    with capture_internal_exceptions(), sentry_sdk.new_scope() as scope:
        describe(scope, handling)
        event: Event = {"logentry": {"message": outcome.error or f"The handler returned {class_name(type(outcome))}"}}
        hint: Hint = {}
        if error is None:
            # The handler has returned it. The same text of two handlers is not the same problem.
            event["fingerprint"] = ["{{ default }}", handling.handler]
        else:
            options, mechanism = sentry_sdk.get_client().options, {"type": "mq_django", "handled": False}
            event, hint = event_from_exception(error, client_options=options, mechanism=mechanism)
        if isinstance(error, HandlerTimeout):
            # Each is interrupted in another line.
            event["fingerprint"] = ["mq_django.errors.HandlerTimeout", handling.handler]
        if isinstance(outcome, Bury):
            scope.set_tag("mq.reason", outcome.reason)
        event["level"], event["logger"] = level, "mq_django"
        sentry_sdk.capture_event(event, hint=hint)
        _reported.set((message.queue, message.id, message.attempt))


def _spans(stack: ExitStack, handling: Handling) -> list[Any]:
    """Enter and return the transaction of an attempt and its span, if tracing is on. A sampler may fail."""
    found: list[Any] = []
    about = {"queue": handling.queue, "handler": handling.handler, "message": handling.message.name}
    with capture_internal_exceptions():
        # Also if tracing is off: errors belong to the trace.
        transaction = _continued(handling)
        if _is_tracing():
            started = sentry_sdk.start_transaction(transaction, custom_sampling_context={"mq_django": about})
            found.append(stack.enter_context(started))
            found.append(stack.enter_context(_process_span(handling)))
    return found


def _continued(handling: Handling) -> Any:
    """Return a transaction that continues the trace of the message, or a new one."""
    headers = handling.message.headers
    trace = {"sentry-trace": headers.get(TRACE_HEADER), "baggage": headers.get(BAGGAGE_HEADER)}
    return sentry_sdk.continue_trace(
        {name: value for name, value in trace.items() if value},
        op="queue.task.mq_django",
        name=handling.handler,
        source="task",
        origin=ORIGIN,
    )


def _process_span(handling: Handling) -> Any:
    """Return the span that Sentry's page of queues shows."""
    message = handling.message
    span = sentry_sdk.start_span(op="queue.process", name=handling.handler, origin=ORIGIN)
    _set_data(span, handling.queue, message.id)
    span.set_data("messaging.message.retry.count", message.attempt - 1)
    if message.published_ms is not None:
        span.set_data("messaging.message.receive.latency", max(0.0, clock.now() * 1000 - message.published_ms))
    return span


def _set_data(span: Any, queue: str, message_id: str | None) -> None:
    span.set_data("messaging.system", SYSTEM)
    span.set_data("messaging.destination.name", queue)
    if message_id is not None:
        span.set_data("messaging.message.id", message_id)


def _add_headers(call: PublishCall) -> None:
    if (trace := sentry_sdk.get_traceparent()) is not None:
        call.headers[TRACE_HEADER] = trace
        baggage = (call.headers.get(BAGGAGE_HEADER), sentry_sdk.get_baggage())
        if found := ",".join(filter(None, baggage)):
            call.headers[BAGGAGE_HEADER] = found


def _is_tracing() -> bool:
    options = sentry_sdk.get_client().options
    return options.get("traces_sample_rate") is not None or options.get("traces_sampler") is not None


def _of_log_line(event: Event, hint: Hint) -> Event | None:
    """Drop the event of a log line about an attempt that was reported, and describe the events of other lines."""
    record = hint.get("log_record")
    if record is None or not record.name.startswith(LOGGERS):
        return event
    about = tuple(getattr(record, name, None) for name in ("queue", "message_id", "attempt"))
    if about == _reported.get():
        return None
    describe_record(event, record)
    return event


# Here and not in a middleware: a supervisor imports this module, but makes no middleware, and it also buries messages.
add_global_event_processor(_of_log_line)
