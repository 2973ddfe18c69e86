"""What people look at, counters, results and schedules."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mq_django.core.messages import Delivery
from mq_django.core.outcomes import ACK, Bury, HandBack, Retry
from mq_django.core.reports import Progress, Report
from mq_django.core.schedules import Scheduled, every
from mq_django.errors import QueueFull
from mq_django.inspector.queue_looks import counted, look
from mq_django.inspector.readers import reader_of
from mq_django.stores.awaited_results import watch
from mq_django.stores.base import Settlement, Store
from mq_django.stores.control import Control
from mq_django.stores.counter_totals import read_totals
from mq_django.stores.counters import add_command
from mq_django.stores.progress_reports import begin, ended_command, read_progress_of, save
from mq_django.stores.results import end_cancelled, settled_commands
from mq_django.stores.running_results import RunningTask, note_running
from mq_django.stores.runtime_schedules import RuntimeSchedules
from mq_django.stores.schedule_state import Schedules
from mq_django.stores.schedule_status import statuses
from mq_django.stores.stack_requests import StackRequests
from mq_django.transport import scripts
from tests.stores.contracts import rsmq_queues, waits
from tests.stores.contracts.frozen import NOW, NOW_MS
from tests.stores.contracts.settling import TRACE
from tests.stores.contracts.stage import Stage, message_of, rsmq_id
from tests.stores.everything import ME

#: Of whatever a page shows.
LONG = 30


def scenes() -> Iterator[Any]:
    """Yield every scene."""
    yield from (entries, before, rooms, rsmq_rooms, counters, totals, results, awaited_results, reports, schedules)
    yield from (skips, schedules_when_full, schedules_by_priority, created, stacks)
    opened: list[Callable[[Stage], Store]] = [waits.everywhere, rsmq_queues.everywhere]
    for open_one in opened:
        yield lambda stage, open_one=open_one: at_a_glance(stage, open_one(stage))


def entries(stage: Stage) -> None:
    store = stage.queue()
    page = reader_of(store.config, stage.wire())
    with stage.under("nothing is there"):
        assert list(page.pending(limit=5)) == list(page.ready(limit=5)) == []
    taken = stage.taken(store, message_of(1), message_of(2, headers={"long": "x" * 99}))
    store.publish([message_of(number) for number in (3, 4, 5)])
    with stage.under("without what is long"):
        assert len(list(page.pending(limit=5, max_bytes=LONG))) == 2
        assert len(list(page.ready(limit=2, max_bytes=LONG))) == 2
    with stage.under("as long as it may be"):
        assert list(page.ready(limit=1, max_bytes=len('{"n":3}')))
    with stage.under("after another"):
        assert len(list(page.pending(limit=1, after=cursor_of(page.pending(limit=1))))) == 1
        assert list(page.ready(limit=2, after=cursor_of(page.ready(limit=1))))
    cursor = cursor_of(page.ready(limit=1))
    store.take(ME, count=2)
    with stage.under("after one that was handed out since"):
        assert len(list(page.ready(limit=5, after=cursor))) == 1
    with stage.under("two that are there, and one that is not"):
        page.held([(0, taken[0].entry.decode()), (0, taken[1].entry.decode()), (1, "5-5")], max_bytes=LONG)
    stage.client.xdel(store.keys.ready, taken[0].entry)
    with stage.under("deleted while it was held"):
        assert list(page.pending(limit=1))
    store = stage.rsmq()
    items = stage.taken(store, message_of(1), message_of(2, headers={"long": "x" * 99}))
    with stage.under("two that are there, and one that is not"):
        receipts = [(0, item.entry.decode()) for item in items]
        reader_of(store.config, stage.wire()).held([*receipts, (0, f"{rsmq_id(9)}:1")], max_bytes=LONG)


def cursor_of(rows: Any) -> str:
    """Return the cursor of the first row."""
    (first, _), *_ = rows
    return str(first)


def before(stage: Stage) -> None:
    store = stage.queue()
    page = reader_of(store.config, stage.wire())
    store.publish([message_of(1), message_of(2), message_of(3)])
    store.publish([message_of(number, priority=level) for number, level in ((4, 5), (5, 6), (6, -5))])
    held = store.take(ME, count=3)
    store.publish([message_of(7), message_of(8)])
    stage.settle(store, HandBack(), held[-2:])
    store.publish([message_of(9, priority=9)])
    for source in ("ready", "urgent", "priority"):
        with stage.under(f"in {source}"):
            for found in [view for _, view in page.ready(limit=20)]:
                if found.source == source:
                    page.before(source, found.entry)
    with stage.under("not there"):
        page.before("ready", b"5-5")
        page.before("priority", b"unknown")


def rooms(stage: Stage) -> None:
    store = waits.everywhere(stage)
    page = reader_of(store.config, stage.wire())
    stage.client.zadd(store.keys.due, {"without": 5})
    with stage.under("three delayed, one without a body, without what is long"):
        page.waiting("delayed", start=0, limit=3, max_bytes=LONG)
    with stage.under("from the second on"):
        page.waiting("delayed", start=1, limit=3)
    with stage.under("elsewhere"):
        page.waiting("unhandled", start=0, limit=5)
        page.waiting("parked", start=0, limit=5)
        keys = [store.keys.priority, store.keys.waiting]
        stage.wire().trip([scripts.command("waiting_page", keys=keys, args=[0, 4, 32 * 1024])])


def rsmq_rooms(stage: Stage) -> None:
    store = rsmq_queues.everywhere(stage)
    page = reader_of(store.config, stage.wire())
    stage.client.zadd(store.keys.zset, {"without": NOW_MS + 1, rsmq_id(3): NOW_MS + 4})
    with stage.under("three that are hidden, one without a body, without what is long"):
        page.waiting("delayed", start=0, limit=3, max_bytes=LONG)
    with stage.under("from the second on"):
        page.waiting("delayed", start=1, limit=3)
    with stage.under("from the last on"):
        page.waiting("delayed", start=3, limit=3)


def at_a_glance(stage: Stage, store: Store) -> None:
    keys, config = store.keys, store.config
    stage.members(store).beat("s1", {}, {ME: {}})
    store.publish([message_of(9)])
    assert store.take(ME, count=1)
    stage.client.hset(keys.minutes(int(NOW) // 3600), "33|handled|", 5)
    stage.client.hset(keys.minutes(int(NOW) // 3600 - 1), "59|handled|", 7)
    with stage.under("something of everything"):
        look([config], [stage.wire()], minutes=36)
    Control(config, stage.wire()).pause(who="ann", reason="deploy")
    stage.settle(store, Bury("no"), store.take("other", count=1) or store.held_by(ME, limit=1))
    with stage.under("paused, without counters"):
        look([config], [stage.wire()], minutes=0)


def counters(stage: Stage) -> None:
    store, wire = stage.queue(), stage.wire()
    with stage.under("by name and in all"):
        wire.trip(
            [add_command(store.keys, {("handled", "welcome"): 2, ("retried", "report"): 1, ("t3", "welcome"): 2})]
        )
    with stage.under("of two hours"):
        hour = int(NOW) // 3600
        counted([[store.keys.minutes(hour), store.keys.minutes(hour - 1)]], [wire], slots=60, longest=50)
    for key in stage.client.scan_iter(match=f"*{stage.namespace}*counters*"):
        stage.client.hset(key, "n|", 1000)
    with stage.under("of a name beyond a thousand, and of one that is known"):
        wire.trip([add_command(store.keys, {("handled", "new"): 2, ("handled", "welcome"): 1})])


def totals(stage: Stage) -> None:
    store, wire = stage.queue(), stage.wire()
    hour = int(NOW) // 3600

    def count(ago: int, number: str) -> None:
        stage.client.hset(store.keys.hours((hour - ago) // 24), f"{(hour - ago) % 24}|handled|", number)

    for ago, number in ((0, "1"), (1, "20"), (2, "300"), (24 * 20, "4000")):
        count(ago, number)
    with stage.under("of 20 days: those of hours that are over are moved"):
        read_totals([store.keys], [wire], now_ms=NOW_MS)
    with stage.under("nothing is to be moved"):
        read_totals([store.keys], [wire], now_ms=NOW_MS)
    count(1, "no number")
    stage.client.hset(store.keys.totals, "buried", "no number")
    with stage.under("counters that are no numbers"):
        read_totals([store.keys], [wire], now_ms=NOW_MS)


def results(stage: Stage) -> None:
    store, wire = stage.queue(RESULT_TTL=60), stage.wire()
    one, two, three = stage.taken(store, message_of(1, published_ms=NOW_MS), message_of(2), message_of(3))
    with stage.under("retried, done and buried, all for the first time"):
        told = [
            Settlement(one, Retry(error="ValueError: no", traceback=TRACE), 1000, 1500, keeps_result=True),
            Settlement(two, ACK, keeps_result=True),
            Settlement(three, Bury("ValueError: no"), keeps_result=True),
        ]
        wire.trip(settled_commands(store.config, ME, told))
    with stage.under("done after a retry"):
        wire.trip(settled_commands(store.config, ME, [Settlement(one, ACK, micros=5, keeps_result=True)]))
    with stage.under("cancelled: one exists, the other does not"):
        end_cancelled(wire, store.config, [two.message.id, "unknown"])
    unknown = two._replace(message=two.message._replace(id="unknown"))
    with stage.under("running: one exists, the other does not"):
        note_running(wire, store.config, ME, [RunningTask(one, NOW_MS - 1500), RunningTask(unknown, NOW_MS)])


def awaited_results(stage: Stage) -> None:
    store, wire = stage.queue(RESULT_TTL=60), stage.wire()
    one, two, three = stage.taken(store, message_of(1, published_ms=NOW_MS), message_of(2), message_of(3))
    keys = [store.keys.result(item.message.id) for item in (one, two, three)]
    retried = Settlement(one, Retry(error="ValueError: no"), 1000, 1500, keeps_result=True)
    wire.trip(settled_commands(store.config, ME, [retried, Settlement(two, ACK, keeps_result=True)]))
    with stage.under("one has not ended, one has, one does not exist"):
        watch(wire, store.config, dict.fromkeys(keys, 0), "p1")
    with stage.under("by another process, which knows the length"):
        length = int(wire.trip([("STRLEN", keys[0])])[0])
        watch(wire, store.config, {keys[0]: length}, "p2")
    stage.client.hset(store.keys.waiters, "gone", f"{NOW_MS - 1} p3\n")
    with stage.under("a registration is over"):
        watch(wire, store.config, {keys[0]: length}, "p1")
    with stage.under("it ends"):
        wire.trip(settled_commands(store.config, ME, [Settlement(one, ACK, micros=5, keeps_result=True)]))
    watch(wire, store.config, {keys[1]: int(wire.trip([("STRLEN", keys[1])])[0])}, "p1")
    with stage.under("it is cancelled"):
        end_cancelled(wire, store.config, [two.message.id])


def reports(stage: Stage) -> None:
    store, wire = stage.queue(), stage.wire()
    one, two = stage.taken(store, message_of(1), message_of(2))

    def of(delivery: Delivery, run: str) -> Report:
        return Report(delivery=delivery, config=store.config, stopping=threading.Event(), run=run)

    first, other, later = of(one, "first"), of(two, "other"), of(one, "later")
    last = of(two._replace(message=two.message._replace(id="m3")), "last")
    with stage.under("nobody has reported"):
        begin(wire, store.config, first)
    first.set_position("prices", "17")
    for report in (first, other):
        report.set_progress(Progress(done=1, total=2, note="cups", at_ms=NOW_MS))
    with stage.under("a position and progress; progress alone"):
        save(wire, store.config, [first, other])
    with stage.under("an earlier run has a position"):
        begin(wire, store.config, later)
    first.set_position("prices", "99")
    with stage.under("a later run has begun"):
        save(wire, store.config, [first])
    with stage.under("of one, and of one that has none"):
        read_progress_of([(store.config, one.message.id), (store.config, "unknown")], [wire, wire])
    with stage.under("handled: the position is deleted, the progress stays"):
        wire.trip([ended_command(store.config, later, True, False)])
    with stage.under("handled without progress: nothing stays"):
        begin(wire, store.config, last)
        wire.trip([ended_command(store.config, last, True, False)])


def stacks(stage: Stage) -> None:
    for store in (stage.queue(), stage.group(), stage.rsmq()):
        requests = StackRequests(store.config, stage.wire())
        with stage.under("of a consumer that is gone"):
            assert requests.ask(ME) is None
        stage.client.hset(store.keys.consumers, f"consumer:{ME}", "{}")
        with stage.under("of one that is there"):
            assert requests.ask(ME) == NOW_MS
        with stage.under("in the same millisecond"):
            assert requests.ask(ME) == NOW_MS + 1
        for strange in ("no number", "9e300", "nan", str(NOW_MS - 1)):
            stage.client.hset(store.keys.stacks, ME, strange)
            with stage.under("after one that is earlier, or no time"):
                assert requests.ask(ME) == NOW_MS
        stage.clear()


def schedules(stage: Stage) -> None:
    store = stage.queue()
    found = Schedules(store.config, stage.wire())
    report = Scheduled(name="nightly", queue="emails", message="report", data={"n": 1}, when=every(minutes=1))
    with stage.under("one is new"):
        found.look(["nightly"])
    stage.client.hset(store.keys.schedules, "last:nightly", NOW_MS - 60_000)
    with stage.under("one is known, another is new"):
        found.look(["nightly", "hourly"])
    with stage.under("among all of its queue"):
        assert statuses(store.config, stage.wire()).now_ms == NOW_MS
    with stage.under("its tick, and for a second time"):
        found.fire(report, NOW_MS - 10)
        found.fire(report, NOW_MS - 10)
    with stage.under("too early"):
        found.fire(report, NOW_MS + 1)
    found.pause("nightly")
    stage.client.hset(store.keys.schedules, "last:nightly", 253402300799999)
    with stage.under("done with up to the last moment there is"):
        found.fire(report, NOW_MS - 5)
    stage.client.hset(store.keys.schedules, "last:nightly", 253402300800000)
    with stage.under("paused, and its last tick is no moment"):
        found.fire(report, NOW_MS - 5)
    with stage.under("at once, though it is paused"):
        found.fire_now(report)
    stage.client.hset(store.keys.schedules, "last:nightly", 5)
    with stage.under("paused, and running"):
        found.resume("nightly")
        found.resume("nightly")


def skips(stage: Stage) -> None:
    """Ticks that are skipped."""
    store = stage.queue()
    found = Schedules(store.config, stage.wire())
    report = Scheduled(name="nightly", queue="emails", message="report", data=None, when=every(minutes=1))
    with stage.under("a tick is skipped, also for a second time"):
        found.skip(report, NOW_MS + 1000, who="ann")
        found.skip(report, NOW_MS + 1000, who="ben")
    with stage.under("a tick that has passed"):
        found.skip(report, NOW_MS)
        found.unskip("nightly", NOW_MS)
    stage.client.hset(store.keys.schedules, "skips:nightly", f"{NOW_MS - 10} 5 ann\nodd\n{NOW_MS + 1000} 5 ann")
    with stage.under("ticks that have passed are forgotten"):
        found.skip(report, NOW_MS + 2000, who="ann")
    with stage.under("as many as there may be"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("mq_django.stores.schedule_state.MAX_SKIPS", 2)
        found.skip(report, NOW_MS + 3000)
    with stage.under("one fires after all, and one that is not skipped; then the last"):
        found.unskip("nightly", NOW_MS + 2000)
        found.unskip("nightly", NOW_MS + 2000)
        found.unskip("nightly", NOW_MS + 1000)
    stage.client.hset(store.keys.schedules, "skips:nightly", f"{NOW_MS - 10} 5 ann\n{NOW_MS + 1000} 5 ann")
    with stage.under("its tick is skipped, and an earlier one was missed"):
        found.fire(report, NOW_MS - 10, is_first=False)
        found.fire(report, NOW_MS - 70_000)
    stage.client.hset(store.keys.schedules, mapping={"skips:nightly": f"{NOW_MS - 10} 5 ann", "last:nightly": 5})
    with stage.under("its tick is skipped, and was the only one"):
        found.fire(report, NOW_MS - 10)


def schedules_when_full(stage: Stage) -> None:
    store = stage.queue(MAX_DEPTH=2)
    store.publish([message_of(1)])
    found = Schedules(store.config, stage.wire())
    report = Scheduled(name="nightly", queue="emails", message="report", data=None, when=every(minutes=1))
    with stage.under("as many as the queue may hold"):
        found.fire(report, NOW_MS - 10)
    stage.client.hset(store.keys.schedules, "last:nightly", NOW_MS - 60_000)
    with stage.under("the queue is full"), pytest.raises(QueueFull):
        found.fire(report, NOW_MS)
    found.pause("nightly")
    with stage.under("paused, and the queue is full"):
        found.fire(report, NOW_MS)


def schedules_by_priority(stage: Stage) -> None:
    store = stage.queue()
    store.publish([message_of(1)])
    report = Scheduled(
        name="nightly", queue="emails", message="report", data=None, when=every(minutes=1), priority=5, key="k"
    )
    with stage.under("with a priority, behind what is ready"):
        Schedules(store.config, stage.wire()).fire(report, NOW_MS)


HOURLY, DAILY = b'{"message":"report","every":3600}', b'{"message":"report","every":86400}'


def created(stage: Stage) -> None:
    """Schedules that are created at run time."""
    store = stage.queue()
    found = RuntimeSchedules(store.config, stage.wire())
    with stage.under("one is created, and cannot be created again"):
        found.define("nightly", HOURLY, before=b"", who="ann")
        found.define("nightly", DAILY, before=b"", who="ben")
    with stage.under("one is created paused"):
        found.define("paused", HOURLY, before=b"", who="ann", paused=True)
    stage.client.hset(store.keys.runtime_schedules, "last:nightly", NOW_MS - 7_200_000)
    with stage.under("its data is changed, then its time"):
        found.define("nightly", b'{"message":"m","every":3600}', before=HOURLY, who="ben")
        found.define("nightly", DAILY, before=b'{"message":"m","every":3600}', who="ben", anew=True)
    with stage.under("somebody else has changed it, or it is gone"):
        found.define("nightly", HOURLY, before=HOURLY, who="eve")
        found.define("gone", HOURLY, before=HOURLY, who="eve")
    stage.client.hset(store.keys.runtime_schedules, "last:nightly", NOW_MS - 7_200_000)
    stage.client.hset(store.keys.runtime_schedules, "definition:foreign", HOURLY)
    with stage.under("one that another program wrote is new"):
        (loaded,) = (each for each in found.load()[1] if each.name == "nightly")
    with stage.under("its tick, also after a change"):
        found.fire(loaded.parsed.entry, NOW_MS - 10)
        found.define("nightly", HOURLY, before=DAILY, who="ben")
        found.fire(loaded.parsed.entry, NOW_MS - 5)
    with stage.under("paused twice, and not there"):
        found.pause("nightly", who="ann")
        found.pause("nightly", who="ben")
        found.pause("gone")
    with stage.under("a tick of another definition is not skipped"):
        found.skip(loaded.parsed.entry, NOW_MS + 1000)
    stage.client.hset(store.keys.runtime_schedules, "skips:nightly", f"{NOW_MS + 1000} 5 ann")
    with stage.under("a change of its times forgets what is skipped"):
        found.define("nightly", DAILY, before=HOURLY, who="ben", anew=True)
    with stage.under("deleted twice"):
        found.delete("nightly")
        found.delete("nightly")
    with stage.under("as many as there may be"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("mq_django.stores.runtime_schedules.MAX_SCHEDULES", 1)
        found.define("more", HOURLY, before=b"", who="ann")
