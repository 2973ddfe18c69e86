"""Views for the URLs of a project: what a handler streams, as Server-Sent Events."""

import time
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, closing, suppress
from inspect import isawaitable
from typing import Any

from asgiref.sync import async_to_sync
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotAllowed, StreamingHttpResponse

from mq_django.conf import get_config
from mq_django.core.jsontext import dumps
from mq_django.core.message_streams import Chunk
from mq_django.errors import ConfigurationError, InvalidWait, StoreError, StreamNotFound, WaitTimeout
from mq_django.producers.message_streams import StreamReader, abatches, batches, open_reader

__all__ = ["message_stream"]

#: Seconds of silence after which a comment is sent, so that proxies keep the connection.
KEEP_ALIVE = 15.0
#: Seconds after which a response ends. The browser connects again.
LONGEST = 300.0
#: Seconds after which a client may ask again, if there are too many readers, or no Redis.
RETRY_AFTER = 5
#: The first event: milliseconds until a browser connects again.
BEGINNING = b"retry: 1000\n\n"
HEADERS = {
    "Cache-Control": "no-cache, no-transform",
    # Nginx would collect the events, and so would Django's GZipMiddleware, which leaves encoded responses alone.
    "X-Accel-Buffering": "no",
    "Content-Encoding": "identity",
}
NO_PERMISSION = (
    "message_stream() needs may_read: a function of the request and the id of the message, which returns whether this "
    "visitor may read its stream. Write path('answers/<str:id>', message_stream, {'may_read': may_read})"
)

#: Those of responses that have not ended.
_readers: set[StreamReader] = set()

MayRead = Callable[[HttpRequest, str], bool | Awaitable[bool]]


class EventResponse(StreamingHttpResponse):
    """The events of a stream, until its end or for LONGEST seconds."""

    def __init__(self, reader: StreamReader, *, is_async: bool) -> None:
        super().__init__((_aevents if is_async else _events)(reader), "text/event-stream", headers=HEADERS)
        reader.ends = time.monotonic() + LONGEST - KEEP_ALIVE
        self._reader = reader

    def close(self) -> None:
        """Forget the reader, also if nothing was sent."""
        super().close()
        _forget(self._reader)


def message_stream(
    request: HttpRequest,
    id: str,  # noqa: A002 - the name in URL patterns
    *,
    may_read: MayRead | None = None,
    queue: str | None = None,
) -> HttpResponseBase:
    """Send what the handler of a message streams as Server-Sent Events, from the beginning or after `Last-Event-ID`.

        path("answers/<str:id>", message_stream, {"may_read": may_read, "queue": "answers"})

    The `event` is the chunk's kind, the `data` are JSON with `attempt`, `number` and the value under the name of the
    kind: `{"attempt": 1, "number": 3, "text": "Because"}`. An `end` has its `outcome`, and never the error. A response
    ends after 5 minutes at most, and the browser connects again.

    Under ASGI a response costs no thread; under WSGI it occupies one until it ends.

    Args:
        request: a GET. Without the header, its query may have `after`.
        id: of the task or message.
        may_read: is called with the request and the id, and returns whether this visitor may read the stream. It may be
            a coroutine function.
        queue: as for read_stream().

    Returns:
        A response with the events. 204 after the end, so that the browser stops; 400 for an id of no chunk; 403; 503 if
        the process has `STREAM_READERS` readers, or Redis cannot be reached. A task that has ended without a stream
        has an `end` without an id.

    Raises:
        ConfigurationError: there is no `may_read`.
        UnknownQueue, UnknownTopic, NotSupported: there is no such queue, or it has no STREAM.
    """
    if may_read is None:
        raise ConfigurationError(NO_PERMISSION)
    if request.method != "GET":
        return HttpResponseNotAllowed(["GET"])
    allowed = may_read(request, id)
    if isawaitable(allowed):
        allowed = async_to_sync(_awaited)(allowed)
    if not allowed:
        return _refusal(403, "This stream is not for you.")
    after = request.headers.get("Last-Event-ID") or request.GET.get("after")
    try:
        reader = open_reader(id, queue=queue, after=after, timeout=LONGEST)
    except InvalidWait:
        return _refusal(400, "The id of a message, or that of a chunk, is not valid.")
    return _response(reader, is_async=isinstance(request, ASGIRequest))


def _response(reader: StreamReader, *, is_async: bool) -> HttpResponseBase:
    if len(_readers) >= get_config().stream_readers:
        return _refusal(503, "There are too many readers.")
    _readers.add(reader)
    try:
        reader.fetch()
        if not reader.is_over:
            return EventResponse(reader, is_async=is_async)
        refusal = HttpResponse(status=204)
    except StreamNotFound as error:
        refusal = HttpResponse(BEGINNING + _end_of(error), "text/event-stream", headers=HEADERS)
    except StoreError:
        refusal = _refusal(503, "Redis cannot be reached.")
    _forget(reader)
    return refusal


def _refusal(status: int, text: str) -> HttpResponse:
    headers = {"Retry-After": str(RETRY_AFTER)} if status == 503 else {}
    return HttpResponse(text, "text/plain", status, headers=headers)


async def _awaited(allowed: Awaitable[bool]) -> bool:
    return await allowed


def _forget(reader: StreamReader) -> None:
    _readers.discard(reader)
    reader.close()


def _events(reader: StreamReader) -> Iterator[bytes]:
    yield BEGINNING
    try:
        with suppress(WaitTimeout), closing(batches(reader, pause=KEEP_ALIVE)) as found:
            for chunks in found:
                yield _text_of(chunks)
    except StreamNotFound as error:
        yield _end_of(error)
    finally:
        _forget(reader)


async def _aevents(reader: StreamReader) -> AsyncIterator[bytes]:
    yield BEGINNING
    try:
        with suppress(WaitTimeout):
            async with aclosing(abatches(reader, pause=KEEP_ALIVE)) as found:
                async for chunks in found:
                    yield _text_of(chunks)
    except StreamNotFound as error:
        yield _end_of(error)
    finally:
        _forget(reader)


def _end_of(error: StreamNotFound) -> bytes:
    """Return the end of a task without a stream: a page waits for one."""
    return b'event: end\ndata: {"outcome":"%b"}\n\n' % error.outcome.encode()


def _text_of(chunks: Sequence[Chunk]) -> bytes:
    return b"".join(map(_event, chunks)) or b": keep-alive\n\n"


def _event(chunk: Chunk) -> bytes:
    data: dict[str, Any] = {"attempt": chunk.attempt, "number": chunk.number}
    if chunk.kind == "end":
        data["outcome"] = chunk.outcome
    elif chunk.kind != "restart":
        data[chunk.kind] = b64encode(chunk.value).decode() if chunk.kind == "bytes" else chunk.value
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (chunk.id.encode(), chunk.kind.encode(), dumps(data))
