"""Correlation ids: one id for a request and for everything that its messages do.

`correlate_requests` belongs to Django's `MIDDLEWARE`, the two functions for messages to `MQ_DJANGO["MIDDLEWARE"]`.
"""

import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from mq_django.core.ids import CORRELATION_HEADER, correlation_id_in, valid_correlation_id
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

#: The headers of a request that may have its id. A response has the first, or the one of its request.
REQUEST_HEADERS = ("X-Request-ID", "X-Correlation-ID")
#: The id of records without one, because formats need a value.
NO_ID = "-"

_current: ContextVar[str | None] = ContextVar("mq_django_correlation_id", default=None)


def get_correlation_id() -> str | None:
    """Return the correlation id of the current request or message, or None."""
    return _current.get()


@contextmanager
def correlated(correlation_id: str | None = None) -> Iterator[str]:
    """Run a block with a correlation id, and yield this id. For commands, and for other transports than HTTP.

    Args:
        correlation_id: 1 to 128 printable ASCII characters without spaces. None, or any other text: a new one.
    """
    found = valid_correlation_id(correlation_id) or secrets.token_hex(16)
    token = _current.set(found)
    try:
        yield found
    finally:
        _current.reset(token)


@sync_and_async_middleware
def correlate_requests(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Give each request a correlation id: an entry of Django's `MIDDLEWARE`.

    The id is that of the request's header `X-Request-ID` or `X-Correlation-ID`, or a new one. The response has it, too.

    Args:
        get_response: the next middleware.
    """

    async def amiddleware(request: HttpRequest) -> HttpResponseBase:
        header, given = _given(request)
        with correlated(given) as found:
            response: HttpResponseBase = await get_response(request)
        response.headers[header] = found
        return response

    def middleware(request: HttpRequest) -> HttpResponseBase:
        header, given = _given(request)
        with correlated(given) as found:
            response: HttpResponseBase = get_response(request)
        response.headers[header] = found
        return response

    return amiddleware if iscoroutinefunction(get_response) else middleware


def _given(request: HttpRequest) -> tuple[str, str | None]:
    """Return the header for the response, and the id that the request has in it."""
    for header in REQUEST_HEADERS:
        if given := request.headers.get(header):
            return header, given
    return REQUEST_HEADERS[0], None


@around_publishing
def send_correlation_id(publish: Publish) -> Publish:
    """Put the current correlation id into the header `correlationid` of messages.

    A message with such a header of its own keeps that.

    Args:
        publish: the next middleware.
    """

    def middleware(call: PublishCall) -> Sequence[str | None]:
        current = _current.get()
        if current is not None and may_add_headers(call):
            call.headers.setdefault(CORRELATION_HEADER, current)
        return publish(call)

    return middleware


@around_handling
@sync_and_async_middleware
def receive_correlation_id(handle: Any) -> Handle | AsyncHandle:
    """Let handlers run with the correlation id of their message. Without one, it is the id of the message.

    A call with a batch has the id that all its messages have, or a new one.

    Args:
        handle: the next middleware.
    """
    return around(handle, _correlated)


@contextmanager
def _correlated(handling: Handling) -> Iterator[Ended]:
    with correlated(_received(handling)):
        yield lambda _: None


def _received(handling: Handling) -> str | None:
    """Return the id of a message; of a batch the one that all its messages have, or None."""
    found = {correlation_id_in(message.headers) or message.id for message in handling.messages}
    return found.pop() if len(found) == 1 else None


class CorrelationIdFilter(logging.Filter):
    """Adds the attribute `correlation_id` to log records, unless they have it. Without an id it is `-`."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True: every record is logged."""
        if not hasattr(record, "correlation_id"):
            record.correlation_id = _current.get() or NO_ID
        return True
