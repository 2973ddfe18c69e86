"""Readers of streams of messages. Entries are written as the protocol says, by hand."""

import asyncio
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.exceptions import SynchronousOnlyOperation

from mq_django.conf import get_config
from mq_django.core import ids, offsets
from mq_django.core.partitions import number_in_id
from mq_django.errors import (
    ConnectionLost,
    InvalidWait,
    NotSupported,
    StreamNotFound,
    UnknownQueue,
    UnknownTopic,
    WaitTimeout,
)
from mq_django.producers import message_streams, watcher
from mq_django.producers.message_streams import aread_stream, hubs, open_reader, read_stream
from mq_django.stores import message_streams as stored_streams
from mq_django.stores.message_streams import Page
from mq_django.transport.connections import get_client
from mq_django.transport.private_server import PrivateServer
from mq_django.transport.subscription import Subscription
from tests.testapp import tasks
from tests.waiting import wait_until
from tests.working import work

#: Seconds: what is waited for comes by a notification long before.
LONG = 60
QUEUES = {"default": {"STREAM": True}, "emails": {"STREAM": True}, "plain": {}}


@pytest.fixture(autouse=True)
def streams(mq_settings, monkeypatch):
    monkeypatch.setattr(watcher, "TRY_AGAIN", 0.01)
    monkeypatch.setattr(message_streams, "TRY_AGAIN", 0.01)
    mq_settings(QUEUES=QUEUES)
    yield
    hubs.forget_all()
    watcher.watchers.forget_all()


@pytest.fixture
def no_looks(monkeypatch):
    """Nobody looks again: what is new is known only by its notification."""
    monkeypatch.setattr(message_streams, "LOOK_EVERY", 3600.0)


@pytest.fixture
def in_background():
    """Call a function in a thread, and return its future."""
    with ThreadPoolExecutor(8) as pool:
        yield pool.submit


class Writer:
    """Writes the stream of one message."""

    def __init__(self, message_id="m1", queue="default"):
        self.config = get_config().queue(queue)
        self.id, self.key = message_id, self.config.keys.message_stream(message_id)
        self.client = get_client("consume", self.config.connection, key=self.key)
        self.run, self.attempt, self.number, self.total = "a" * 8, 1, 0, 0

    def add(self, kind, value, *, heard=True):
        self.number += 1
        self.total += len(value)
        fields = {"run": self.run, "attempt": self.attempt, "number": self.number, "total": self.total, kind: value}
        entry = self.client.xadd(self.key, fields)
        if heard:
            self.client.publish(self.key, entry)
        return entry.decode()

    def texts(self, *texts, heard=True):
        return [self.add("text", text, heard=heard) for text in texts]

    def restart(self):
        self.attempt, self.number, self.run = self.attempt + 1, -1, "b" * 8
        return self.add("restart", "")

    def end(self, outcome="handled", error=None):
        return self.add("end", json.dumps({"outcome": outcome, **({"error": error} if error else {})}))


@pytest.fixture
def writer():
    return Writer()


def hub():
    return hubs.of("")


def last_entry(writer):
    ((entry, _),) = writer.client.xrevrange(writer.key, count=1)
    return entry.decode()


def await_following(key, readers=1):
    """Wait until so many readers follow a stream, and its subscription has begun."""
    wait_until(lambda: key in hub()._followed and len(hub()._followed[key].readers) == readers)
    client = get_client("produce", key=key)
    wait_until(lambda: client.pubsub_numsub(key)[0][1] == 1)


def values(chunks):
    return [chunk.value if chunk.kind == "text" else chunk.kind for chunk in chunks]


def read(message="m1", **options):
    return values(read_stream(message, **{"timeout": LONG, "queue": "default", **options}))


def test_a_stream_that_has_ended_is_replayed(writer):
    writer.texts("a", "b")
    writer.add("json", '{"n": 1}')
    writer.add("bytes", "AAE=")
    writer.add("log", "20 of 300")
    writer.end("buried", "ValueError: no")
    found = list(read_stream("m1", queue="default"))
    assert [(each.kind, each.value) for each in found] == [
        ("text", "a"),
        ("text", "b"),
        ("json", {"n": 1}),
        ("bytes", b"\0\1"),
        ("log", "20 of 300"),
        ("end", None),
    ]
    assert [each.number for each in found] == [1, 2, 3, 4, 5, 6]
    assert (found[-1].outcome, found[-1].error) == ("buried", "ValueError: no")
    assert hub()._followed == {}


@pytest.mark.usefixtures("no_looks")
def test_a_reader_replays_and_then_follows(writer, in_background):
    writer.texts("a", "b")
    found = read_stream("m1", queue="default", timeout=LONG)
    assert values([next(found), next(found)]) == ["a", "b"]
    for text in "cde":
        following = in_background(next, found)
        await_following(writer.key)
        writer.texts(text)
        assert following.result(LONG).value == text
    rest = in_background(list, found)
    writer.end()
    assert values(rest.result(LONG)) == ["end"]
    assert hub()._followed == {}


@pytest.mark.usefixtures("no_looks")
@pytest.mark.parametrize("page", [1, 2, 100])
def test_from_each_entry_on_a_reader_gets_the_others(writer, monkeypatch, in_background, page):
    monkeypatch.setattr("mq_django.stores.message_streams.PAGE", page)
    texts = [f"{n}" for n in range(5)]
    entries = writer.texts(*texts)
    reading = [in_background(read, after=entry) for entry in entries]
    await_following(writer.key, readers=5)
    writer.texts("last")
    end = writer.end()
    for at, each in enumerate(reading):
        assert each.result(LONG) == [*texts[at + 1 :], "last", "end"]
    assert read(after=end) == []
    assert read(after="0-0") == [*texts, "last", "end"]


def test_what_is_no_entry_of_ours_is_left_out(writer):
    writer.client.xadd(writer.key, {"other": "x"})
    writer.texts("a")
    writer.add("json", "{")
    writer.client.xadd(writer.key, {"run": "r", "attempt": "x", "number": 1, "text": "no"})
    writer.end()
    writer.add("bytes", "?")
    assert read() == ["a", "end"]


@pytest.mark.usefixtures("no_looks")
def test_readers_of_one_stream_are_served_by_one_subscription(writer, in_background):
    reading = [in_background(read) for _ in range(3)]
    await_following(writer.key, readers=3)
    writer.texts("a", "b")
    writer.end()
    assert [each.result(LONG) for each in reading] == [["a", "b", "end"]] * 3


@pytest.mark.usefixtures("no_looks")
def test_a_slow_reader_gets_each_chunk_once_and_delays_nobody(writer, monkeypatch, in_background):
    monkeypatch.setattr(message_streams, "BUFFERED", 3)
    slow = read_stream("m1", queue="default", timeout=LONG)
    first = in_background(next, slow)
    await_following(writer.key)
    writer.texts("0")
    found = [first.result(LONG)]
    quick = in_background(read)
    await_following(writer.key, readers=2)
    for n in range(1, 30):
        writer.texts(str(n))
    writer.end()
    texts = [str(n) for n in range(30)]
    assert quick.result(LONG) == [*texts, "end"]
    assert values([*found, *slow]) == [*texts, "end"]


@pytest.mark.usefixtures("no_looks")
def test_a_reader_takes_no_more_than_its_buffer_holds(writer, monkeypatch):
    monkeypatch.setattr(message_streams, "BUFFERED", 3)
    reader = open_reader("m1", queue="default")
    reader.fetch()
    await_following(writer.key)
    writer.texts(*"abcde")
    wait_until(lambda: reader.must_fetch)
    assert len(reader._buffer) <= 3
    assert hub()._followed == {}
    found = values(reader.take())
    reader.fetch()
    assert [*found, *values(reader.take())] == list("abcde")
    reader.close()


@pytest.mark.usefixtures("no_looks")
def test_a_buffer_with_a_page_of_its_own_takes_nothing_more(writer, monkeypatch):
    monkeypatch.setattr(message_streams, "BUFFERED", 3)
    writer.texts(*"abcde")
    reader = open_reader("m1", queue="default")
    reader.fetch()
    await_following(writer.key)
    writer.texts("f")
    wait_until(lambda: reader.must_fetch)
    assert values(reader.take()) == list("abcde")
    reader.fetch()
    assert values(reader.take()) == ["f"]
    reader.close()


@pytest.mark.usefixtures("no_looks")
def test_a_reader_may_be_closed_while_its_hub_hands_over(writer, monkeypatch):
    """As the garbage collector does with an abandoned iterator."""
    reader = open_reader("m1", queue="default")
    reader.fetch()
    await_following(writer.key)
    offered = threading.Event()

    def offer(after, page):
        reader.close()
        offered.set()
        return False

    monkeypatch.setattr(reader, "offer", offer)
    writer.texts("a")
    assert offered.wait(LONG)
    wait_until(lambda: hub()._followed == {})


def test_a_reader_reads_again_what_the_hub_leaves_out(writer, monkeypatch):
    monkeypatch.setattr(message_streams.StreamHub, "_read_due", lambda self: False)
    writer.texts("a")
    reader = open_reader("m1", queue="default")
    reader.fetch()
    left_out, offered = (offsets.parse(each) for each in writer.texts("b", "c", heard=False))
    assert not reader.offer(left_out, Page((), offered))
    assert reader.must_fetch
    reader.fetch()
    assert values(reader.take()) == ["a", "b", "c"]
    reader.close()


@pytest.mark.usefixtures("no_looks")
def test_several_pages_are_read_without_a_pause(writer, monkeypatch, in_background):
    """Else a reader would get a page each quarter of a second of what came at once."""
    monkeypatch.setattr(stored_streams, "PAGE", 2)
    waits, messages = [], Subscription.messages
    monkeypatch.setattr(Subscription, "messages", lambda self, wait: waits.append(wait) or messages(self, wait))
    reading = in_background(read)
    await_following(writer.key)
    writer.texts(*"abcdefghijklmnopqrst", heard=False)
    writer.end()
    assert len(reading.result(LONG)) == 21
    assert waits.count(0.0) >= 9


def test_another_attempt_begins_with_a_restart(writer):
    writer.texts("a")
    writer.restart()
    writer.texts("a", "b")
    writer.end()
    found = list(read_stream("m1", queue="default"))
    assert values(found) == ["a", "restart", "a", "b", "end"]
    assert [(each.attempt, each.number) for each in found] == [(1, 1), (2, 0), (2, 1), (2, 2), (2, 3)]


@pytest.mark.usefixtures("no_looks")
def test_an_end_that_is_followed_by_more_is_none(writer, in_background, monkeypatch):
    writer.texts("a")
    writer.end("buried")
    writer.restart()
    reading = in_background(read)
    await_following(writer.key)
    writer.texts("b")
    writer.end()
    assert reading.result(LONG) == ["a", "end", "restart", "b", "end"]
    monkeypatch.setattr("mq_django.stores.message_streams.PAGE", 2)
    assert read() == ["a", "end", "restart", "b", "end"]


# What is not heard.


def test_a_lost_notification_delays_a_chunk(writer, monkeypatch, in_background):
    monkeypatch.setattr(message_streams, "LOOK_EVERY", 0.0)
    monkeypatch.setattr(message_streams, "PAUSE", 0.05)
    reading = in_background(read)
    await_following(writer.key)
    writer.texts("a", heard=False)
    wait_until(lambda: hub()._followed[writer.key].position > (0, 0))
    writer.end()
    assert reading.result(LONG) == ["a", "end"]


@pytest.mark.usefixtures("no_looks")
def test_readers_wait_out_a_restart_of_redis_and_read_what_came_unheard(mq_settings, in_background, tmp_path):
    settings = {"appendfsync": "always"}
    with PrivateServer(directory=tmp_path, append_only=True, settings=settings, tcp=True) as server:
        mq_settings(CONNECTION=server.url, QUEUES=QUEUES)
        writer = Writer()
        writer.texts("a")
        reading = in_background(read)
        await_following(writer.key)
        writer.texts("b", heard=False)
        server.kill()
        server.start()
        get_client("consume", "").connection_pool.disconnect()
        wait_until(lambda: hub()._followed[writer.key].position == offsets.parse(last_entry(writer)))
        writer.texts("c")
        writer.end()
        assert reading.result(LONG) == ["a", "b", "c", "end"]
        hubs.forget_all()


def test_a_redis_that_cannot_be_reached_is_an_error_at_once(monkeypatch):
    def lost(*_):
        raise ConnectionLost("gone")

    monkeypatch.setattr(message_streams, "read_after", lost)
    with pytest.raises(ConnectionLost, match="gone"):
        read()
    assert hub()._followed == {}


@pytest.mark.usefixtures("no_looks")
def test_a_page_that_cannot_be_read_later_is_read_again(writer, monkeypatch):
    monkeypatch.setattr("mq_django.stores.message_streams.PAGE", 2)
    writer.texts("a", "b", "c")
    writer.end()
    pages = message_streams.read_after
    found = read_stream("m1", queue="default", timeout=LONG)
    assert next(found).value == "a"
    calls = []

    def lost_once(*args):
        calls.append(args)
        if len(calls) == 1:
            raise ConnectionLost("gone")
        return pages(*args)

    monkeypatch.setattr(message_streams, "read_after", lost_once)
    assert values(found) == ["b", "c", "end"]
    assert len(calls) > 1


def test_a_key_that_is_no_stream_has_no_chunks_and_harms_no_other(in_background, monkeypatch):
    monkeypatch.setattr(message_streams, "LOOK_EVERY", 0.0)
    good, bad = Writer("good"), Writer("bad")
    reading = in_background(read, "good"), in_background(read, "bad")
    await_following(good.key)
    await_following(bad.key)
    bad.client.set(bad.key, "text")
    bad.client.publish(bad.key, "1-1")
    good.texts("a")
    good.end()
    assert reading[0].result(LONG) == ["a", "end"]
    with pytest.raises(WaitTimeout):
        read("bad", timeout=0)
    bad.client.delete(bad.key)
    bad.texts("b")
    bad.end()
    assert reading[1].result(LONG) == ["b", "end"]


# Where nothing comes.


def test_a_timeout_counts_from_the_last_chunk(writer):
    writer.texts("a")
    found = read_stream("m1", queue="default", timeout=0.05)
    assert next(found).value == "a"
    with pytest.raises(WaitTimeout, match=r"m1 has streamed nothing for 0\.05 s") as raised:
        next(found)
    assert raised.value.missing == ["m1"]
    assert hub()._followed == {}


def test_a_task_that_has_ended_without_a_stream():
    result = tasks.shout.enqueue("hello")
    work("default")
    with pytest.raises(StreamNotFound, match=result.id):
        next(read_stream(result))
    with pytest.raises(StreamNotFound, match=result.id):
        next(read_stream(result.id, after="5-0"))


def test_behind_the_end_of_a_task_there_is_nothing(writer):
    result = tasks.shout.enqueue("hello")
    work("default")
    Writer(result.id).texts("a")
    assert list(read_stream(result, after=f"{2**63}-0")) == []


@pytest.mark.usefixtures("no_looks")
def test_a_task_that_ends_without_a_stream_while_it_is_awaited(in_background):
    result = tasks.shout.enqueue("hello")
    reading = in_background(list, read_stream(result, timeout=LONG))
    keys = get_config().queue("default").keys
    client = get_client("produce", key=keys.waiters)
    wait_until(lambda: client.hexists(keys.waiters, keys.result(result.id)))
    await_following(keys.message_stream(result.id))
    work("default")
    with pytest.raises(StreamNotFound, match=result.id):
        reading.result(LONG)


def test_a_task_that_ends_with_a_stream_is_no_such_task(in_background):
    result = tasks.shout.enqueue("hello")
    writer = Writer(result.id)
    reading = in_background(list, read_stream(result, timeout=LONG))
    await_following(writer.key)
    writer.texts("a")
    # The script that settles ends the stream.
    work("default")
    assert values(reading.result(LONG)) == ["a", "end"]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"after": "x"}, InvalidWait, "after= is the id of a chunk, such as 1700000000000-0, not 'x'"),
        ({"after": "1"}, InvalidWait, "after="),
        ({"after": f"{2**64}-0"}, InvalidWait, "after="),
        ({"after": "٣-٣"}, InvalidWait, "after="),
        ({"after": 7}, InvalidWait, "after="),
        ({"timeout": -1}, InvalidWait, "timeout"),
        ({"timeout": "5"}, InvalidWait, "timeout"),
        ({"queue": "missing"}, UnknownQueue, "missing"),
        ({"queue": "missing:group"}, UnknownTopic, "missing"),
        ({"queue": "plain"}, NotSupported, "Queue 'plain' keeps no streams: set STREAM in its settings"),
    ],
)
def test_arguments_are_checked_before_anything_is_read(options, error, text):
    for function in (read_stream, aread_stream):
        with pytest.raises(error, match=text):
            function("m1", **{"queue": "default", **options})


@pytest.mark.parametrize("message", [None, 7, "", b"m1", "\udc80", "x" * 20_000])
def test_what_names_no_message_is_refused(message):
    with pytest.raises(InvalidWait, match="Give the result"):
        read_stream(message)


def test_a_project_without_streams_is_told_so(mq_settings):
    mq_settings(QUEUES={"default": {}})
    with pytest.raises(NotSupported, match="No queue keeps streams: set STREAM in the settings of one"):
        read_stream("m1")
    with pytest.raises(NotSupported, match="Queue 'default' keeps no streams"):
        read_stream(tasks.shout.enqueue("a"))


# Where the stream is.


def test_without_a_queue_the_one_that_has_the_stream_is_found(in_background):
    reading = in_background(read, queue=None)
    Writer("other").end()
    writer = Writer(queue="emails")
    writer.texts("a")
    await_following(writer.key)
    assert list(hub()._followed) == [writer.key]
    writer.end()
    assert reading.result(LONG) == ["a", "end"]
    assert read(queue=None) == ["a", "end"]


@pytest.mark.usefixtures("no_looks")
def test_the_stream_of_a_task_is_expected_where_its_result_is(in_background):
    result = tasks.shout.using(queue_name="emails").enqueue("hello")
    reading = in_background(read, result.id, queue=None)
    writer = Writer(result.id, queue="emails")
    await_following(writer.key)
    writer.end()
    assert reading.result(LONG) == ["end"]


def test_the_stream_of_a_partition_is_found(mq_settings, in_background):
    mq_settings(QUEUES={"default": {"STREAM": True, "PARTITIONS": 4}, "emails": {"STREAM": True}})
    config = get_config().queue("default")
    custom, generated = "custom", config.parts[2].new_id()
    assert number_in_id(generated) == 2
    for message_id, number in ((custom, 3), (generated, 2)):
        writer = Writer(message_id, f"default.{number}")
        reading = in_background(read, message_id)
        if message_id == generated:
            # Its id says where to wait for it.
            await_following(writer.key)
        writer.texts("a")
        writer.end()
        assert reading.result(LONG) == ["a", "end"]
        assert read(message_id, queue=None) == ["a", "end"]
        assert read(message_id, queue=f"default.{number}") == ["a", "end"]


def test_streams_of_groups_and_of_queues_in_rsmq_s_format(mq_settings, namespace):
    rsmq = {"STORE": "rsmq", "STREAM": True, "NAMESPACE": f"{{{namespace}}}"}
    mq_settings(QUEUES={"jobs": rsmq}, TOPICS={"orders": {"STREAM": True, "PARTITIONS": 2}})
    for queue, message_id in (("jobs", "a" * 32), ("orders.1:billing", ids.new_id() + ".1")):
        writer = Writer(message_id, queue)
        writer.texts("a")
        writer.end()
        assert read(message_id, queue=queue) == ["a", "end"]
    assert read(message_id, queue="orders:billing") == ["a", "end"]


@pytest.mark.cluster
def test_streams_on_a_cluster(cluster, mq_settings, in_background):
    mq_settings(CONNECTION=cluster.url, QUEUES={"default": {"STREAM": True, "PARTITIONS": 8}})
    config = get_config().queue("default")
    writers = [Writer(part.new_id(), part.name) for part in config.parts]
    reading = [in_background(read, writer.id) for writer in writers]
    wait_until(lambda: len(hub()._followed) == 8)
    for writer in writers:
        writer.texts("a", "b")
        writer.end()
    assert [each.result(LONG) for each in reading] == [["a", "b", "end"]] * 8


# Ends of readers, threads and processes.


def test_a_reader_that_is_closed_is_forgotten(writer):
    writer.texts("a", "b")
    found = read_stream("m1", queue="default")
    next(found)
    assert list(hub()._followed) == [writer.key]
    found.close()
    assert hub()._followed == {}
    client = get_client("produce", key=writer.key)
    wait_until(lambda: client.pubsub_numsub(writer.key)[0][1] == 0)


def test_a_reader_that_never_begins_leaves_nothing(writer):
    read_stream("m1", queue="default").close()
    assert hub()._followed == {}


def test_the_thread_ends_when_nobody_reads(writer, monkeypatch, in_background):
    monkeypatch.setattr(watcher, "IDLE", 0.0)
    writer.texts("a")
    for _ in range(2):
        found = read_stream("m1", queue="default", timeout=LONG)
        assert next(found).value == "a"
        assert hub()._thread is not None
        found.close()
        wait_until(lambda: hub()._thread is None)


def test_what_has_ended_is_read_without_a_thread(writer):
    writer.end()
    assert read() == ["end"]
    assert hub()._thread is None


def test_a_page_that_is_loaded_again_at_once_misses_nothing(writer, in_background):
    writer.texts("a")
    for number in range(20):
        found = read_stream("m1", queue="default", timeout=LONG)
        assert [next(found).value for _ in range(number + 1)] == ["a"] * (number + 1)
        following = in_background(next, found)
        wait_until(lambda: writer.key in hub()._followed)
        writer.texts("a")
        assert following.result(LONG).value == "a"
        found.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_process_reads_by_itself(writer, in_background):
    reading = in_background(read)
    await_following(writer.key)
    writer.texts("a")
    child = os.fork()
    if not child:
        ended = 1
        try:
            found = read_stream("m1", queue="default", timeout=LONG)
            ended = 0 if next(found).value == "a" and hub()._thread is not None else 2
            ended = ended or (0 if values(found) == ["b", "end"] else 3)
        finally:
            os._exit(ended)
    client = get_client("produce", key=writer.key)
    wait_until(lambda: client.pubsub_numsub(writer.key)[0][1] == 2)
    writer.texts("b")
    writer.end()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert reading.result(LONG) == ["a", "b", "end"]


def test_rest_costs_a_command_for_500_streams_in_10_seconds(monkeypatch, writer):
    readers = [open_reader(f"m{n}", queue="default") for n in range(120)]
    monkeypatch.setattr(message_streams, "STREAMS", 50)
    hub()._run = lambda: None
    for reader in readers:
        reader.fetch()
    groups = []
    monkeypatch.setattr(
        message_streams,
        "read_after",
        lambda _, each: groups.extend(each) or {key: Page() for group in each for key in group},
    )
    monkeypatch.setattr(message_streams.time, "monotonic", now := Clock())
    hub()._due.clear()
    for _ in range(40):
        now.seconds += 0.5
        hub()._read_due()
    assert [len(group) for group in groups] == [50, 50, 20] * 2
    for reader in readers:
        reader.close()


class Clock:
    """A monotonic clock that a test moves."""

    seconds = 1_000_000.0

    def __call__(self):
        return self.seconds


# On an event loop.


def arun(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, LONG))


async def acollect(message="m1", **options):
    return values([chunk async for chunk in aread_stream(message, **{"queue": "default", "timeout": LONG, **options})])


@pytest.mark.usefixtures("no_looks")
def test_an_event_loop_reads_the_same(writer, in_background):
    writer.texts("a")

    async def read_all():
        return await asyncio.gather(acollect(), acollect(after="0-0"))

    reading = in_background(arun, read_all())
    await_following(writer.key, readers=2)
    writer.texts("b")
    writer.end()
    assert reading.result(LONG) == [["a", "b", "end"]] * 2
    assert hub()._followed == {}


def test_an_event_loop_gets_the_same_errors(writer):
    with pytest.raises(WaitTimeout):
        arun(acollect(timeout=0.05))
    result = tasks.shout.enqueue("hello")
    work("default")
    with pytest.raises(StreamNotFound):
        arun(acollect(result.id))
    assert hub()._followed == {}


def test_a_reader_that_is_cancelled_is_forgotten(writer):
    async def cancel():
        reading = asyncio.ensure_future(acollect())
        await asyncio.to_thread(await_following, writer.key)
        reading.cancel()
        await asyncio.wait([reading])
        assert reading.cancelled()

    arun(cancel())
    assert hub()._followed == {}


def test_an_event_loop_is_not_blocked():
    async def blocked():
        read_stream("m1", queue="default")

    with pytest.raises(SynchronousOnlyOperation, match="aread_stream"):
        arun(blocked())


def test_a_reader_whose_event_loop_is_closed_harms_no_other(writer, in_background):
    reader = open_reader("m1", queue="default")
    loop = asyncio.new_event_loop()
    reader.wake = lambda: loop.call_soon_threadsafe(print)
    loop.close()
    reader.fetch()
    reading = in_background(read)
    await_following(writer.key, readers=2)
    writer.end()
    assert reading.result(LONG) == ["end"]
    reader.close()
