"""The view that sends a stream as Server-Sent Events, and its template tag."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import request_finished
from django.db import close_old_connections
from django.http import Http404
from django.middleware.gzip import GZipMiddleware
from django.template import Context, Template
from django.test import AsyncRequestFactory, RequestFactory

from mq_django import views
from mq_django.errors import ConnectionLost, NotSupported
from mq_django.producers import message_streams, watcher
from mq_django.producers.message_streams import hubs
from mq_django.views import message_stream
from tests.producers.test_message_streams import LONG, QUEUES, Writer, await_following, hub
from tests.testapp import tasks
from tests.working import work


def everybody(request, message_id):
    return True


async def nobody(request, message_id):
    return False


@pytest.fixture(autouse=True)
def streams(mq_settings, monkeypatch):
    monkeypatch.setattr(watcher, "TRY_AGAIN", 0.01)
    # What is new is known only by its notification.
    monkeypatch.setattr(message_streams, "LOOK_EVERY", 3600.0)
    mq_settings(QUEUES=QUEUES)
    # As Django's own client does: a response that is closed would look at the databases of earlier tests.
    request_finished.disconnect(close_old_connections)
    yield
    request_finished.connect(close_old_connections)
    hubs.forget_all()
    watcher.watchers.forget_all()
    assert views._readers == set()


@pytest.fixture
def writer():
    return Writer()


def get(message_id="m1", *, query=None, may_read=everybody, queue="default", **headers):
    request = RequestFactory().get("/", query, headers=headers)
    return message_stream(request, message_id, may_read=may_read, queue=queue)


def aget(message_id="m1"):
    """Call the view as Django does under ASGI: in a thread."""
    request = AsyncRequestFactory().get("/")
    return asyncio.to_thread(message_stream, request, message_id, may_read=everybody, queue="default")


def read_all(response):
    text = b"".join(response).decode()
    response.close()
    return text


def events(text):
    """Return the events in a response, as id, event and data."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.partition(": ")[::2] for line in block.splitlines())
        if "event" in fields:
            found.append((fields["id"], fields["event"], json.loads(fields["data"])))
    return found


def test_a_stream_is_sent_as_events(writer):
    (first,) = writer.texts("a\nb")
    writer.add("bytes", "AAE=")
    writer.add("json", '{"n": 1}')
    writer.add("log", "20 of 300")
    writer.restart()
    writer.end("buried", "ValueError: secret")
    response = get()
    assert response.status_code == 200
    assert response["Content-Type"] == "text/event-stream"
    assert response["Cache-Control"] == "no-cache, no-transform"
    assert response["X-Accel-Buffering"] == "no"
    text = read_all(response)
    assert "secret" not in text
    found = events(text)
    assert found[0] == (first, "text", {"attempt": 1, "number": 1, "text": "a\nb"})
    assert [(event, data) for _, event, data in found[1:]] == [
        ("bytes", {"attempt": 1, "number": 2, "bytes": "AAE="}),
        ("json", {"attempt": 1, "number": 3, "json": {"n": 1}}),
        ("log", {"attempt": 1, "number": 4, "log": "20 of 300"}),
        ("restart", {"attempt": 2, "number": 0}),
        ("end", {"attempt": 2, "number": 1, "outcome": "buried"}),
    ]


def test_a_browser_goes_on_where_it_was_and_stops_at_the_end(writer):
    entries = writer.texts("a", "b")
    end = writer.end()
    expected = events(read_all(get()))
    assert events(read_all(get(**{"Last-Event-ID": entries[0]}))) == expected[1:]
    assert events(read_all(get(query={"after": entries[0]}))) == expected[1:]
    # The header is that of the last connection, and the query that of the page.
    assert events(read_all(get(query={"after": entries[0]}, **{"Last-Event-ID": entries[1]}))) == expected[2:]
    assert get(**{"Last-Event-ID": end}).status_code == 204


def test_an_id_of_no_chunk_is_refused():
    for after in ("x", "<script>", "1", "1-", f"{2**64}-1", "1-1\0"):
        for response in (get(query={"after": after}), get(**{"Last-Event-ID": after})):
            assert (response.status_code, response["Content-Type"]) == (400, "text/plain")
            assert after not in response.content.decode()


def test_an_id_of_no_message_is_refused():
    assert get("x" * 20_000).status_code == 400


def test_without_a_permission_nothing_is_sent():
    with pytest.raises(ImproperlyConfigured, match=r"message_stream\(\) needs may_read: a function .* Write path"):
        get(may_read=None)


@pytest.mark.parametrize("may_read", [lambda request, message_id: False, nobody])
def test_a_visitor_who_may_not_read_is_refused(may_read, writer):
    writer.end()
    assert get(may_read=may_read).status_code == 403
    assert get(may_read=may_read, query={"after": "x"}).status_code == 403


def test_the_permission_gets_the_request_and_the_id(writer):
    writer.end()
    asked = []

    async def may_read(request, message_id):
        asked.append((request.path, message_id))
        return True

    assert [event for _, event, _ in events(read_all(get(may_read=may_read)))] == ["end"]
    assert asked == [("/", "m1")]

    def hide(request, message_id):
        raise Http404

    with pytest.raises(Http404):
        get(may_read=hide)


def test_only_get_is_answered():
    for method in ("post", "head", "put", "delete", "options"):
        request = getattr(RequestFactory(), method)("/")
        assert message_stream(request, "m1", may_read=everybody, queue="default").status_code == 405


def test_a_queue_without_streams_is_an_error_of_the_project():
    with pytest.raises(NotSupported, match="Queue 'plain' keeps no streams"):
        get(queue="plain")


ENDED = b'event: end\ndata: {"outcome":"handled"}\n\n'


def test_a_task_that_has_ended_without_a_stream_has_an_end_alone():
    result = tasks.shout.enqueue("hello")
    work("default")
    response = get(result.id, queue=None)
    assert (response["Content-Type"], response.content) == ("text/event-stream", views.BEGINNING + ENDED)


def test_a_response_ends_if_its_task_ends_without_a_stream():
    result = tasks.shout.enqueue("hello")
    found = iter(get(result.id))
    assert next(found) == views.BEGINNING
    with ThreadPoolExecutor(1) as pool:
        rest = pool.submit(list, found)
        await_following(hub_key(result.id))
        work("default")
        assert rest.result(LONG) == [ENDED]


def hub_key(message_id):
    return Writer(message_id).key


def test_without_redis_a_client_is_told_to_come_again(monkeypatch):
    def lost(*_):
        raise ConnectionLost("gone")

    monkeypatch.setattr(message_streams, "read_after", lost)
    response = get()
    assert (response.status_code, response["Retry-After"]) == (503, "5")
    assert hub()._followed == {}


def test_a_process_has_a_limit_of_readers(mq_settings, writer):
    mq_settings(QUEUES=QUEUES, STREAM_READERS=2)
    writer.texts("a")
    one, two = get(), get()
    refused = get()
    assert (refused.status_code, refused["Retry-After"]) == (503, "5")
    # It has begun, and the other one has not.
    next(iter(two))
    one.close()
    two.close()
    assert hub()._followed == {}
    writer.end()
    assert "end" in read_all(get())


def test_silence_is_kept_alive(writer, monkeypatch):
    monkeypatch.setattr(views, "KEEP_ALIVE", 0.01)
    response = get()
    found = iter(response)
    assert [next(found), next(found), next(found)] == [views.BEGINNING, b": keep-alive\n\n", b": keep-alive\n\n"]
    response.close()


def test_a_response_ends_before_a_browser_s_patience_does(writer, monkeypatch):
    monkeypatch.setattr(views, "LONGEST", 0.05)
    monkeypatch.setattr(views, "KEEP_ALIVE", 0.0)
    found = read_all(get())
    assert events(found) == []
    monkeypatch.setattr(views, "KEEP_ALIVE", 15.0)
    assert read_all(get()) == views.BEGINNING.decode()


def test_compression_does_not_collect_events(writer):
    response = get()
    request = RequestFactory().get("/", headers={"Accept-Encoding": "gzip"})
    found = iter(GZipMiddleware(lambda _: response)(request))
    assert next(found) == views.BEGINNING
    response.close()


# ASGI.


def arun(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, LONG))


def test_under_asgi_no_thread_waits(writer):
    async def read():
        response = await aget()
        assert response.is_async
        found = aiter(response)
        assert await anext(found) == views.BEGINNING
        await asyncio.to_thread(writer.texts, "a", "b")
        text = await anext(found)
        await asyncio.to_thread(writer.end)
        text += b"".join([each async for each in found])
        await asyncio.to_thread(response.close)
        return events(text.decode())

    assert [event for _, event, _ in arun(read())] == ["text", "text", "end"]
    assert hub()._followed == {}


def test_under_asgi_a_silence_is_kept_alive(writer, monkeypatch):
    monkeypatch.setattr(views, "KEEP_ALIVE", 0.01)

    async def read():
        response = await aget()
        found = aiter(response)
        texts = [await anext(found) for _ in range(2)]
        await asyncio.to_thread(response.close)
        return texts

    assert arun(read()) == [views.BEGINNING, b": keep-alive\n\n"]


@pytest.mark.parametrize("began", [True, False])
def test_a_visitor_who_leaves_is_forgotten(writer, began):
    async def leave():
        response = await aget()

        async def send():
            async for _ in response:
                pass

        if began:
            sending = asyncio.ensure_future(send())
            await asyncio.to_thread(await_following, writer.key)
            sending.cancel()
            await asyncio.wait([sending])
            assert (hub()._followed, views._readers) == ({}, set())
        await asyncio.to_thread(response.close)

    arun(leave())
    assert hub()._followed == {}


# The template tag.


def test_the_tag_writes_an_element_and_a_script_of_its_own(settings):
    text = Template("{% load mq_django %}{% message_stream url %}").render(Context({"url": "/a?x=<1>&y"}))
    assert 'data-mq-stream="/a?x=&lt;1&gt;&amp;y"' in text
    assert f'<script src="/{settings.STATIC_URL.strip("/")}/mq_django/stream.js" defer></script>' in text
