"""The streams of messages in Redis, of each form of queue."""

import pytest
from redis.exceptions import ResponseError

from mq_django import queues
from mq_django.core.message_streams import RunStream
from mq_django.core.messages import ACK, Bury, Cancel, Expire, HandBack, Retry
from mq_django.errors import ConnectionLost, RedisOutOfMemory, ServerBusy
from mq_django.stores import message_streams
from mq_django.stores.base import Also, Settlement
from mq_django.stores.message_streams import UNFINISHED_MS, end_streams
from mq_django.transport.sessions import Pooled
from tests.stores.cases import CASES, LINES, OPTIONS, RSMQ, STREAM, outgoing
from tests.streamed import chunks_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.versions, pytest.mark.cluster]

ME, OTHER = "host-1-me", "host-2-other"
FORMS = [*CASES, LINES]
LIMITS = {"entries": 100, "bytes": 10_000, "ttl": 60}
in_streams = pytest.mark.parametrize("case", [STREAM], ids=["stream"], indirect=True)


@pytest.fixture(params=FORMS, ids=lambda case: case.name)
def case(request, mq_settings, namespace):
    mq_settings(**request.param.limited(namespace, STREAM=LIMITS))
    return request.param


@pytest.fixture
def store(case):
    opened = case.open()
    assert opened.take("host-0-first", count=1) == []
    return opened


@pytest.fixture
def take(case, store):
    """Publish messages and take them."""

    def take(count=1, who=ME):
        case.publish(store, *(outgoing(data=number) for number in range(count)))
        taken = store.take(who, count=count)
        assert len(taken) == count
        return taken if count > 1 else taken[0]

    return take


@pytest.fixture
def chunks(store, redis_client):
    """Read a stream: what its chunks are, with their numbers and values."""

    def read(delivery):
        found = chunks_of(Pooled(redis_client), store.config, delivery.message.id)
        return [(each.kind, each.number, each.value or each.outcome or None) for each in found]

    return read


def streaming(store, *texts):
    stream = RunStream(store.config.stream, bool)
    for text in texts:
        stream.add("text", text.encode())
    return stream


def key_of(store, delivery):
    return store.config.keys.message_stream(delivery.message.id)


def lose(store, delivery):
    """Let another consumer have a delivery."""
    assert store.reassign(ME, OTHER, [(delivery.stream, delivery.entry)]) == []


def test_chunks_are_appended_once_with_numbers_and_sums(store, take, chunks, redis_client):
    delivery = take()
    stream = streaming(store, "hel", "lo")
    twin = streaming(store, "hel", "lo", "!")
    twin.run = stream.run
    store.append(ME, [(delivery, stream)])
    assert not stream
    # The reply to the first call was lost: all is sent again.
    store.append(ME, [(delivery, twin)])
    assert chunks(delivery) == [("text", 1, "hel"), ("text", 2, "lo"), ("text", 3, "!")]
    *_, (_, fields) = redis_client.xrange(key_of(store, delivery))
    assert list(fields) == [b"run", b"attempt", b"number", b"total", b"text"]
    assert (fields[b"run"], fields[b"attempt"], fields[b"total"]) == (stream.run.encode(), b"1", b"6")
    assert UNFINISHED_MS - 60_000 < redis_client.pttl(key_of(store, delivery)) <= UNFINISHED_MS


def test_many_runs_are_appended_in_few_calls(store, take, chunks, monkeypatch):
    monkeypatch.setattr(message_streams, "RUNS", 2)
    monkeypatch.setattr(message_streams, "CHUNKS", 7)
    taken = take(5)
    runs = [(each, streaming(store, *"abcdefgh")) for each in taken]
    store.append(ME, runs)
    for each in taken:
        assert [value for _, _, value in chunks(each)] == list("abcdefgh")


def test_a_run_that_has_lost_its_delivery_appends_nothing(store, take, chunks):
    lost, held = take(2)
    stream, other = streaming(store, "a"), streaming(store, "b")
    store.append(ME, [(lost, stream)])
    lose(store, lost)
    stream.add("text", b"c")
    store.append(ME, [(lost, stream), (held, other)])
    assert (chunks(lost), chunks(held)) == ([("text", 1, "a")], [("text", 1, "b")])
    assert (stream.is_lost, other.is_lost) == (True, False)
    stale = store.settle(ME, [Settlement(lost, ACK)], also=Also(streamed=[(lost, streaming(store, "d"))]))
    assert (len(stale), chunks(lost)) == (1, [("text", 1, "a")])


@pytest.mark.parametrize(
    ("outcome", "word"),
    [(ACK, "handled"), (Expire(), "expired"), (Bury("ValueError: no"), "buried"), (Cancel(), "cancelled")],
    ids=["ack", "expire", "bury", "cancel"],
)
def test_the_script_that_settles_ends_the_stream(case, store, take, chunks, redis_client, outcome, word):
    if isinstance(outcome, Cancel) and case not in (STREAM, LINES):
        return  # No running message is cancelled there.
    delivery, silent = take(2)
    stream = streaming(store, "a")
    store.append(ME, [(delivery, stream)])
    stream.add("text", b"b")
    key, also = key_of(store, delivery), Also(streamed=[(delivery, stream)])
    with redis_client.pubsub() as heard:
        heard.subscribe(key)
        assert wait_until(heard.get_message)["type"] == "subscribe"
        assert store.settle(ME, [Settlement(each, outcome) for each in (delivery, silent)], also=also) == []
        told = [wait_until(heard.get_message)["data"] for _ in range(2)]
    assert told == [entry for entry, _ in redis_client.xrange(key)[1:]]
    assert chunks(delivery) == [("text", 1, "a"), ("text", 2, "b"), ("end", 3, word)]
    assert 0 < redis_client.pttl(key) <= 60_000
    # Who waits for a message that has failed sees its end.
    assert chunks(silent) == ([("end", 1, word)] if isinstance(outcome, Bury | Cancel) else [])


def test_an_end_has_the_error(store, take, redis_client):
    delivery = take()
    store.settle(ME, [Settlement(delivery, Bury("ValueError: no\nreally"))])
    (end,) = chunks_of(Pooled(redis_client), store.config, delivery.message.id)
    assert (end.outcome, end.attempt) == ("buried", 1)
    assert end.error.startswith("ValueError: no")
    assert "\n" not in end.error


@pytest.mark.parametrize("outcome", [Retry(), HandBack(suspect=True)], ids=["retry", "hand back"])
def test_another_run_begins_with_a_mark(store, take, chunks, outcome):
    delivery = take()
    store.settle(ME, [Settlement(delivery, outcome)], also=Also(streamed=[(delivery, streaming(store, "a", "b"))]))
    assert chunks(delivery) == [("text", 1, "a"), ("text", 2, "b")]
    store.promote(limit=10)
    (again,) = store.take(ME, count=1)
    store.append(ME, [(again, streaming(store, "c"))])
    assert chunks(delivery) == [("text", 1, "a"), ("text", 2, "b"), ("restart", 0, None), ("text", 1, "c")]


def test_the_end_is_written_also_if_only_an_earlier_run_has_streamed(store, take, chunks):
    delivery = take()
    store.settle(ME, [Settlement(delivery, HandBack())], also=Also(streamed=[(delivery, streaming(store, "a"))]))
    (again,) = store.take(ME, count=1)
    store.settle(ME, [Settlement(again, ACK)])
    assert chunks(delivery) == [("text", 1, "a"), ("end", 2, "handled")]


def test_after_an_end_it_begins_with_a_mark(store, take, chunks):
    delivery = take()
    end_streams(store._transport, store.config, [delivery.message.id], "Cancelled while it waited", always=True)
    store.append(ME, [(delivery, streaming(store, "a"))])
    assert chunks(delivery) == [("end", 1, "cancelled"), ("restart", 0, None), ("text", 1, "a")]


@in_streams
def test_a_stream_keeps_so_many_entries_and_so_many_bytes(store, take, chunks, redis_client):
    many, large = take(2)
    for _ in range(5):
        store.append(ME, [(many, streaming(store, *["x"] * 50)), (large, streaming(store, *["x" * 900] * 5))])
    assert redis_client.xlen(key_of(store, many)) == 100
    assert chunks(many)[-1] == ("text", 50, "x")
    kept = chunks(large)
    # And the oldest, which is not counted.
    assert 10_000 - 900 < sum(len(value or "") for _, _, value in kept[1:]) <= 10_000
    assert kept[-1][:2] == ("text", 5)


@in_streams
def test_a_call_deletes_a_bounded_number_of_entries(mq_settings, take, redis_client):
    mq_settings(QUEUES={"emails": {"STREAM": {"bytes": 1024}}})
    store, delivery = STREAM.open(), take()
    key = key_of(store, delivery)
    with redis_client.pipeline() as pipeline:
        for number in range(1, 5001):
            pipeline.xadd(key, {"run": "r", "attempt": 1, "number": number, "total": number, "text": "x"})
        pipeline.execute()
    lengths = []
    for _ in range(6):
        store.append(ME, [(delivery, streaming(store, "x"))])
        lengths.append(redis_client.xlen(key))
    assert 3900 < lengths[0] < 4100
    assert lengths[-1] < 1040


def test_a_key_of_another_type_keeps_neither_others_nor_the_settle(store, take, chunks, redis_client, caplog):
    strange, fine = take(2)
    redis_client.set(key_of(store, strange), "foreign")
    stream, other = streaming(store, "a"), streaming(store, "b")
    store.append(ME, [(strange, stream), (fine, other)])
    assert (stream.is_lost, chunks(fine)) == (True, [("text", 1, "b")])
    assert "cannot be written: its key is something else" in caplog.text
    caplog.clear()
    streamed = [(strange, stream), (fine, other)]
    assert store.settle(ME, [Settlement(each, ACK) for each in (strange, fine)], also=Also(streamed=streamed)) == []
    assert (chunks(fine)[-1], redis_client.get(key_of(store, strange)), caplog.text) == (
        ("end", 2, "handled"),
        b"foreign",
        "",
    )
    assert store.depths().pending == 0


@in_streams
def test_entries_of_other_programs_are_no_obstacle(store, take, chunks, redis_client):
    delivery, full = take(2)
    redis_client.xadd(key_of(store, delivery), {"total": "9" * 30, "number": "x", "run": "y" * 20_000, "attempt": "-1"})
    redis_client.xadd(key_of(store, full), {"a": "b"}, id="18446744073709551615-18446744073709551615")
    stream = streaming(store, "b")
    store.append(ME, [(delivery, streaming(store, "a")), (full, stream)])
    assert chunks(delivery) == [("restart", 0, None), ("text", 1, "a")]
    assert stream.is_lost
    assert store.settle(ME, [Settlement(full, ACK)], also=Also(streamed=[(full, stream)])) == []


@in_streams
@pytest.mark.single_server(why="memory is limited on one server")
def test_without_memory_chunks_stay_unsent_and_the_message_is_settled(store, take, chunks, redis_client, caplog):
    delivery = take()
    stream = streaming(store, "a")
    redis_client.config_set("maxmemory", "1")
    try:
        with pytest.raises(RedisOutOfMemory):
            store.append(ME, [(delivery, stream)])
        assert stream.unsent()
        assert store.settle(ME, [Settlement(delivery, ACK)], also=Also(streamed=[(delivery, stream)])) == []
    finally:
        redis_client.config_set("maxmemory", "0")
    assert caplog.text.count("Last chunks of streams of queue emails are lost") == 1
    assert chunks(delivery) == [("end", 1, "handled")]
    assert store.depths().pending == 0


@pytest.mark.parametrize(("code", "error"), [("LOADING", ConnectionLost), ("BUSY", ServerBusy)])
def test_a_message_whose_last_chunks_are_refused_for_a_moment_is_not_settled(
    store, take, chunks, monkeypatch, code, error
):
    delivery = take()
    stream = streaming(store, "a")
    send = store._transport.pipeline

    def refused(commands):
        return [ResponseError(f"{code} one moment"), *send(commands[1:])]

    batch, also = [Settlement(delivery, ACK)], Also(streamed=[(delivery, stream)])
    with monkeypatch.context() as away:
        away.setattr(store._transport, "pipeline", refused)
        with pytest.raises(error):
            store.settle(ME, batch, also=also)
    assert store.settle(ME, batch, also=also) == []
    assert chunks(delivery) == [("text", 1, "a"), ("end", 2, "handled")]


def test_a_stream_without_its_group_is_lost(store, take, redis_client):
    delivery = take()
    stream = streaming(store, "a")
    for key in (*store.config.keys.streams(), store.config.keys.due):
        redis_client.delete(key)
    store.append(ME, [(delivery, stream)])
    assert stream.is_lost


@in_streams
def test_a_cancelled_message_has_an_end_also_without_results(mq_settings, chunks, redis_client):
    mq_settings(QUEUES={"emails": {"STREAM": True, "RESULT_TTL": 0}})
    sent = queues["emails"].publish("welcome", 1, delay=60)
    assert queues["emails"].cancel(sent)
    (end,) = chunks_of(Pooled(redis_client), queues["emails"].config, sent)
    assert (end.kind, end.outcome, end.error) == ("end", "cancelled", "Cancelled while it waited")


@in_streams
def test_of_many_deleted_messages_those_with_a_stream_have_an_end(store, take, chunks, redis_client):
    one, two = take(2)
    store.append(ME, [(one, streaming(store, "a"))])
    end_streams(store._transport, store.config, [one.message.id, two.message.id], "Purged")
    assert (chunks(one)[-1], chunks(two)) == (("end", 2, "cancelled"), [])


def test_a_queue_without_streams_has_no_ends(mq_settings, namespace, redis_client):
    mq_settings(**STREAM.namespaced(namespace))
    store = STREAM.open()
    store.take(ME, count=1)
    store.publish([outgoing(data=1)])
    (delivery,) = store.take(ME, count=1)
    store.settle(ME, [Settlement(delivery, Bury("no"))])
    end_streams(store._transport, store.config, [delivery.message.id], "no")
    assert not redis_client.exists(key_of(store, delivery))


def test_the_option_is_for_every_form_of_queue():
    assert "STREAM" not in set(OPTIONS) & RSMQ.lacks
