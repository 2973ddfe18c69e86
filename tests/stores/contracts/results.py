"""Results of tasks, progress, and where handlers are."""

import threading
from collections.abc import Iterator
from typing import Any

from mq_django.core.message_streams import RunStream
from mq_django.core.messages import ACK, Bury, Delivery, Retry
from mq_django.core.running_handler import Progress, Report
from mq_django.stores.base import Also, Settlement, Store
from mq_django.stores.control import StackRequests
from mq_django.stores.message_streams import end_streams
from mq_django.stores.results import RunningTask, begin, ended_command, note_running, read_progress_of, save, watch
from tests.stores.contracts.frozen import NOW_MS
from tests.stores.contracts.settling import TRACE
from tests.stores.contracts.stage import Stage, message_of
from tests.stores.everything import ME


def scenes() -> Iterator[Any]:
    """Yield every scene."""
    yield from (results, awaited_results, reports, streams, stacks)


def results(stage: Stage) -> None:
    store, transport = stage.queue(RESULT_TTL=60), stage.transport()
    one, two, three = stage.taken(store, message_of(1, published_ms=NOW_MS), message_of(2), message_of(3))
    with stage.under("retried, done and buried, all for the first time"):
        told = [
            Settlement(one, Retry(error="ValueError: no", traceback=TRACE), 0, 1500, keeps_result=True),
            Settlement(two, ACK, keeps_result=True),
            Settlement(three, Bury("ValueError: no"), keeps_result=True),
        ]
        store.settle(ME, told)
    with stage.under("done after a retry"):
        store.settle(ME, [Settlement(one, ACK, micros=5, keeps_result=True)])
    unknown = two._replace(message=two.message._replace(id="unknown"))
    with stage.under("running: one exists, the other does not"):
        note_running(transport, store.config, ME, [RunningTask(one, NOW_MS - 1500), RunningTask(unknown, NOW_MS)])


def awaited_results(stage: Stage) -> None:
    store, transport = stage.queue(RESULT_TTL=60), stage.transport()
    one, two, three = stage.taken(store, message_of(1, published_ms=NOW_MS), message_of(2), message_of(3))
    keys = [store.keys.result(item.message.id) for item in (one, two, three)]
    retried = Settlement(one, Retry(error="ValueError: no"), 1000, 1500, keeps_result=True)
    store.settle(ME, [retried, Settlement(two, ACK, keeps_result=True)])
    with stage.under("one has not ended, one has, one does not exist"):
        watch(transport, store.config, dict.fromkeys(keys, 0), "p1")
    with stage.under("by another process, which knows the length"):
        length = int(transport.pipeline([("STRLEN", keys[0])])[0])
        watch(transport, store.config, {keys[0]: length}, "p2")
    stage.client.hset(store.keys.waiters, "gone", f"{NOW_MS - 1} p3\n")
    with stage.under("a registration is over"):
        watch(transport, store.config, {keys[0]: length}, "p1")
    with stage.under("it ends"):
        store.settle(ME, [Settlement(one, ACK, micros=5, keeps_result=True)])


def reports(stage: Stage) -> None:
    store, transport = stage.queue(), stage.transport()
    one, two = stage.taken(store, message_of(1), message_of(2))

    def of(delivery: Delivery, run: str) -> Report:
        return Report(delivery=delivery, config=store.config, stopping=threading.Event(), run=run)

    first, other, later = of(one, "first"), of(two, "other"), of(one, "later")
    last = of(two._replace(message=two.message._replace(id="m3")), "last")
    with stage.under("nobody has reported"):
        begin(transport, store.config, first)
    first.set_position("prices", "17")
    for report in (first, other):
        report.set_progress(Progress(done=1, total=2, note="cups", at_ms=NOW_MS))
    with stage.under("a position and progress; progress alone"):
        save(transport, store.config, [first, other])
    with stage.under("an earlier run has a position"):
        begin(transport, store.config, later)
    first.set_position("prices", "99")
    with stage.under("a later run has begun"):
        save(transport, store.config, [first])
    with stage.under("of one, and of one that has none"):
        read_progress_of([(store.config, one.message.id), (store.config, "unknown")], [transport, transport])
    with stage.under("handled: the position is deleted, the progress stays"):
        transport.pipeline([ended_command(store.config, later, True, False)])
    with stage.under("handled without progress: nothing stays"):
        begin(transport, store.config, last)
        transport.pipeline([ended_command(store.config, last, True, False)])


def streams(stage: Stage) -> None:
    for open_one in (Stage.queue, Stage.group, Stage.rsmq):
        store = open_one(stage, STREAM={"entries": 4, "bytes": 1024, "ttl": 60})
        one, two, three, four = stage.taken(store, *(message_of(number) for number in (1, 2, 3, 4)))
        first, other, later = (stream_of(store, run) for run in ("first", "other", "later"))
        first.add("text", b"hel")
        first.add("log", b"fetched 1 of 3")
        with stage.under("two chunks, and none yet"):
            store.append(ME, [(one, first)])
        again = stream_of(store, "first")
        for _ in range(3):
            again.add("json", b"7")
        other.add("bytes", b"YQ==")
        stage.lose(store, two)
        with stage.under("two of three are there already, and another is no longer held"):
            store.append(ME, [(one, again), (two, other)])
        for _ in range(3):
            later.add("text", b"x")
        with stage.under("by another run, of more entries than it keeps"):
            store.append(ME, [(one, later)])
        later.add("text", b"last")
        with stage.under("one ends, with its last chunk, one fails without a stream, and one has none"):
            store.settle(ME, [Settlement(one, ACK)], also=Also(streamed=[(one, later)]))
            store.settle(ME, [Settlement(three, Bury("ValueError: no")), Settlement(four, ACK)])
        transport = stage.transport()
        with stage.under("a message is cancelled, and of two others one has a stream"):
            end_streams(transport, store.config, ["m7"], "Cancelled while it waited", always=True)
            end_streams(transport, store.config, [one.message.id, "m8"], "Cancelled while it waited")
        stage.clear()


def stream_of(store: Store, run: str) -> RunStream:
    """Return what a run streams, under a name that is the same each time."""
    assert store.config.stream is not None
    found = RunStream(store.config.stream, bool)
    found.run = run
    return found


def stacks(stage: Stage) -> None:
    for store in (stage.queue(), stage.group(), stage.rsmq()):
        requests = StackRequests(store.config, stage.transport())
        with stage.under("of a consumer that is gone"):
            assert requests.ask(ME) is None
        stage.client.hset(store.keys.consumers, f"consumer:{ME}", "{}")
        with stage.under("of one that is there"):
            assert requests.ask(ME) == NOW_MS
        with stage.under("in the same millisecond"):
            assert requests.ask(ME) == NOW_MS + 1
        for strange in ("no number", "9e300", "nan", str(NOW_MS - 1)) if store.config.store == "stream" else ():
            stage.client.hset(store.keys.stacks, ME, strange)
            with stage.under("after one that is earlier, or no time"):
                assert requests.ask(ME) == NOW_MS
        stage.clear()
