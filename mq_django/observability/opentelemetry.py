"""Spans and metrics of OpenTelemetry: middleware for `MQ_DJANGO["MIDDLEWARE"]`.

    MQ_DJANGO = {
        "MIDDLEWARE": [
            "mq_django.observability.opentelemetry.trace_publishing",
            "mq_django.observability.opentelemetry.trace_handling",
        ],
    }

It uses only OpenTelemetry's API. The project configures the SDK, the exporters and the propagators.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from django.utils.decorators import sync_and_async_middleware

from mq_django import __version__
from mq_django.core.clock import read_duration
from mq_django.core.ids import CORRELATION_HEADER
from mq_django.core.logs import get_logger
from mq_django.core.message_format import HEADER_NAME, RESERVED
from mq_django.core.messages import NO_HEADERS, Bury, Message, Outcome, Retry
from mq_django.core.texts import path_of
from mq_django.errors import MissingDependency
from mq_django.middleware import (
    Ended,
    Handling,
    Publish,
    PublishCall,
    around,
    around_handling,
    around_publishing,
    may_add_headers,
)
from mq_django.observability import semantic_conventions as names
from mq_django.signals import message_published

try:
    from opentelemetry import context as contexts
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.propagators.textmap import Getter, Setter
except ImportError as error:
    raise MissingDependency(
        'mq_django.observability.opentelemetry needs opentelemetry-api: pip install "mq-django[opentelemetry]"'
    ) from error

logger = get_logger(__name__)

Attributes = dict[str, str | int]


@around_publishing
def trace_publishing(publish: Publish) -> Publish:
    """Make a span of each call that publishes, and send its context in the headers of the messages.

    Args:
        publish: the next middleware.
    """
    sending = _Sending()

    def middleware(call: PublishCall) -> Sequence[str | None]:
        with sending.measured(call) as span:
            ids = publish(call)
            if len(call.messages) == 1 and ids and ids[0]:
                # A unique key may have kept another message.
                span.set_attribute(names.MESSAGE_ID, ids[0])
            return ids

    return middleware


@around_handling
@sync_and_async_middleware
def trace_handling(handle: Any) -> Any:
    """Make a span of each attempt, as a child of the span that published the message.

    A call with several messages of a batch has one span, with a link to each of the spans that published them.

    Args:
        handle: the next middleware.
    """
    return around(handle, _Processing(is_child=True).measured)


@around_handling
@sync_and_async_middleware
def trace_handling_with_link(handle: Any) -> Any:
    """Make a span of each attempt, in a trace of its own with a link to the span that published the message.

    Args:
        handle: the next middleware.
    """
    return around(handle, _Processing(is_child=False).measured)


class _Sending:
    """Makes spans and measurements of calls that publish."""

    def __init__(self) -> None:
        self._tracer, meter = _tracer_and_meter()
        self._duration = _histogram(meter, names.OPERATION_DURATION, "Duration of calls that publish.")
        self._sent = meter.create_counter(names.SENT_MESSAGES, names.MESSAGES, "Messages that were sent to Redis.")
        # What atomic() holds back counts when it is sent, which the middleware does not see.
        message_published.connect(self._count, weak=False, dispatch_uid=f"{__name__}.sent")

    def _count(self, *, queue: str, **_: Any) -> None:
        self._sent.add(1, _sending(queue))

    @contextmanager
    def measured(self, call: PublishCall) -> Iterator[trace.Span]:
        """Run a call that publishes within its span, whose context it gets as headers."""
        common, begin, own = _sending(call.queue), time.perf_counter(), _own_context(call)
        with self._tracer.start_as_current_span(
            f"{names.PUBLISH} {call.queue}",
            kind=trace.SpanKind.PRODUCER,
            attributes=common | _of_messages(call.messages, call.headers),
            links=[trace.Link(own)] if own.is_valid else (),
        ) as span:
            if not own.is_valid:
                _inject(call)
            try:
                yield span
            except BaseException as error:
                _set_error(span, common, path_of(type(error)))
                self._sent.add(len(call.messages), common)
                raise
            finally:
                self._duration.record(time.perf_counter() - begin, common)


class _Processing:
    """Makes spans and measurements of attempts."""

    def __init__(self, *, is_child: bool) -> None:
        self._is_child = is_child
        self._tracer, meter = _tracer_and_meter()
        self._duration = _histogram(meter, names.PROCESS_DURATION, "Duration of attempts.")
        self._consumed = meter.create_counter(
            names.CONSUMED_MESSAGES, names.MESSAGES, "Messages that were passed to handlers."
        )

    @contextmanager
    def measured(self, handling: Handling) -> Iterator[Ended]:
        """Run an attempt within its span, and in the context that came with the message."""
        common, begin = _processing(handling), time.perf_counter()
        several = len(handling.messages) > 1
        context, links = _of_batch(handling) if several else self._context_and_links(handling.message.headers)
        token = contexts.attach(context)
        try:
            with self._tracer.start_as_current_span(
                f"{names.PROCESS} {common[names.DESTINATION_NAME]}",
                kind=trace.SpanKind.CONSUMER,
                attributes=common | _of_messages(handling.messages) | {names.ATTEMPT: handling.attempt},
                links=links,
            ) as span:
                try:
                    yield partial(_end, span, common, handling)
                except BaseException as error:
                    # Raised by another middleware: the handler's own exception is `handling.exception`.
                    _set_error(span, common, path_of(type(error)))
                    raise
                finally:
                    self._duration.record(time.perf_counter() - begin, common)
                    self._consumed.add(len(handling.messages), common)
        finally:
            contexts.detach(token)

    def _context_and_links(self, headers: Mapping[str, str]) -> tuple[contexts.Context, list[trace.Link]]:
        """Return the context in which an attempt runs, and the links of its span."""
        around = trace.get_current_span()
        context = _extracted(headers, contexts.get_current())
        creation = trace.get_current_span(context).get_span_context()
        if not creation.is_valid or creation == around.get_span_context():
            # Nothing came with the message.
            return context, []
        links = [trace.Link(creation)]
        if not self._is_child:
            # Without its span, but with its baggage.
            context = trace.set_span_in_context(around, context)
        elif around.get_span_context().is_valid:
            links.append(trace.Link(around.get_span_context()))
        return context, links


def _of_batch(handling: Handling) -> tuple[contexts.Context, list[trace.Link]]:
    """Return the context in which the call of a batch runs, and the links to what has published its messages."""
    context, links = contexts.get_current(), list[trace.Link]()
    for message in handling.messages[: names.MAX_LINKS]:
        creation = trace.get_current_span(_extracted(message.headers, context)).get_span_context()
        if creation.is_valid and creation != trace.get_current_span().get_span_context():
            links.append(trace.Link(creation))
    return context, links


def _end(span: trace.Span, common: Attributes, handling: Handling, outcome: Outcome) -> None:
    """Note the outcome of an attempt."""
    exception = handling.exception
    if exception is not None:
        _record(span, exception)
    if isinstance(outcome, Retry | Bury):
        returned = names.RETRY_RETURNED if isinstance(outcome, Retry) else names.BURY_RETURNED
        _set_error(span, common, returned if exception is None else path_of(type(exception)))
        span.set_status(trace.Status(trace.StatusCode.ERROR, str(outcome.error)))
        span.add_event(*_event(handling, outcome))


def _event(handling: Handling, outcome: Retry | Bury) -> tuple[str, dict[str, str | int | float]]:
    attributes: dict[str, str | int | float] = {names.ATTEMPT: handling.attempt}
    if isinstance(outcome, Bury):
        return names.BURY_EVENT, attributes | {names.BURY_REASON: outcome.reason}
    if outcome.delay is not None:
        attributes[names.RETRY_DELAY] = max(0.0, read_duration(outcome.delay).total_seconds())
    return names.RETRY_EVENT, attributes


def _set_error(span: trace.Span, common: Attributes, error_type: str) -> None:
    common[names.ERROR_TYPE] = error_type
    span.set_attribute(names.ERROR_TYPE, error_type)


def _record(span: trace.Span, exception: BaseException) -> None:
    try:
        span.record_exception(exception)
    except Exception:
        # __str__ of an exception is user code.
        logger.debug("The exception of a handler cannot be recorded", exc_info=True)


def _tracer_and_meter() -> tuple[trace.Tracer, metrics.Meter]:
    return (
        trace.get_tracer(names.MQ_DJANGO, __version__, schema_url=names.SCHEMA_URL),
        metrics.get_meter(names.MQ_DJANGO, __version__, schema_url=names.SCHEMA_URL),
    )


def _histogram(meter: metrics.Meter, name: str, description: str) -> metrics.Histogram:
    boundaries = list(names.DURATION_BOUNDARIES)
    return meter.create_histogram(name, names.SECONDS, description, explicit_bucket_boundaries_advisory=boundaries)


def _sending(queue: str) -> Attributes:
    """Return the attributes of spans and metrics about publishing. None of them has many values."""
    return _operation(names.PUBLISH, names.SEND, queue)


def _processing(handling: Handling) -> Attributes:
    """Return the attributes of spans and metrics about handling. None of them has many values."""
    destination, _, group = handling.queue.partition(":")
    found = _operation(names.PROCESS, names.PROCESS, destination) | {names.HANDLER: handling.handler}
    if group:
        found[names.CONSUMER_GROUP_NAME] = group
    return found


def _operation(name: str, kind: str, destination: str) -> Attributes:
    about = {names.SYSTEM: names.MQ_DJANGO, names.OPERATION_NAME: name, names.OPERATION_TYPE: kind}
    return {**about, names.DESTINATION_NAME: destination}


def _of_messages(messages: Sequence[Message], more: Mapping[str, str] = NO_HEADERS) -> Attributes:
    if len(messages) != 1:
        return {names.BATCH_MESSAGE_COUNT: len(messages)}
    message = messages[0]
    found: Attributes = {names.MESSAGE_ID: message.id, names.MESSAGE_TYPE: message.name}
    conversation = message.headers.get(CORRELATION_HEADER) or more.get(CORRELATION_HEADER)
    if conversation:
        found[names.CONVERSATION_ID] = conversation
    return found


# Contexts in the headers of messages.

_NOT_IN_NAMES = re.compile(r"[^a-z0-9]")


def _header_name(field: str) -> str:
    """Return the name that a field of a propagator has in a message: `X-B3-TraceId` is `xb3traceid`."""
    return _NOT_IN_NAMES.sub("", field.lower())


class _HeaderSetter(Setter[dict[str, str]]):
    """Writes the fields of a propagator to headers."""

    def set(self, carrier: dict[str, str], key: str, value: str) -> None:
        """Set a header, unless no message can have one of its name."""
        name = _header_name(key)
        if HEADER_NAME.fullmatch(name) and name not in RESERVED:
            carrier[name] = value


class _HeaderGetter(Getter[Mapping[str, str]]):
    """Reads the fields of a propagator from headers."""

    def get(self, carrier: Mapping[str, str], key: str) -> list[str] | None:
        """Return the values of a field, None without one."""
        found = carrier.get(_header_name(key))
        return None if found is None else [found]

    def keys(self, carrier: Mapping[str, str]) -> list[str]:
        """Return the names of all headers."""
        return list(carrier)


_GETTER, _SETTER = _HeaderGetter(), _HeaderSetter()


def _inject(call: PublishCall) -> None:
    """Add the current context to the headers of all messages of a call."""
    if may_add_headers(call):
        propagate.inject(call.headers, setter=_SETTER)


def _extracted(headers: Mapping[str, str], base: contexts.Context) -> contexts.Context:
    """Return a context with what came in headers. Invalid values are left out."""
    if not headers:
        return base
    try:
        return propagate.extract(headers, base, _GETTER)
    except Exception:
        # Other programs write headers, and a project may have a propagator of its own.
        logger.warning("The context in the headers of a message cannot be read", exc_info=True)
        return base


def _own_context(call: PublishCall) -> trace.SpanContext:
    """Return the context that the caller has put into the headers of the messages, or an invalid one.

    All messages of a call have the same headers of their own.
    """
    headers = call.messages[0].headers
    if headers and not headers.keys().isdisjoint(map(_header_name, propagate.get_global_textmap().fields)):
        return trace.get_current_span(_extracted(headers, contexts.Context())).get_span_context()
    return trace.INVALID_SPAN_CONTEXT
