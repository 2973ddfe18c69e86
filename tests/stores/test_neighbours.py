"""Every script against every broken neighbour: no message is lost, and none is there twice."""

import itertools
import re
import threading

import pytest

from mq_django import Breaker, CancelResult, queues
from mq_django.conf import get_config
from mq_django.core.breakers import Results
from mq_django.core.flow_graph import StepRecord
from mq_django.core.jsontext import dumps, loads
from mq_django.core.keys import WorkflowKeys
from mq_django.core.limits import LimitChange
from mq_django.core.messages import ACK, Bury, Cancel, Expire, HandBack, Park, Retry, SetAside, StepDrop, StepEnd
from mq_django.core.publication import publication
from mq_django.core.running_handler import Progress, Report
from mq_django.core.schedules import Scheduled, every
from mq_django.inspector.key_lines import key_line, skip
from mq_django.inspector.plans import limit_uses
from mq_django.inspector.readers import held, reader_of
from mq_django.stores import open_members, open_publisher, open_store
from mq_django.stores.base import Also, Settlement
from mq_django.stores.control import StackRequests, limits_command
from mq_django.stores.counters import Slots, read_totals
from mq_django.stores.dead_letters import NO_STEP, open_dead_letters
from mq_django.stores.handled import MessageHistory
from mq_django.stores.line_store import Shares
from mq_django.stores.log import Log
from mq_django.stores.message_scans import Cursor, scan_state
from mq_django.stores.message_streams import end_streams
from mq_django.stores.moving import Mover
from mq_django.stores.outbox_marks import ClaimName, EndedMessages, OutboxMarks, OutboxTransport
from mq_django.stores.partition_transport import PartitionTransport
from mq_django.stores.repartitioning import Repartitioning
from mq_django.stores.results import RunningTask, begin, end_cancelled, note_running, read_progress_of, save, watch
from mq_django.stores.schedule_status import statuses
from mq_django.stores.schedules import RuntimeSchedules, Schedules
from mq_django.stores.workflow_home import Event, StepNotes, WorkflowHome
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session
from tests import places
from tests.purging import purge
from tests.stores.acts import make_due, take_all
from tests.stores.cases import RSMQ, STREAM, TOPIC, RsmqCase, outgoing
from tests.stores.everything import ME, OTHER, marked, use
from tests.stores.lua_files import lua_files, outer_files
from tests.stores.neighbours import Neighbours, breaks

pytestmark = pytest.mark.single_server(
    why="a script does the same on any node, and the keys of all slots are read at once"
)

OUT_OF_MEMORY = ("CONFIG", "SET", "maxmemory", "1")


#: Scripts that let a full Redis be emptied, so that they have to go on when memory is out.
DRAINS = {
    *("settle", "reassign", "stream_fetch", "topic_fetch", "lines_fetch", "lines_wake", "shares_ask", "lines_begin"),
    *("stream_subscribe", "topic_subscribe", "topic_claim_check", "rsmq_receive", "rsmq_extend", "rsmq_release"),
    *("waiting_promote", "waiting_release", "waiting_cancel", "messages_delete", "rsmq_waiting"),
    *("steps_forget", "members_heartbeat"),
    *("jobs_begin", "jobs_claim", "jobs_end"),
    *("breakers_count", "holds_release"),
}
#: Keys that only count what happened.
COUNTS = re.compile(r":(counters:([mh]:\d+|total)|dead-groups)$")
#: What a page asks of the counters themselves.
READS_COUNTS = {"counters_totals", "queue_stats", "rsmq_stats", "topic_stats"}


@pytest.fixture
def recorder(mq_settings, namespace, redis_client):
    with pytest.MonkeyPatch.context() as patch:
        found = Neighbours(redis_client, namespace)
        found.install(patch)
        record(found, mq_settings, namespace)
    return found


@pytest.mark.timeout(400)  # thousands of calls
def test_no_broken_neighbour_and_no_full_redis_costs_a_message_or_doubles_one(recorder):
    # For several queues a script runs as for one: see tests/transport/test_together.py.
    scripts_here = lua_files() | outer_files() - {"several"}
    assert set(recorder.calls) == scripts_here, "each script has its act in record()"
    problems = []
    for call in itertools.chain(*recorder.calls.values()):
        healthy = recorder.effect(call)
        recorder.restore(call.before)
        for broken, commands in list(breaks(recorder.client, call)):
            effect = recorder.effect(call, commands)
            problems += [f"{call.name} with {broken}: {what}" for what in effect.wrongs(healthy)]
            counts = COUNTS.search(broken.key) and call.name not in READS_COUNTS
            if isinstance(effect.reply, Exception) and (counts or "number" in broken.what):
                problems.append(f"{call.name} with {broken}: {effect.reply}")
    assert problems == [], chr(10).join(problems)
    when_full(recorder)


def when_full(recorder):
    """A full Redis costs no message, and can be emptied."""
    memory = {name: recorder.client.config_get(name)[name] for name in ("maxmemory", "maxmemory-policy")}
    problems, refused = [], set()
    for call in itertools.chain(*recorder.calls.values()):
        healthy = recorder.effect(call)
        try:
            effect = recorder.effect(call, [("CONFIG", "SET", "maxmemory-policy", "noeviction"), OUT_OF_MEMORY])
        finally:
            for name, value in memory.items():
                recorder.client.config_set(name, value)
        problems += [f"{call.name}: {what}" for what in effect.wrongs(healthy)]
        if isinstance(effect.reply, Exception):
            refused.add(call.name)
    assert problems == [], chr(10).join(problems)
    assert "stream_publish" in refused
    assert DRAINS & refused == set()


def record(recorder, mq_settings, namespace):
    """Do everything once, in every store."""
    rsmq = {"STORE": "rsmq", "NAMESPACE": f"{namespace}:r"}
    jobs = RsmqCase(name="rsmq", settings={"QUEUES": {"jobs": rsmq}}, queue="jobs", refuses=RSMQ.refuses)
    for case in (STREAM, TOPIC, jobs):
        mq_settings(**{"QUEUES": {}, **case.settings})
        use(case)
        recorder.restore({})
    for act in (
        be_ranked,
        be_aged,
        be_limited,
        be_ordered,
        be_fair,
        be_in_a_line,
        be_scheduled,
        be_expired,
        be_unique,
        be_cancelled,
        be_a_workflow,
        be_strange,
        be_a_log,
        be_looked_at,
        be_moved,
        be_held,
        be_remembered,
        be_partitioned,
        be_repartitioned,
        be_in_an_outbox,
        be_kept_in_an_outbox,
    ):
        mq_settings()
        act(recorder.client, mq_settings)
        recorder.restore({})


def store_of(queue="emails"):
    store = open_store(get_config().queue(queue), Session(get_client("consume")))
    store.create_groups()
    return store


def settle(store, outcome, items):
    assert store.settle(ME, [Settlement(item, outcome) for item in items]) == []


def be_moved(client, mq_settings):
    """Move dead letters, and what waits or is ready, to a queue in streams, and to one in RSMQ's format."""
    rsmq = {"STORE": "rsmq", "NAMESPACE": f"{get_config().queue('emails').namespace}:r"}
    mq_settings(QUEUES={"emails": {}, "bulk": {}, "jobs": rsmq})
    source, transport = store_of(), Session(get_client("inspect"))
    for target in ("bulk", "jobs"):
        store_of(target)
        source.publish([outgoing(data=marked()) for _ in range(3)])
        settle(source, Bury("no", reason="attempts"), take_all(source, ME))
        mover = Mover(source.config, transport, get_config().queue(target))
        entries = [letter.entry for letter in open_dead_letters(source.config, transport).traits(limit=9)]
        assert mover.write(entries[:1]).words == ["ACCEPTED"]
        words = mover.write(entries).words
        assert words == ["KNOWN", "ACCEPTED", "ACCEPTED"]
        mover.remove(entries, words)
    for queue, other in (("emails", "bulk"), ("jobs", "bulk"), ("bulk", "jobs")):
        store = store_of(queue)
        store.publish([outgoing(data=marked())])
        unique = {} if queue == "jobs" else {"unique": "u"}
        store.publish([publication(store.config, "welcome", marked(), delay=60, **unique)])
        mover = Mover(store.config, transport, get_config().queue(other))
        for state in ("ready", "delayed"):
            cursor = Cursor()
            while read := scan_state(store.config, transport, state, cursor, 9):
                place, found, cursor = read
                step = NO_STEP._replace(state=state)
                held = mover.hold(place, [message.member for message in found], step=step).entries
                mover.remove(held, mover.write(held).words)
        if queue == "emails":
            purge(store_of("bulk").config)


def be_held(client, mq_settings):
    """Let a breaker open, let a probe through, and end the hold."""
    for options in ({}, {"ORDERED": True}):
        mq_settings(QUEUES={"emails": options})
        store, breaker, subject = store_of(), Breaker(of=2), "name:welcome"
        store.publish([outgoing(data=marked(), key=f"k{number}") for number in range(3)])
        items = take_all(store, ME)
        store.count_results([Results(breaker, subject, failed=1, error="no")])
        store.count_results([Results(breaker, subject, failed=1, error="no")])
        settle(store, Park(subject), items)
        holds = store.keys.holds
        client.hset(holds, subject, dumps(loads(client.hget(holds, subject)) | {"next": 1}))
        store.promote(limit=9)
        probes = take_all(store, ME)
        assert [each.probe for each in probes] == [subject]
        store.count_results([Results(breaker, subject, handled=1, probes=1)])
        settle(store, ACK, probes)
        assert store.end_hold(subject)
        store.promote(limit=9)
        settle(store, ACK, take_all(store, ME))


def be_partitioned(client, mq_settings):
    """Publish to partitions, wake consumers that sleep, and let them sleep."""
    mq_settings(QUEUES={"emails": {"PARTITIONS": 2, "ORDERED": True}})
    queue, part = queues["emails"], get_config().queue("emails.1")
    transport = PartitionTransport(part, Session(get_client("inspect")))
    transport.sleeps = True
    store = open_store(part, transport)
    store.create_groups()
    assert take_all(store, ME) == []
    for delay in (None, 5):
        queue.publish("welcome", marked(), key="k", delay=delay)
    first = take_all(store, ME)
    assert take_all(store, OTHER) == []
    queue.publish("welcome", marked(), key="k")
    settle(store, HandBack(), first)
    settle(store, ACK, take_all(store, ME))
    mq_settings(QUEUES={"emails": {"PARTITIONS": 2, "RATE_LIMIT": "5/h", "CONCURRENCY": 3}})
    for name, wanted in ((ME, 2), (OTHER, 2), (OTHER, 1), (ME, 0)):
        Shares(get_config().queue("emails"), Session(get_client("inspect")), name).ask(0, wanted)


def be_repartitioned(client, mq_settings):
    """Change the number of partitions, with messages in every place."""
    mq_settings(QUEUES={"emails": {"PARTITIONS": 2, "ORDERED": True, "ON_DEAD_LETTER": "hold"}})
    queue, part = queues["emails"], get_config().queue("emails").partition_for(key="k")
    store = open_store(part, Session(get_client("inspect")))
    store.create_groups()
    for number, outcome in enumerate((Retry(), Bury("no"), SetAside(), HandBack())):
        for _ in range(2):
            queue.publish("welcome", marked(), key="k" * (number + 1), message_id=f"of-{number}-{marked()}")
        for each in get_config().queue("emails").parts:
            own = open_store(each, Session(get_client("inspect")))
            own.create_groups()
            own.settle(ME, [Settlement(item, outcome, delay_ms=9000) for item in take_all(own, ME)[:1]])
    queue.publish("welcome", marked(), delay=60, unique="u")
    queue.publish("welcome", marked(), unique="c", unique_for=60)
    client.set(part.keys.result("of"), b"{}", px=60_000)
    change = Repartitioning(get_config().queue("emails"), Session(get_client("inspect")))
    change.begin(3)
    change.pause("me")
    for each in change.parts.values():
        own = open_store(each, Session(get_client("inspect")))
        own.settle(ME, [Settlement(item, HandBack()) for item in own.held_by(ME, limit=99)])
    change.close("me")
    while any(change.take()):
        pass
    change.all_taken()
    for each in change.old.each_part:
        while change.put(each)[0]:
            pass
    change.copy_results()
    change.open()


def be_in_an_outbox(client, mq_settings):
    """Publish rows of outboxes to queues and a topic, refuse some, and end claims."""
    mq_settings(QUEUES={"emails": {}, "parts": {"PARTITIONS": 2}}, TOPICS={"orders": {}})
    config = get_config()
    for place in (config.queue("emails"), config.queue("parts.1"), config.topic("orders")):
        session = Session(get_client("inspect"))
        transport, marks = OutboxTransport(place, session), OutboxMarks(place, session)
        publisher = open_publisher(place, transport)
        claim, kinds = ClaimName("0utb0x:1", 1, "token"), [{}, {"keeps_result": True}]
        if place.name == "emails":
            kinds += [{"priority": 5}, {"delay_ms": 5000, "unique": "u"}, {"claim_ms": 0, "unique": "c"}]
        for number, options in enumerate(kinds, 1):
            answers = "holder" if "claim_ms" in options else "ids" if "delay_ms" in options else ""
            transport.begin(claim, number - 1, number, answers=answers)
            publisher.publish([outgoing(data=marked(), **options)])
        marks.refuse(claim, len(kinds), [(9, "too large")])
        marks.end(claim)


def be_kept_in_an_outbox(client, mq_settings):
    """End messages of which an outbox keeps the rows, in each way, and read that."""
    mq_settings(QUEUES={"emails": {"OUTBOX": {"KEEP_UNTIL": "handled"}}})
    queue, store = queues["emails"], store_of()
    store.publish([outgoing(data=marked()) for _ in range(4)])
    for item, outcome in zip(take_all(store, ME), (ACK, Cancel(), Expire(), Bury("no")), strict=True):
        settle(store, outcome, [item])
    store.cancel(queue.publish("welcome", marked(), delay=60, outbox=False))
    store.publish([outgoing(data=marked())])
    purge(store.config)
    ended = EndedMessages(store.config, Session(get_client("inspect")), "0utb0x")
    ended.done(ended.read()[0])


def be_remembered(client, mq_settings):
    """Keep what became of messages, and remove the oldest of it."""
    mq_settings(QUEUES={"emails": {"HISTORY": {"AGE": 3600, "COUNT": 1, "DATA": True}}})
    store = store_of()
    store.publish([outgoing(data="kept") for _ in range(3)])
    for item in take_all(store, ME):
        ended = [Settlement(item, ACK, micros=1)]
        assert store.settle(ME, ended) == []
    assert MessageHistory(store.config, Session(get_client("inspect"))).trim().removed == 2


def be_ranked(client, mq_settings):
    """Let messages with a priority wait in every place, and come from there."""
    queue, store = queues["emails"], store_of()
    for priority in (0, 5, -5, 7):
        queue.publish("welcome", marked(), priority=priority)
    delayed = [queue.publish("welcome", marked(), priority=priority, delay=60) for priority in (9, -9)]
    make_due(client, store.keys, *delayed)
    store.promote(limit=10)
    taken = take_all(store, ME)
    settle(store, SetAside(), taken[:3])
    settle(store, HandBack(), taken[3:])
    # Unread, and first in `ready`: it goes where it belongs.
    queue.publish("welcome", marked())
    queue.publish("welcome", marked())
    assert store.release_unhandled(["welcome"], limit=5) == 3
    while found := store.take(ME, count=1):
        settle(store, Retry(), found)
        settle(store, ACK, store.take(ME, count=1))
    queue.publish("welcome", marked(), priority=5)
    queue.publish("welcome", marked())
    assert store.take(ME, count=1)
    queue.publish("welcome", marked(), priority=6)
    store.fetch(ME, count=1, block_ms=10)
    take_all(store, ME)


def be_aged(client, mq_settings):
    """Let messages with a priority age, also those that are there when the queue gets that, and when it loses it."""
    queue, store = queues["emails"], store_of()
    for number in range(3):
        mq_settings(QUEUES={"emails": {"PRIORITY_AGEING": 60} if number == 1 else {}})
        queue, store = queues["emails"], store_of()
        for priority in (0, 5, -5, 0, 7):
            queue.publish("welcome", marked(), priority=priority)
        settle(store, ACK, store.take(ME, count=2))
    while found := store.take(ME, count=1):
        settle(store, ACK, found)
    mq_settings(QUEUES={"emails": {"PRIORITY_AGEING": 60}})
    queue, store = queues["emails"], store_of()
    queue.publish("welcome", marked())
    queue.publish("welcome", marked(), priority=-6)
    settle(store, ACK, store.take(ME, count=1))
    store.fetch(ME, count=1, block_ms=10)
    settle(store, ACK, take_all(store, ME))


def be_limited(client, mq_settings):
    """Let messages wait for permits of the queue and of their keys."""
    limits = {"RATE_LIMIT": {"queue": "1000/s", "key": "100/s"}, "CONCURRENCY": {"queue": 3, "key": 1}}
    mq_settings(QUEUES={"emails": limits})
    queue, store = queues["emails"], store_of()
    for key in ("a", "a", "b", "a", "c", "d", "e"):
        queue.publish("welcome", marked(), key=key)
    taken = store.take(ME, count=10)
    store.take(ME, count=10)
    settle(store, ACK, taken[:1])
    settle(store, HandBack(), taken[1:])
    taken = store.take(ME, count=10)
    settle(store, ACK, taken)
    store.fetch(ME, count=10, block_ms=10)
    purge(store.config, "parked")
    assert store.depths().parked >= 0
    assert limit_uses([queue.config], [Session(get_client("consume"))])
    for changed in ({"rate": LimitChange(limit="rate", value="none")}, {"rate": None}):
        Session(get_client("consume")).pipeline([limits_command(store.keys, changed, after_ms=0)])
        store.take(ME, count=10)
    mq_settings()
    store_of().promote(limit=10)


def be_ordered(client, mq_settings):
    """Let keys wait for their heads, in every place where these may be."""
    mq_settings(QUEUES={"emails": {"ORDERED": True, "ON_DEAD_LETTER": "hold"}})
    queue, store = queues["emails"], store_of()
    store.create_groups()
    outcomes = [ACK, Retry(), HandBack(), SetAside(), Bury("no"), Cancel(), StepEnd(), StepDrop()]
    for number in range(len(outcomes)):
        for _ in range(3):
            queue.publish("welcome", marked(), key=f"k{number}")
    taken = store.take(ME, count=10)
    store.extend(ME, [(taken[0].stream, taken[0].entry)])
    for item, outcome in zip(taken, outcomes, strict=True):
        settle(store, outcome, [item])
    store.promote(limit=10)
    store.release_unhandled(None, limit=10)
    dead = open_dead_letters(queue.config, Session(get_client("consume")))
    dead.redrive(dead.find([taken[4].message.id]))
    taken = store.take(ME, count=10)
    settle(store, Bury("no"), taken[:2])
    buried, deleted = dead.find([item.message.id for item in taken[:2]])
    dead.resubmit(buried, message_id="corrected", text=dumps(marked()))
    dead.delete([deleted])
    store.settle(ME, [Settlement(item, Retry(), delay_ms=60_000) for item in taken[2:4]])
    store.cancel(taken[2].message.id)
    assert purge(store.config)


def be_fair(client, mq_settings):
    """Let keys take turns."""
    mq_settings(QUEUES={"emails": {"FAIR": True}})
    store = store_of()
    store.create_groups()
    for key in ("a", "a", "a", "b", None):
        queues["emails"].publish("welcome", marked(), key=key)
    assert not store.line_up(ME)
    for count in (1, 2, 10):
        settle(store, ACK, store.take(ME, count=count))


def be_in_a_line(client, mq_settings):
    """Look at the line of a key, and let the key go on without its dead letter."""
    mq_settings(QUEUES={"emails": {"ORDERED": True, "ON_DEAD_LETTER": "hold"}})
    queue, store = queues["emails"], store_of()
    for _ in range(3):
        queue.publish("welcome", marked(), key="a")
    settle(store, Bury("no", reason="attempts"), take_all(store, ME))
    line = key_line("emails", "a")
    assert (line.parked, line.blocking.state) == (2, "dead")
    assert skip("emails", line.hash, line.blocking.token) == "SKIPPED"
    settle(store, ACK, store.take(ME, count=1))


def be_scheduled(client, mq_settings):
    """Fire, pause and resume a schedule."""
    schedules = Schedules(queues["emails"].config, Session(get_client("consume")))
    report = Scheduled(name="nightly", queue="emails", message="report", data=marked(), when=every(minutes=1))
    tick = places.now_ms(client) - 10
    schedules.read_states([report])
    client.hset(queues["emails"].config.keys.schedules, "last:nightly", tick - 60_000)
    schedules.fire(report, tick)
    schedules.fire_now(report)
    schedules.skip(report, tick + 120_000, who="ann")
    schedules.skip(report, tick + 180_000, who="ann")
    schedules.unskip("nightly", tick + 180_000)
    for override, before in ((b'{"every":60}', b""), (b"", b'{"every":60}')):
        (known,) = schedules.read_states([report])[1]
        schedules.override("nightly", override, before=before, last_ms=known.last_ms, due_ms=None, who="ann")
    client.hset(
        queues["emails"].config.keys.schedules, mapping={"last:nightly": tick - 60_000, "skips:nightly": tick - 60_000}
    )
    schedules.fire(report, tick)
    assert statuses(queues["emails"].config, Session(get_client("consume"))).found
    schedules.pause("nightly")
    schedules.resume("nightly")
    runtime = RuntimeSchedules(queues["emails"].config, Session(get_client("consume")))
    definition = dumps({"message": "report", "every": 60, "data": marked()})
    runtime.define("created", definition, before=b"", who="ann")
    client.hset(queues["emails"].config.keys.runtime_schedules, "last:created", tick - 60_000)
    (loaded,) = runtime.load()[1]
    runtime.fire(loaded.parsed.entry, tick)
    runtime.pause("created", who="ann")
    runtime.resume("created")
    runtime.delete("created")


def be_expired(client, mq_settings):
    """Discard messages that have expired, one of them under a unique key."""
    queue, store = queues["emails"], store_of()
    queue.publish("welcome", marked(), expires=60)
    queue.publish("welcome", marked(), expires=60, unique="x", unique_for="handled")
    settle(store, Expire(), take_all(store, ME))


def be_unique(client, mq_settings):
    """Replace, cancel, find and purge messages under unique keys, and claim these."""
    queue, store = queues["emails"], store_of()
    for _ in range(2):
        queue.publish("welcome", marked(), delay=60, unique="u")
    queue.publish("welcome", marked(), delay=60, unique="v", on_conflict="earliest")
    queue.publish("welcome", marked(), unique="w", unique_for="handled")
    queue.publish("welcome", marked(), unique="x", unique_for=60, delay=60)
    queue.publish("welcome", marked(), unique="y", unique_for="handled", delay=60)
    assert queue.find(unique="u")
    assert queue.reschedule(unique="u", delay=70)
    make_due(client, store.keys, "u:u")
    store.promote(limit=10)
    settle(store, ACK, take_all(store, ME))
    assert queue.cancel(unique="y")
    assert purge(store.config)


def be_cancelled(client, mq_settings):
    """Cancel messages that do not wait, one of them under a unique key."""
    queue, store = queues["emails"], store_of()
    queue.publish("welcome", marked(), unique="x", unique_for="handled")
    first = queue.publish("welcome", marked())
    open_members(queue.config, Session(get_client("consume"))).beat("s1", {}, {ME: {}})
    assert queue.cancel(first, running=True) is CancelResult.ASKED
    assert queue.cancel(unique="x", running=True, force=True) is CancelResult.ASKED
    settle(store, Cancel(), take_all(store, ME))


def be_a_workflow(client, mq_settings):
    """Start steps of a run, settle them in every way, and pass that on."""
    store, transport = store_of(), Session(get_client("consume"))
    home = WorkflowHome(WorkflowKeys(mq_settings()["NAMESPACE"], "0"), transport)
    records = [StepRecord(1, 0, b"one", "3"), StepRecord(2, 0, b"two"), StepRecord(3, 1, b"three")]
    home.create("0run", {"policy": "continue", "lasts": 60_000, "unique": "k", "on_finish": "x"}, records)
    home.advance("0run", [Event("begin", added="1-3")])
    ids = [f"w:0run00000.{number}.1" for number in range(1, 6)]
    store.start([outgoing("step:a", marked(), id=each) for each in ids])
    one, two, three, *_ = store.take(ME, count=3)
    store.settle(ME, [Settlement(one, StepEnd(value=b"1"))])
    store.settle(ME, [Settlement(two, Bury("no")), Settlement(three, Cancel())])
    notes = StepNotes(store.keys, transport)
    home.advance("0run", [note.event for note in notes.read(ids)])
    assert notes.left(age_ms=0)[0] == "0"
    assert home.left(age_ms=0) is not None
    notes.forget(notes.read(ids))
    letters = open_dead_letters(store.config, transport)
    letters.redrive([entry for entry in letters.find(ids) if entry])
    home.advance("0run", [Event("cancel")])
    home.advance("0run", [Event("continue")])


def be_strange(client, mq_settings):
    """Hold deliveries under a name that nobody announced."""
    queue, store = queues["emails"], store_of()
    queue.publish("welcome", marked())
    assert store.take("stranger", count=1)
    members = open_members(queue.config, Session(get_client("consume")))
    members.beat("s1", {}, {ME: {}})
    assert members.claim("stranger", ME) == 1
    assert members.ask(ME, "stop")
    assert StackRequests(queue.config, Session(get_client("inspect"))).ask(ME)
    members.evict("s1", 1)
    for item in store.held_by(ME, limit=5):
        assert store.reassign(ME, OTHER, [(item.stream, item.entry)]) == []


def be_a_log(client, mq_settings):
    """Trim a log, and sound the alarm of a group."""
    mq_settings(QUEUES={}, TOPICS={"orders": {"RETENTION_COUNT": 3}})
    store = store_of("orders:billing")
    log = Log(get_config().topic("orders"), Session(get_client("produce")))
    log.publish([outgoing(data=marked()) for _ in range(350)])
    store.take(ME, count=2)
    log.trim()
    settle(store, ACK, store.held_by(ME, limit=10))
    log.trim()
    log.recount()
    client.hset(log.keys.control, "counted-by", "another")
    log.recount()
    assert log.claim_check(10.0)
    log.set_alarm("billing", 90)
    log.publish([outgoing(data=marked()) for _ in range(3)])
    purge(store.config)


def be_looked_at(client, mq_settings):
    """Look at what is handed out, count, and keep a result."""
    rsmq = {"STORE": "rsmq", "NAMESPACE": f"{mq_settings()['NAMESPACE']}:r"}
    mq_settings(QUEUES={"emails": {"RESULT_TTL": 60, "STREAM": True}, "jobs": rsmq})
    for name in ("emails", "jobs"):
        store, transport = store_of(name), Session(get_client("consume"))
        store.publish([publication(store.config, "welcome", marked(), runs_task=name == "emails")])
        (item,) = store.take(ME, count=1)
        reader = reader_of(store.config, transport)
        receipt = (item.stream, item.entry.decode())
        assert list(held({name: [receipt]})[name]) == [receipt]
        if name == "emails":
            assert reader.before(f"ready.{item.entry}") == 0
            watch(transport, store.config, {store.keys.result(item.message.id): 0}, "p1")
            note_running(transport, store.config, ME, [RunningTask(item, 5000)])
            report = Report(delivery=item, config=store.config, stopping=threading.Event())
            begin(transport, store.config, report)
            report.set_position("prices", "17")
            report.set_progress(Progress(done=1))
            save(transport, store.config, [report])
            assert read_progress_of([(store.config, item.message.id)], [transport]) == [Progress(done=1)]
            end_cancelled(transport, store.config, [item.message.id])
            stream = report.open_stream()
            for text in (b"a", b"b"):
                stream.add("text", text)
            store.append(ME, [(item, stream)])
            end_streams(transport, store.config, [item.message.id], "no")
            told, counts = (
                [Settlement(item, ACK, keeps_result=True)],
                Slots(store.keys).add_command({("handled", "welcome"): 1}),
            )
            store.settle(ME, told, also=Also([counts], streamed=[(item, stream)]))
            client.hset(store.keys.hours(places.now_ms(client) // 86_400_000 - 1), "3|handled|", 5)
            read_totals([store.keys], [transport], now_ms=places.now_ms(client))
