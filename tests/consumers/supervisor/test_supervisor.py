"""Whole trees of processes: what becomes of messages when any of them dies, stops, or is asked to."""

import json
import re
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

from mq_django.conf import get_config
from mq_django.consumers.worker.isolation import backlog_of
from mq_django.inspector import messages
from mq_django.stores import open_store
from mq_django.stores.members import Members
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Pooled
from tests.chaos.surroundings import FAKETIME, Unavailable, hidden_processes
from tests.consumers.trees import kill, stop
from tests.processes import processes
from tests.seeding import set_aside
from tests.waiting import wait_until

FAST = {"default": {"VISIBILITY_TIMEOUT": 2}}


def empty(store):
    depths = store.depths()
    return depths.ready + depths.pending + depths.delayed == 0


def handler_pid(history):
    return history.wait_for("start")[0]["pid"]


def test_messages_are_handled_once_and_the_tree_ends_cleanly(trees, publish, history, store, redis_client):
    ids = [publish() for _ in range(100)]
    tree = trees("--processes", "2")
    history.wait_for("effect", 100)
    wait_until(lambda: empty(store))
    assert tree.stop() == 0
    assert history.counts() == dict.fromkeys(ids, 1)
    assert redis_client.hgetall(store.keys.consumers) == {}
    assert redis_client.xinfo_consumers(store.keys.ready, "mq") == []


def test_what_a_killed_child_held_goes_on_at_once(trees, publish, history, store, tmp_path):
    """Eight run, others lie ready in the process; another process takes those over, and a quarantine what ran."""
    gate = tmp_path / "gate"
    trees("--processes", "2")
    publish()
    history.wait_for("effect")
    # None ends while the kill comes: it would have its effect, no ack, and run again.
    ids = [publish(["wait", str(gate)], ["sleep", 0.1]) for _ in range(30)]
    # All threads of both processes run something: who runs alone would be charged.
    killed = history.wait_for("start", 1 + 16)[-1]["pid"]
    kill(killed)
    at = time.monotonic()
    gate.touch()
    history.wait_for("effect", 31)
    wait_until(lambda: empty(store))
    ended_elsewhere = [line for line in history.lines("effect") if line["pid"] != killed and line["t"] > at]
    assert ended_elsewhere
    assert all(history.counts()[message_id] == 1 for message_id in ids)
    # Eight ran beside each other: which of them was to blame, if any, shows when each runs alone.
    assert {line["attempt"] for line in history.lines("start")} == {1}


def test_what_was_handled_but_not_acked_when_its_process_died_is_acked(trees, publish, history, store, redis_client):
    tree = trees()
    publish()
    history.wait_for("effect")
    wait_until(lambda: empty(store))
    ids = [publish(["sleep", 0.2]) for _ in range(8)]
    history.wait_for("start", 9)
    # From now on Redis answers no script; what is handled stays unsettled.
    redis_client.execute_command("CLIENT", "PAUSE", 1500, "WRITE")
    history.wait_for("effect", 9)
    (child,) = tree.children()
    kill(child)
    wait_until(lambda: empty(store))
    publish()
    history.wait_for("effect", 10)
    assert all(history.counts()[message_id] == 1 for message_id in ids)


def test_a_child_that_dies_as_it_starts_is_started_again(trees, publish, history):
    tree = trees()
    wait_until(tree.children)
    kill(tree.children()[0])
    publish()
    history.wait_for("effect")
    assert tree.stop() == 0


def test_who_dies_young_again_and_again_costs_its_neighbours_no_pause(trees, publish, history):
    tree = trees("--processes", "2")
    publish()
    worker = history.wait_for("effect")[0]["pid"]
    for _ in range(4):
        # As they start: none of them has begun a message.
        (young,) = wait_until(lambda: [pid for pid in tree.children() if pid != worker])
        kill(young)
        wait_until(lambda young=young: young not in tree.children())
    kill(worker)
    at = time.monotonic()
    wait_until(lambda: set(tree.children()) - {worker})
    # Who died young pauses for two seconds by now.
    assert time.monotonic() - at < 1.5
    publish()
    history.wait_for("effect", 2)
    assert tree.stop() == 0


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits other processes")
def test_a_process_that_the_system_refuses_is_started_when_it_can_be(trees, publish, history):
    tree = trees()
    publish()
    child = history.wait_for("effect")[0]["pid"]
    before = resource.prlimit(tree.pid, resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    kill(child)
    wait_until(lambda: "Cannot start a consumer process" in tree.logged())
    resource.prlimit(tree.pid, resource.RLIMIT_NOFILE, before)
    publish()
    history.wait_for("effect", 2)
    assert tree.stop() == 0


@pytest.mark.slow
def test_children_killed_from_outside_are_replaced_at_once(trees, publish, history):
    """However young they are and however many: the growing pause is for those that die as they start."""
    tree = trees()
    for number in range(4):
        publish()
        pid = history.wait_for("effect", number + 1)[-1]["pid"]
        began = time.monotonic()
        # Past its start, as the pause is for what dies before.
        wait_until(lambda began=began: time.monotonic() > began + 1.2)
        kill(pid)
    publish()
    at = time.monotonic()
    history.wait_for("effect", 5)
    assert time.monotonic() - at < 6.0
    assert tree.stop() == 0


def test_a_child_that_is_started_in_a_pause_runs_nothing(trees, publish, history, store, redis_client):
    tree = trees()
    # It says so after it has started, and could be killed before.
    wait_until(lambda: "handles" in tree.logged())
    publish()
    child = history.wait_for("effect")[0]["pid"]
    redis_client.hset(store.keys.control, "paused", "1")
    redis_client.publish(store.keys.wake, "paused")
    kill(child)
    wait_until(lambda: tree.children() and child not in tree.children())
    publish()
    wait_until(lambda: tree.logged().count("handles") == 2)
    # Long enough for a blocked read, which would not ask whether the queue is paused.
    began = time.monotonic()
    wait_until(lambda: history.counts("start").total() > 1 or time.monotonic() > began + 1.5)
    assert tree.stop() == 0
    assert len(history.lines("start")) == 1
    assert store.depths().ready == 1


@pytest.mark.slow
def test_a_handler_that_holds_the_gil_for_longer_than_the_visibility_timeout_runs_once(trees, publish, history, store):
    trees(QUEUES=FAST)
    trees(QUEUES=FAST)
    ids = [publish(["gil", 5.0]), publish(["sleep", 5.0])]
    history.wait_for("effect", 2)
    wait_until(lambda: empty(store))
    assert history.counts("start") == dict.fromkeys(ids, 1)


def test_a_stopped_child_keeps_what_it_runs_and_others_get_the_rest(trees, publish, history, store, tmp_path):
    gate = tmp_path / "gate"
    trees("--threads", "1", QUEUES=FAST)
    ids = [publish(["wait", str(gate)])]
    child = handler_pid(history)
    stop(child)
    gate.touch()
    # The stopped process still stands in the line at Redis, and gets one of these.
    ids += [publish() for _ in range(3)]
    trees(QUEUES=FAST)
    history.wait_for("effect", 3)
    kill(child, signal.SIGCONT)
    wait_until(lambda: empty(store))
    assert history.counts() == dict.fromkeys(ids, 1)
    assert history.lines("effect")[-1]["pid"] == child


def test_what_comes_to_a_process_that_does_not_respond_goes_on_soon(trees, publish, history, store, redis_client):
    """Redis goes on handing messages to its blocked reads."""
    trees("--processes", "2", "--threads", "1")
    publish(["wait", "never"])
    stopped = handler_pid(history)
    stop(stopped)
    members = Members(get_config().queue("default"), Pooled(get_client("chores")))
    found = members.beat("watcher", {}, {}).consumers
    (name,) = [name for name, told in found.items() if told["pid"] == stopped]
    waits = []
    for number in range(4):
        together = redis_client.pipeline()
        together.xadd(store.keys.ready, {"type": "act", "data": "{}"})
        together.xreadgroup("mq", name, {store.keys.ready: ">"})
        began = time.monotonic()
        assert together.execute()[1]
        history.wait_for("effect", number + 1)
        waits.append(time.monotonic() - began)
    # Until the first it may be only slow. Then it is looked at once a second.
    assert max(waits[1:]) < 5.0


def test_a_stopped_child_is_replaced_at_its_handlers_timeout(trees, publish, history, store):
    tree = trees()
    # It stops itself: from outside, its handler could have been interrupted before.
    message_id = publish(["once", ["stop", None]], ["once", ["wait", "never"]], name="timed")
    child = handler_pid(history)
    # The second attempt runs elsewhere.
    (line,) = history.wait_for("effect")
    assert line["pid"] != child
    assert (line["id"], line["attempt"]) == (message_id, 2)
    assert child not in tree.children()


@pytest.mark.slow
def test_a_stopped_child_that_runs_nothing_is_replaced(trees, publish, history, store):
    tree = trees()
    publish()
    child = handler_pid(history)
    # Between its effect and its ack a handler still runs: a process that runs one without a timeout is kept.
    wait_until(lambda: history.lines("effect") and empty(store))
    stop(child)
    publish()
    history.wait_for("effect", 2, timeout=40)
    assert child not in tree.children()


def test_a_handler_that_cannot_be_interrupted_costs_its_process_and_no_neighbour_an_attempt(
    trees, publish, history, store
):
    stubborn = publish(["once", ["stubborn", 30.0]], name="timed")
    trees("--grace", "10")
    history.wait_for("start")
    neighbours = [publish(["sleep", 3.0]) for _ in range(5)]
    history.wait_for("effect", 6, timeout=30)
    wait_until(lambda: empty(store))
    assert [line["attempt"] for line in history.lines("start") if line["id"] == stubborn] == [1, 2]
    attempts = {line["id"]: line["attempt"] for line in history.lines("effect")}
    assert [attempts[neighbour] for neighbour in neighbours] == [1] * 5
    assert all(history.counts()[neighbour] == 1 for neighbour in neighbours)


def test_while_a_process_is_replaced_its_other_queues_go_on(trees, publish, history, tmp_path):
    began = time.monotonic()
    tree = trees(QUEUES={"a": {}, "b": {}})
    publish(queue="b")
    started = history.wait_for("effect")[0]["t"] - began
    late = publish(["once", ["stubborn", 20]], name="timed", queue="a")
    published, at = {}, time.monotonic()
    until = at + 5
    while at < until:
        published[publish(queue="b")] = at
        at = wait_until(lambda at=at: now if (now := time.monotonic()) > at + 0.02 else 0.0)
    ended = {line["id"]: line["t"] for line in history.wait_for("effect", 1 + len(published)) if line["queue"] == "b"}
    # The start of the tree was that of two processes one after another: none waits for that of one.
    assert max(ended[message_id] - at for message_id, at in published.items()) < max(0.5, started / 3)
    logged = wait_until(lambda: text if "stopped" in (text := tree.logged()) else "")
    # The late one has its effect in the new process.
    wait_until(lambda: len({line["pid"] for line in history.lines("effect")}) == 2)
    assert f"Handler timed of message {late!r} of queue a has exceeded its timeout" in logged
    assert re.search(r"replaced: a handler cannot be interrupted. Past its timeout: entry '\S+' of queue a for", logged)


def test_handlers_that_are_late_one_after_another_cost_no_process(trees, publish, history):
    tree = trees()
    for number in range(20):
        # Late by 0.3 s, in which nothing interrupts it. A second would cost the process.
        publish(["once", ["sleep", 1.3]], name="timed")
        history.wait_for("start", number + 1)
        until = time.monotonic() + 0.2
        wait_until(lambda until=until: time.monotonic() > until)
    wait_until(lambda: len({line["id"] for line in history.lines("effect")}) == 20)
    assert len({line["pid"] for line in history.lines("start")}) == 1
    assert "replaced" not in tree.logged()


def test_a_late_handler_is_interrupted(trees, publish, history, store):
    late = publish(["once", ["spin", 30.0]], name="timed")
    trees()
    (line,) = history.wait_for("effect")
    assert (line["id"], line["attempt"]) == (late, 2)
    assert len({line["pid"] for line in history.lines("start")}) == 1


@pytest.mark.parametrize("kind", ["stream", "rsmq"])
def test_a_message_that_kills_its_process_is_buried_and_its_neighbours_are_handled_uncharged(
    trees, publish, history, mq_settings, redis_client, namespace, tmp_path, kind
):
    options = {"STORE": "rsmq", "NAMESPACE": f"{namespace}:r"} if kind == "rsmq" else {}
    mq_settings(QUEUES={"default": {"MAX_ATTEMPTS": 3, **options}})
    config = get_config().queue("default")
    store = open_store(config, Pooled(get_client("produce")))
    gate, door = tmp_path / "gate", tmp_path / "door"
    killer = publish(["wait", str(gate)], ["exit", 1])
    beside = [publish(["wait", str(door)]) for _ in range(7)]
    behind = [publish(["sleep", 0.01]) for _ in range(20)]
    trees()
    history.wait_for("start", 8)
    gate.touch()
    wait_until(lambda: history.counts("start")[killer] == 2, timeout=30)
    door.touch()
    wait_until(lambda: store.depths().dead, timeout=40)
    wait_until(lambda: empty(store), timeout=30)
    ((_, dead),) = redis_client.xrange(store.keys.dead)
    assert (dead[b"id"].decode(), dead[b"deadreason"], dead[b"deadattempts"]) == (killer, b"crashed", b"3")
    # The first time it had company and was not charged; when it killed again, alone, both counted.
    assert [line["attempt"] for line in history.lines("start") if line["id"] == killer] == [1, 1, 3]
    assert history.counts() == dict.fromkeys([*beside, *behind], 1)
    assert {line["attempt"] for line in history.lines("start") if line["id"] != killer} == {1}


def test_what_is_passed_on_to_a_quarantine_that_is_gone_is_found_soon(
    trees, publish, history, store, redis_client, tmp_path
):
    """Whoever passed it on had read the quarantine's name before, and was slow to reach Redis."""
    gate, late = tmp_path / "gate", publish()
    store.create_groups()
    (delivery,) = store.take("slow", count=1)
    tree = trees()
    publish(["once", ["exit", 1]], ["wait", str(gate)])
    quarantine_pid = history.wait_for("start", 2)[1]["pid"]
    (quarantine,) = re.findall(r"Consumer (\S+) is a quarantine", tree.logged())
    kill(quarantine_pid)
    # Another quarantine may take from the same line until the message has ended.
    gate.touch()
    wait_until(lambda: not redis_client.hexists(store.keys.consumers, f"consumer:{backlog_of(quarantine)}"), within=45)
    assert store.reassign("slow", backlog_of(quarantine), [(delivery.stream, delivery.entry)]) == []
    wait_until(lambda: late in history.counts())
    assert history.counts("start")[late] == 1


def test_as_many_quarantines_as_consumers_share_what_must_run_alone(trees, history, store, redis_client, tmp_path):
    gate = tmp_path / "gate"
    store.create_groups()
    for _ in range(5):
        data = json.dumps({"do": [["wait", str(gate)]]})
        redis_client.xadd(store.keys.ready, {"type": "act", "data": data, "alone": "1"})
    tree = trees("--processes", "3")
    started = history.wait_for("start", 3)
    # Each runs one message at a time.
    assert len({line["pid"] for line in started}) == len(started) == 3
    gate.touch()
    history.wait_for("effect", 5)
    wait_until(lambda: empty(store))
    assert set(history.counts().values()) == {1}
    assert len(tree.children()) <= 3 + 3
    assert tree.stop() == 0


def test_a_broken_queue_keeps_no_quarantine_from_the_others(trees, publish, history, redis_client):
    redis_client.set(get_config().queue("emails").keys.consumers, "nonsense")
    tree = trees()
    message_id = publish(["once", ["exit", 1]])
    history.wait_for("effect", timeout=30)
    assert history.counts("start") == {message_id: 2}
    assert len({line["pid"] for line in history.lines("start")}) == 2
    assert tree.stop() == 0


def test_what_kills_quarantines_holds_up_nothing_else_that_must_run_alone(trees, publish, history, store, redis_client):
    store.create_groups()
    for number in range(8):
        data = json.dumps({"do": [] if number % 4 == 3 else [["kill", 9]]})
        redis_client.xadd(store.keys.ready, {"type": "act", "data": data, "alone": "1"})
    trees("--processes", "3", QUEUES={"default": {"MAX_ATTEMPTS": 2}})
    history.wait_for("effect", 2, timeout=50)
    wait_until(lambda: store.depths().dead == 6, timeout=50)
    wait_until(lambda: empty(store))
    assert set(history.counts("start").values()) <= {1, 2}
    assert set(history.counts().values()) == {1}


@pytest.mark.parametrize("step", [["kill", signal.SIGKILL], ["segfault", 0]])
def test_whatever_ends_a_process_is_a_crash(trees, publish, history, store, redis_client, step):
    publish(step)
    trees(QUEUES={"default": {"MAX_ATTEMPTS": 1}})
    wait_until(lambda: store.depths().dead)
    ((_, dead),) = redis_client.xrange(store.keys.dead)
    assert dead[b"deadreason"] == b"crashed"


@pytest.mark.parametrize("step", [["sysexit", 3], ["memory", 0]])
def test_what_a_handler_raises_never_ends_its_process(trees, publish, history, store, step):
    publish(step)
    trees(QUEUES={"default": {"MAX_ATTEMPTS": 1}})
    wait_until(lambda: store.depths().dead)
    publish()
    history.wait_for("effect")
    assert len({line["pid"] for line in history.lines()}) == 1


def test_the_supervisor_gone_its_child_finishes_and_hands_back(trees, publish, history, store, tmp_path):
    gate = tmp_path / "gate"
    first = trees("--threads", "1", QUEUES=FAST)
    running = publish(["wait", str(gate)])
    child = handler_pid(history)
    kill(first.pid)
    waiting = [publish() for _ in range(5)]
    trees(QUEUES=FAST)
    history.wait_for("effect", 5)
    # The orphan keeps what it runs for longer than the visibility timeout.
    start = history.lines("start")[0]["t"]
    wait_until(lambda: time.monotonic() > start + 5.0)
    gate.touch()
    history.wait_for("effect", 6)
    wait_until(lambda: empty(store))
    assert history.counts() == dict.fromkeys([running, *waiting], 1)
    assert [line["pid"] for line in history.lines("effect") if line["id"] == running] == [child]


def test_a_machine_gone_others_reclaim_within_the_visibility_timeout(trees, publish, history, store, monkeypatch):
    first = trees(QUEUES=FAST)
    ids = [publish(["once", ["sleep", 60]]) for _ in range(8)]
    history.wait_for("start", 8)
    second = trees("--processes", "1", QUEUES=FAST)
    publish()
    history.wait_for("effect")
    first.kill_all()
    at = time.monotonic()
    starts = history.wait_for("start", 8 + 1 + 8)
    assert starts[-1]["t"] - at < 4.0
    assert {line["attempt"] for line in starts} == {1}
    assert {line["id"] for line in starts[9:]} == set(ids)
    second.kill_all()


@pytest.mark.slow
def test_a_tree_that_was_stopped_for_long_runs_nothing_that_others_took_over(trees, publish, history, store):
    """It stands still for longer than the visibility timeout, with messages lying ready in it, and then goes on."""
    first = trees("--threads", "2", QUEUES=FAST)
    publish()
    history.wait_for("effect")
    ids = [publish(["sleep", 0.2]) for _ in range(40)]
    history.wait_for("start", 6)
    frozen = [first.pid, *first.children()]
    for pid in frozen:
        stop(pid)
    (consumer,) = re.findall(r"Consumer (\S+) handles", first.logged())
    held = {item.message.id for item in store.held_by(consumer, limit=100)}
    begun = held & set(history.counts("start"))
    second = trees("--threads", "2", QUEUES=FAST)
    wait_until(lambda: len(set(history.counts()) | begun) == 1 + 40, timeout=40)
    for pid in frozen:
        kill(pid, signal.SIGCONT)
    publish_after = [publish() for _ in range(10)]
    wait_until(lambda: set(history.counts()) >= {*ids, *publish_after}, timeout=30)
    wait_until(lambda: empty(store))
    # Only what ran when it was stopped, or had ended and was not settled yet, may have its effect twice.
    assert {message_id for message_id, count in history.counts().items() if count > 1} <= begun
    assert max(history.counts().values()) <= 2
    wait_until(lambda: "was taken for dead" in first.logged())
    assert second.stop() == 0
    assert first.stop() == 0
    assert store.depths().pending == 0


def test_what_a_stranger_holds_whose_name_is_no_text_is_handled(trees, publish, history, store, redis_client):
    ids = [publish() for _ in range(3)]
    store.create_groups()
    redis_client.xreadgroup("mq", b"\xff\xfe of old", {store.keys.ready: ">"})
    tree = trees(QUEUES={"default": {"VISIBILITY_TIMEOUT": 1}})
    # Five visibility timeouts: nobody knows how strangers show that they live.
    history.wait_for("effect", 3, within=40)
    wait_until(lambda: empty(store))
    assert history.counts() == dict.fromkeys(ids, 1)
    assert tree.stop() == 0
    assert redis_client.xinfo_consumers(store.keys.ready, "mq") == []
    assert "Traceback" not in tree.logged()


def test_an_orphan_gives_back_what_outlives_the_grace_and_ends(trees, publish, history, store):
    first = trees("--threads", "2", "--grace", "1")
    ids = [publish(["once", ["wait", "never"]]) for _ in range(2)]
    child = history.wait_for("start", 2)[0]["pid"]
    kill(first.pid)
    wait_until(lambda: child not in [process.pid for process in processes()], within=25)
    depths = store.depths()
    assert (depths.ready, depths.pending) == (2, 0)
    assert {item.message.attempt for item in store.take("x", count=2)} == {1}
    assert history.counts("start") == dict.fromkeys(ids, 1)


def test_steps_of_the_consumers_clock_change_nothing(trees, publish, history, store, tmp_path):
    """An hour forth and back, while messages run, wait, and are judged by heartbeats of another tree."""
    library = next((path for folder in FAKETIME if (path := Path(folder) / "libfaketime.so.1").exists()), None)
    if library is None:
        pytest.skip("libfaketime is not installed")
    clock = tmp_path / "clock"
    clock.write_text("+0", encoding="ascii")
    faked = {
        "LD_PRELOAD": library,
        "FAKETIME_TIMESTAMP_FILE": clock,
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    first = trees(wrap=["env", *(f"{name}={value}" for name, value in faked.items())], QUEUES=FAST)
    second = trees(QUEUES=FAST)
    for tree in (first, second):
        tree.wait_until_ready()
    ids = []
    for number, offset in enumerate(("+3600", "-3600", "+0")):
        # Not asleep: libfaketime makes an error of Python's sleep.
        ids += [publish(["spin", 0.1]) for _ in range(16)]
        ids += [publish(delay=1.0), publish(["once", ["raise", "x"]]), publish(name="timed")]
        history.wait_for("start", 20 * number + 8)
        # Replaced in one step: it is read at any moment.
        fresh = tmp_path / "fresh"
        fresh.write_text(offset, encoding="ascii")
        fresh.replace(clock)
        wait_until(lambda: set(history.counts()) == set(ids))  # noqa: B023 - called at once
    wait_until(lambda: empty(store))
    assert history.counts() == dict.fromkeys(ids, 1)
    assert "was taken for dead" not in first.logged() + second.logged()
    assert first.stop() == 0
    assert len({line["pid"] for line in history.lines("effect")}) == 2


@pytest.fixture
def hidden():
    try:
        with hidden_processes(None) as found:
            return found.wraps
    except Unavailable as why:
        pytest.skip(str(why))


def beats(client, store):
    """Return how often each supervisor has beaten."""
    found = client.hgetall(store.keys.consumers)
    return {name.partition(b":")[2].decode(): int(count) for name, count in found.items() if name[:5] == b"beat:"}


def test_supervisors_that_cannot_see_one_another_leave_one_another_alone(
    trees, publish, history, store, redis_client, hidden
):
    """As with hidepid=2, or with ProtectProc=invisible of systemd."""
    both = [trees("--threads", "2", wrap=wrap, QUEUES=FAST) for wrap in hidden]
    ids = [publish(["sleep", 1]) for _ in range(8)]
    wait_until(lambda: len(found := beats(redis_client, store)) == 2 and min(found.values()) > 5, timeout=20)
    history.wait_for("effect", 8)
    assert history.counts("start") == dict.fromkeys(ids, 1)
    assert [tree.stop() for tree in both] == [0, 0]
    logged = "".join(tree.logged() for tree in both)
    assert "is gone" not in logged
    assert "was taken for dead" not in logged


def test_supervisors_with_other_timeouts_leave_one_another_alone(trees, publish, history, store, redis_client):
    """As in a rolling deploy that makes VISIBILITY_TIMEOUT shorter than the time between two beats of the old one."""
    patient = trees("--threads", "2", QUEUES={"default": {"VISIBILITY_TIMEOUT": 30}})
    wait_until(lambda: len(beats(redis_client, store)) == 1)
    hasty = trees("--threads", "2", QUEUES=FAST)
    ids = [publish(["sleep", 1]) for _ in range(12)]
    wait_until(lambda: len(found := beats(redis_client, store)) == 2 and min(found.values()) > 2, timeout=20)
    history.wait_for("effect", 12)
    assert history.counts("start") == dict.fromkeys(ids, 1)
    assert [patient.stop(), hasty.stop()] == [0, 0]
    assert "is gone" not in hasty.logged()
    assert "was taken for dead" not in patient.logged()


#: Runs a command in a PID namespace of its own, as a container does, which all of it dies with.
CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@pytest.fixture
def container():
    if subprocess.run([*CONTAINER, "true"], check=False, capture_output=True).returncode:
        pytest.skip("a PID namespace takes root, and unshare")
    return CONTAINER


def test_what_a_container_held_is_judged_by_its_heartbeat(trees, publish, history, store, container):
    """The boot is the same, but its process numbers mean nothing here: nobody can see that all of it is gone."""
    seconds = 4
    queues = {"default": {"VISIBILITY_TIMEOUT": seconds}}
    first = trees("--threads", "2", wrap=container, QUEUES=queues)
    ids = [publish(["once", ["sleep", 60]]) for _ in range(2)]
    history.wait_for("start", 2)
    trees(QUEUES=queues)
    publish()
    history.wait_for("effect")
    at = time.monotonic()
    first.kill_all()
    starts = history.wait_for("start", 5)
    # A heartbeat may have been due when it died.
    assert seconds / 4 < starts[-1]["t"] - at < seconds * 2
    assert {line["id"] for line in starts[3:]} == set(ids)
    assert {line["attempt"] for line in starts} == {1}


def test_a_start_beside_a_container_takes_nothing_over(trees, publish, history, store, container, tmp_path):
    slow = {"default": {"VISIBILITY_TIMEOUT": 600}}
    gate = tmp_path / "gate"
    trees("--threads", "1", wrap=container, QUEUES=slow)
    message_id = publish(["wait", str(gate)])
    history.wait_for("start")
    trees(QUEUES=slow)
    ids = [publish() for _ in range(5)]
    history.wait_for("effect", 5)
    gate.touch()
    history.wait_for("effect", 6)
    wait_until(lambda: empty(store))
    assert history.counts("start") == dict.fromkeys([message_id, *ids], 1)


def test_a_start_on_the_same_machine_takes_over_at_once(trees, publish, history, store):
    slow = {"default": {"VISIBILITY_TIMEOUT": 600}}
    first = trees(QUEUES=slow)
    ids = [publish(["once", ["wait", "never"]]) for _ in range(3)]
    history.wait_for("start", 3)
    first.kill_all()
    second = trees(QUEUES=slow)
    starts = history.wait_for("start", 6, timeout=15)
    assert {line["id"] for line in starts[3:]} == set(ids)
    second.kill_all()


def test_a_start_beside_an_orphan_leaves_it_its_work(trees, publish, history, store, tmp_path):
    slow = {"default": {"VISIBILITY_TIMEOUT": 600}}
    gate = tmp_path / "gate"
    first = trees(QUEUES=slow)
    message_id = publish(["wait", str(gate)])
    history.wait_for("start")
    kill(first.pid)
    trees(QUEUES=slow)
    publish()
    history.wait_for("effect")
    gate.touch()
    history.wait_for("effect", 2)
    wait_until(lambda: empty(store))
    assert history.counts("start")[message_id] == 1


def test_asked_to_stop_it_finishes_what_runs_and_gives_the_rest_away(trees, publish, history, store, tmp_path):
    gate = tmp_path / "gate"
    first = trees("--threads", "2")
    running = publish(["wait", str(gate)])
    history.wait_for("start")
    second = trees("--threads", "2")
    second.wait_until_ready()
    ids = [publish(["sleep", 0.02]) for _ in range(300)]
    wait_until(lambda: len({line["pid"] for line in history.lines("start")}) == 2)
    first.signal(signal.SIGTERM)
    (consumer,) = re.findall(r"Consumer (\S+) handles", first.logged())
    wait_until(lambda: len(store.held_by(consumer, limit=100)) == 1, timeout=2.0)
    history.wait_for("effect", 300, timeout=30)
    gate.touch()
    assert first.wait(10) == 0
    wait_until(lambda: empty(store))
    assert history.counts() == dict.fromkeys([running, *ids], 1)
    assert {line["attempt"] for line in history.lines("start")} == {1}
    assert second.stop() == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_asked_twice_it_gives_back_at_once_what_runs(trees, publish, history, store, second):
    tree = trees()
    message_id = publish(["wait", "never"])
    history.wait_for("start")
    tree.signal(signal.SIGTERM)
    wait_until(lambda: "waiting for running handlers" in tree.logged())
    tree.signal(second)
    assert tree.wait(within=25) == 0
    assert store.depths().ready == 1
    (again,) = store.take("x", count=1)
    assert (again.message.id, again.message.attempt) == (message_id, 1)


def test_a_hangup_replaces_the_children_one_after_another(trees, publish, history, store):
    tree = trees("--processes", "2")
    wait_until(lambda: len(tree.children()) == 2)
    before = set(tree.children())
    publish()
    history.wait_for("effect")
    running = publish(["sleep", 2.0])
    history.wait_for("start", 2)
    tree.signal(signal.SIGHUP)
    wait_until(lambda: not before & set(tree.children()) and len(tree.children()) == 2, timeout=40)
    publish()
    history.wait_for("effect", 3)
    assert history.counts()[running] == 1
    assert tree.stop() == 0


def test_after_a_hangup_the_new_code_runs(trees, publish, history, tmp_path, monkeypatch):
    code = tmp_path / "code" / "fresh" / "handlers.py"
    code.parent.mkdir(parents=True)
    (code.parent / "__init__.py").touch()
    text = """
from mq_django import handler
from tests.consumers.project.history import note

@handler("default", "fresh")
def fresh(message):
    note("effect", id=message.id, version="{version}")
"""
    code.write_text(text.format(version="old"), encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(code.parent.parent))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("MQ_TEST_APPS", "fresh")
    tree = trees()
    publish(name="fresh")
    assert [line["version"] for line in history.wait_for("effect")] == ["old"]
    before = set(tree.children())
    code.write_text(text.format(version="new"), encoding="utf-8")
    tree.signal(signal.SIGHUP)
    wait_until(lambda: tree.children() and not before & set(tree.children()), timeout=40)
    publish(name="fresh")
    assert [line["version"] for line in history.wait_for("effect", 2)] == ["old", "new"]
    assert tree.stop() == 0


@pytest.mark.slow
def test_a_process_whose_loops_stopped_turning_is_replaced(trees, publish, history, store):
    tree = trees()
    publish(["stick", 0])
    stuck = history.wait_for("effect")[0]["pid"]
    ids = [publish() for _ in range(5)]
    history.wait_for("effect", 6, timeout=30)
    wait_until(lambda: empty(store))
    assert all(history.counts()[message_id] == 1 for message_id in ids)
    wait_until(lambda: stuck not in tree.children())
    # Which of them is found first, or both at once, is chance.
    assert "must be replaced: fetcher of" in tree.logged()
    assert tree.stop() == 0


def test_after_so_many_messages_another_process_takes_over(trees, publish, history, store):
    tree = trees("--max-messages", "30")
    ids = [publish(["sleep", 0.05]) for _ in range(200)]
    history.wait_for("effect", 200, timeout=40)
    wait_until(lambda: empty(store))
    assert history.counts() == dict.fromkeys(ids, 1)
    assert len({line["pid"] for line in history.lines()}) > 1
    assert "will be replaced" in tree.logged()
    assert "takes its place" not in tree.logged()


@pytest.mark.slow
def test_grown_too_large_a_process_is_replaced(trees, publish, history, store):
    ids = [publish(["sleep", 0.1]) for _ in range(160)]
    tree = trees("--max-memory", "1")
    history.wait_for("effect", 160, timeout=40)
    wait_until(lambda: empty(store))
    # What ran has finished, and what lay ready went on elsewhere.
    assert history.counts("start") == history.counts() == dict.fromkeys(ids, 1)
    assert len({line["pid"] for line in history.lines()}) > 1
    assert "will be replaced: it uses" in tree.logged()
    assert tree.stop() == 0


def test_draining_ends_when_nothing_is_left(trees, publish, history, store):
    ids = [publish() for _ in range(20)]
    tree = trees("--drain", "--processes", "2")
    assert tree.wait(30) == 0
    assert history.counts() == dict.fromkeys(ids, 1)
    assert len(re.findall("handles", tree.logged())) == 2


def test_draining_handles_unhandled_messages_that_have_a_handler_and_leaves_the_others(trees, history, store):
    handled = set_aside("default", "act", {"do": []})
    left = set_aside("default", "unknown")
    tree = trees("--drain")
    assert tree.wait(30) == 0
    assert history.counts() == {handled: 1}
    assert [view.message.id for view in messages.waiting("default", "unhandled", start=0, limit=5).waiting] == [left]


def test_ctrl_c_reaches_everybody_and_the_supervisor_decides(trees, publish, history, store):
    tree = trees()
    message_id = publish(["sleep", 1.0])
    history.wait_for("start")
    for pid in (*tree.children(), tree.pid):
        kill(pid, signal.SIGINT)
    assert tree.wait(10) == 0
    assert history.counts() == {message_id: 1}
    assert "Traceback" not in tree.logged()
