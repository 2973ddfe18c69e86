"""Handlers stream in each form of queue and of handler, and what they have streamed last is there with the ack."""

import threading

import pytest

from mq_django import Bury, Retry, exactly_once, handler, queues, stream, subscriber, task, topics
from mq_django.conf import get_config
from mq_django.consumers.shared_state import HANDLED, RETURNED, Receipt
from mq_django.consumers.worker.progress import StreamSender
from mq_django.consumers.worker.settler import ReportBook
from mq_django.core.ids import message_id_of
from mq_django.core.messages import ACK, Delivery, Message
from mq_django.core.running_handler import HandlerRun, running
from mq_django.errors import ConnectionLost, InvalidChunk, NotInHandler, NotSupported, RedisOutOfMemory, WrongKeyType
from mq_django.inspector.dead_letters import redrive_messages
from mq_django.transport.connections import get_client, open_session
from mq_django.transport.sessions import Pooled
from mq_django.workflows import chain
from tests.consumers.rig import running as running_rig
from tests.seeding import publish
from tests.streamed import chunks_of
from tests.waiting import wait_until
from tests.working import run

pytestmark = [pytest.mark.usefixtures("handlers"), pytest.mark.django_db(transaction=True)]

FORMS = {
    "stream": {},
    "lines": {"ORDERED": True},
    "partitions": {"PARTITIONS": 2},
    "rsmq": {"STORE": "rsmq"},
}


@pytest.fixture(autouse=True)
def _no_handler():
    token = running.set(None)
    yield
    running.reset(token)


def chunks(queue, message_id):
    """Return what the stream of a message has."""
    found = []
    for config in get_config().queue(queue).each_part:
        transport = Pooled(get_client("consume", key=config.keys.wake))
        found += chunks_of(transport, config, message_id)
    return [(each.kind, each.attempt, each.number, each.value or each.outcome or None) for each in found]


@pytest.fixture(params=FORMS)
def queue(request, mq_settings, namespace):
    options = {"STREAM": True, "RETRY": {"delay": 0}, **FORMS[request.param]}
    if request.param == "rsmq":
        options["NAMESPACE"] = f"{namespace}:r"
    mq_settings(QUEUES={"answers": options})
    return "answers"


@pytest.fixture
def plain(mq_settings):
    mq_settings(QUEUES={"default": {"STREAM": True, "RETRY": {"delay": 0}}})


def answer(message):
    stream.log("thinking")
    for word in ("to", "be"):
        stream(word)
    if message.data == "fails" and message.attempt == 1:
        raise ValueError("or not")


def ask_task():
    answer(Message("", "", None, ""))
    return 7


def ask_step():
    return ask_task()


STREAMED = [("log", 1, 1, "thinking"), ("text", 1, 2, "to"), ("text", 1, 3, "be")]
AGAIN = [("restart", 2, 0, None), *((kind, 2, number, value) for kind, _, number, value in STREAMED)]


def test_each_form_of_queue(queue):
    handler(queue, "ask")(answer)
    sent, failing = publish(queue, "ask", key="k"), publish(queue, "ask", "fails", key="k")
    run()
    run()
    assert chunks(queue, sent) == [*STREAMED, ("end", 1, 4, "handled")]
    assert chunks(queue, failing) == [*STREAMED, *AGAIN, ("end", 2, 4, "handled")]


def test_a_group_of_a_topic(mq_settings):
    mq_settings(QUEUES={}, TOPICS={"orders": {"STREAM": True}})
    subscriber("orders", group="billing")(answer)
    run()
    sent = topics["orders"].publish("paid", 1)
    run()
    assert chunks("orders:billing", sent) == [*STREAMED, ("end", 1, 4, "handled")]


def test_coroutines_tasks_and_what_runs_exactly_once(plain):
    @handler("default", "acall")
    async def acall(message):
        answer(message)

    @handler("default", "once")
    @exactly_once
    def once(message):
        answer(message)

    sent = [publish("default", "acall"), task(ask_task).enqueue().id, publish("default", "once")]
    run()
    for each in sent:
        assert chunks("default", each) == [*STREAMED, ("end", 1, 4, "handled")]


def test_a_step_of_a_workflow(plain):
    started = chain(task(ask_step)).start()
    run()
    assert started.state == "succeeded"
    assert chunks("default", message_id_of(started.id, 1, 1)) == [*STREAMED, ("end", 1, 4, "handled")]


def test_a_dead_letter_ends_its_stream_and_begins_anew_when_it_is_redriven(plain):
    outcomes = [Bury("no such question"), None]

    @handler("default", "ask")
    def ask(message):
        stream("hm")
        return outcomes.pop(0)

    sent = publish("default", "ask")
    run()
    assert chunks("default", sent) == [("text", 1, 1, "hm"), ("end", 1, 2, "buried")]
    assert redrive_messages("default", [sent])
    run()
    assert chunks("default", sent)[2:] == [("restart", 1, 0, None), ("text", 1, 1, "hm"), ("end", 1, 2, "handled")]


def test_a_handler_that_streams_nothing_has_no_stream(plain, redis_client, namespace):
    handler("default", "plain")(lambda message: None)
    publish("default", "plain")
    run()
    assert list(redis_client.scan_iter(match=f"*{namespace}*stream:*")) == []


def test_what_only_streams_has_no_progress(plain, redis_client, namespace):
    handler("default", "ask")(answer)
    publish("default", "ask")
    run()
    assert list(redis_client.scan_iter(match=f"*{namespace}*progress:*")) == []


def test_where_it_does_not_work(plain, mq_settings):
    told = []

    def ask(message):
        with pytest.raises(InvalidChunk):
            stream({1, 2})
        with pytest.raises(InvalidChunk):
            stream.log(7)
        stream("fine")

    def ask_many(messages):
        with pytest.raises(NotInHandler, match="cannot report progress, stream or resume"):
            stream("x")
        told.append(len(messages))

    with pytest.raises(NotInHandler, match=r"stream\(\) works only while a consumer runs a handler"):
        stream("x")
    handler("default", "ask")(ask)
    handler("default", "many", batch=2)(ask_many)
    sent = publish("default", "ask")
    publish("default", "many")
    run()
    assert (chunks("default", sent)[0], told) == (("text", 1, 1, "fine"), [1])


def test_a_queue_without_streams_refuses(mq_settings, redis_client, namespace):
    @handler("default", "ask")
    def ask(message):
        with pytest.raises(NotSupported, match="Queue 'default' keeps no streams: set STREAM in its settings"):
            stream("x")

    publish("default", "ask")
    (handled,) = run()
    assert handled.outcome == ACK
    assert [
        key for key in redis_client.scan_iter(match=f"*{namespace}*") if b"stream:" in key or b"progress" in key
    ] == []


# The thread that sends, without a consumer.


class Store:
    """Appends chunks, or raises."""

    def __init__(self):
        self.calls = []
        self.error = None
        self.most = 1000

    def append(self, consumer, runs):
        self.calls.append([chunk.value.decode() for _, stream in runs for chunk in stream.unsent()])
        if self.error:
            raise self.error
        for _, each in runs:
            each.sent(each.unsent(self.most)[-1].number)


@pytest.fixture
def book(plain):
    return ReportBook(get_config().queue("default"))


@pytest.fixture
def sender(book):
    found = StreamSender({0: book}, "me", open_session("chores"))
    found._stores[0] = Store()
    yield found
    found._session.close()


def begin(book, number=1):
    """Begin to handle a message."""
    delivery = Delivery(Message(f"m{number}", "n", None, "default"), 0, b"%d-0" % number, b"null")
    found = HandlerRun(delivery, book.opened)
    running.set(found)
    return found


def test_it_is_woken_by_the_first_chunk_and_sends_what_is_there_at_once(book, sender):
    begin(book)
    sender.run_once()
    assert not sender._woken.is_set()
    stream("a")
    assert sender._woken.is_set()
    stream("b")
    sender.run_once()
    sender.run_once()
    assert (sender._stores[0].calls, sender._woken.is_set()) == ([["a", "b"]], False)


def test_what_one_call_has_left_is_sent_by_the_next_round(book, sender):
    begin(book)
    sender._stores[0].most = 2
    for text in "abc":
        stream(text)
    sender.run_once()
    assert sender._woken.is_set()
    sender.run_once()
    assert sender._stores[0].calls == [["a", "b", "c"], ["c"]]


@pytest.mark.parametrize("error", [ConnectionLost("away"), RedisOutOfMemory("full")], ids=["away", "full"])
def test_after_an_error_it_waits_whatever_is_streamed_and_sends_all(book, sender, error, monkeypatch):
    monkeypatch.setattr("mq_django.consumers.worker.progress.AGAIN", 600.0)
    begin(book)
    sender._stores[0].error = error
    stream("a")
    sender._round()
    stream("b")
    sender._stores[0].error = None
    assert 0 < sender.run_once() <= 1.0
    assert sender._stores[0].calls == [["a"]]
    sender._later[0] = 0.0
    sender.run_once()
    assert sender._stores[0].calls == [["a"], ["a", "b"]]


def test_a_queue_that_fails_does_not_delay_the_others(book, sender, monkeypatch):
    monkeypatch.setattr("mq_django.consumers.worker.progress.AGAIN", 600.0)
    other = ReportBook(get_config().queue("default"))
    sender._books, sender._stores = {0: book, 1: other}, {0: Store(), 1: Store()}
    sender._stores[0].error = WrongKeyType("a list")
    begin(book)
    stream("a")
    begin(other)
    for text in "bc":
        stream(text)
        sender._round()
    assert [store.calls for store in sender._stores.values()] == [[["a"]], [["b"], ["c"]]]


def test_close_sends_what_outlasts_the_grace_period(book, sender):
    begin(book)
    sender._stores[0].most = 1
    for text in "abc":
        stream(text)
    sender.close()
    assert sender._stores[0].calls == [["a", "b", "c"], ["b", "c"], ["c"]]


def test_the_end_of_a_handler_says_whether_all_is_sent(book):
    first, second = begin(book, 1), begin(book, 2)
    stream("a")
    assert (book.end(first, ACK), book.end(second, ACK)) == (False, True)
    begin(book, 4)
    stream("a")
    assert not book.end(running.get(), Retry())
    assert book.streaming() == []
    begin(book, 3)
    stream("a")
    running.get().report.stream.sent(1)
    assert not book.end(running.get(), ACK)


@pytest.mark.parametrize(("streams", "state"), [(True, RETURNED), (False, HANDLED)])
def test_an_ack_whose_chunks_are_only_in_the_process_is_no_ack_without_it(plain, streams, state):
    """A kill before the settle would lose them, and the message would not be handled again."""

    def call(message):
        if streams:
            stream("x")

    with running_rig(threads=1) as rig:
        delivery = rig.put(call)
        rig.outcomes()
        assert rig.shared_state.results()[Receipt.of(0, delivery.stream, delivery.entry)] == state


def test_several_threads_of_a_handler_stream(book):
    handler_run = begin(book)
    stream("first")
    context = threading.Barrier(4)

    def work():
        running.set(handler_run)
        context.wait(10)
        for _ in range(50):
            stream("x")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(10)
    assert [chunk.number for chunk in handler_run.report.stream.unsent()] == [*range(1, 202)]


def test_a_cancelled_message_and_a_retry(plain):
    handler("default", "ask")(lambda message: stream("x") or Retry(delay=60))
    sent = publish("default", "ask")
    run()
    assert chunks("default", sent) == [("text", 1, 1, "x")]
    assert queues["default"].cancel(sent)
    assert chunks("default", sent)[1:] == [("end", 1, 2, "cancelled")]
    assert wait_until(lambda: not queues["default"].find(sent))
