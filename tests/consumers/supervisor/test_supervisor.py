"""Whole trees of processes: what becomes of messages when any of them dies, stops, or is asked to."""

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from mq_django.consumers.service import interval
from mq_django.inspector import message_lists
from tests.chaos.surroundings import FAKETIME
from tests.consumers.project.apps import HEARTBEAT
from tests.consumers.trees import empty, kill, stop
from tests.processes import alive
from tests.seeding import set_aside
from tests.waiting import wait_until

FAST = {"default": {"VISIBILITY_TIMEOUT": 2}}
SLOW = {"default": {"VISIBILITY_TIMEOUT": 600}}


def handler_pid(history):
    return history.wait_for("start")[0]["pid"]


@pytest.mark.versions
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
    redis_client.execute_command("CLIENT", "PAUSE", 700, "WRITE")
    history.wait_for("effect", 9)
    (child,) = tree.children()
    kill(child)
    wait_until(lambda: empty(store))
    publish()
    history.wait_for("effect", 10)
    assert all(history.counts()[message_id] == 1 for message_id in ids)


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
    trees("--threads", "1", limits={"mq_django.consumers.supervisor.workers:SUSPEND_AFTER": 1.0}, QUEUES=SLOW)
    ids = [publish(["wait", str(gate)])]
    child = handler_pid(history)
    stop(child)
    gate.touch()
    # The stopped process still stands in the line at Redis, and gets one of these.
    ids += [publish() for _ in range(3)]
    trees(QUEUES=SLOW)
    history.wait_for("effect", 3)
    kill(child, signal.SIGCONT)
    wait_until(lambda: empty(store))
    assert history.counts() == dict.fromkeys(ids, 1)
    assert history.lines("effect")[-1]["pid"] == child


def test_a_handler_that_cannot_be_interrupted_costs_its_process_and_no_neighbour_an_attempt(
    trees, publish, history, store, tmp_path
):
    gate = tmp_path / "gate"
    stubborn = publish(["once", ["stubborn", 600.0]], name="timed")
    limits = {
        "mq_django.consumers.supervisor.workers:OVERTIME": 0.3,
        "mq_django.consumers.supervisor.workers:UNRESPONSIVE": 60.0,
    }
    tree = trees("--grace", "60", limits=limits, QUEUES={"default": {}, "a": {}})
    process = handler_pid(history)
    neighbours = [publish(["wait", str(gate)]) for _ in range(5)]
    history.wait_for("start", 6)
    # The other queues of the process go on, in its replacement.
    wait_until(lambda: len(tree.children()) == 2)
    publish(queue="a")
    assert history.wait_for("effect")[0]["queue"] == "a"
    gate.touch()
    history.wait_for("effect", 1 + 6)
    wait_until(lambda: empty(store) and process not in tree.children())
    assert [line["attempt"] for line in history.lines("start") if line["id"] == stubborn] == [1, 2]
    attempts = {line["id"]: line["attempt"] for line in history.lines("effect")}
    assert [attempts[neighbour] for neighbour in neighbours] == [1] * 5
    assert set(history.counts().values()) == {1}
    assert f"Handler timed of message {stubborn!r} of queue default has exceeded its timeout" in tree.logged()


@pytest.mark.versions
def test_a_late_handler_is_interrupted(shared_tree, publish, shared_history):
    late = publish(["once", ["spin", 600.0]], name="timed")
    (line,) = shared_history.wait_for("effect")
    assert (line["id"], line["attempt"]) == (late, 2)
    assert {line["pid"] for line in shared_history.lines("start")} <= set(shared_tree.children())


@pytest.mark.versions
def test_a_message_that_kills_its_process_is_buried_and_its_neighbours_are_handled_uncharged(
    trees, publish, history, store, redis_client, tmp_path
):
    gate, door = tmp_path / "gate", tmp_path / "door"
    # Whatever ends the process is a crash.
    killer = publish(["wait", str(gate)], ["exit", 1])
    beside = [publish(["wait", str(door)]) for _ in range(7)]
    behind = [publish(["sleep", 0.01]) for _ in range(20)]
    trees(QUEUES={"default": {"MAX_ATTEMPTS": 3}})
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


def test_the_supervisor_gone_its_child_finishes_and_hands_back(trees, publish, history, store, redis_client, tmp_path):
    gate, timeout = tmp_path / "gate", 3.0
    queues = {"default": {"VISIBILITY_TIMEOUT": timeout}}
    first = trees("--threads", "1", QUEUES=queues)
    running = publish(["wait", str(gate)])
    child = handler_pid(history)
    kill(first.pid)
    waiting = [publish() for _ in range(5)]
    trees(QUEUES=queues)
    history.wait_for("effect", 5)
    # The orphan keeps what it runs for longer than the visibility timeout: for so many heartbeats of the other tree.
    enough = max(beats(redis_client, store).values()) + 1.25 * timeout / min(HEARTBEAT, interval(timeout))
    wait_until(lambda: max(beats(redis_client, store).values()) >= enough)
    gate.touch()
    history.wait_for("effect", 6)
    wait_until(lambda: empty(store))
    assert history.counts() == dict.fromkeys([running, *waiting], 1)
    assert [line["pid"] for line in history.lines("effect") if line["id"] == running] == [child]


def test_an_orphan_gives_back_what_outlives_the_grace_and_ends(trees, publish, history, store):
    first = trees("--threads", "2", "--grace", "1")
    ids = [publish(["once", ["wait", "never"]]) for _ in range(2)]
    child = history.wait_for("start", 2)[0]["pid"]
    kill(first.pid)
    wait_until(lambda: not alive(child), within=25)
    depths = store.depths()
    assert (depths.ready, depths.pending) == (2, 0)
    assert {item.message.attempt for item in store.take("x", count=2)} == {1}
    assert history.counts("start") == dict.fromkeys(ids, 1)


@pytest.mark.slow
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


def beats(client, store):
    """Return how often each supervisor has beaten."""
    found = client.hgetall(store.keys.consumers)
    return {name.partition(b":")[2].decode(): int(count) for name, count in found.items() if name[:5] == b"beat:"}


#: Runs a command in a PID namespace of its own, as a container does, which all of it dies with.
CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@pytest.fixture
def container():
    if subprocess.run([*CONTAINER, "true"], check=False, capture_output=True).returncode:
        pytest.skip("a PID namespace takes root, and unshare")
    return CONTAINER


@pytest.mark.slow
def test_a_start_beside_a_container_takes_nothing_over(trees, publish, history, store, container, tmp_path):
    gate = tmp_path / "gate"
    trees("--threads", "1", wrap=container, QUEUES=SLOW)
    message_id = publish(["wait", str(gate)])
    history.wait_for("start")
    trees(QUEUES=SLOW)
    ids = [publish() for _ in range(5)]
    history.wait_for("effect", 5)
    gate.touch()
    history.wait_for("effect", 6)
    wait_until(lambda: empty(store))
    assert history.counts("start") == dict.fromkeys([message_id, *ids], 1)


@pytest.mark.cluster
def test_a_start_on_the_same_machine_takes_over_at_once(trees, publish, history, store):
    first = trees(QUEUES=SLOW)
    ids = [publish(["once", ["wait", "never"]]) for _ in range(3)]
    history.wait_for("start", 3)
    first.kill_all()
    second = trees(QUEUES=SLOW)
    starts = history.wait_for("start", 6, timeout=15)
    assert {line["id"] for line in starts[3:]} == set(ids)
    assert {line["attempt"] for line in starts} == {1}
    second.kill_all()


def test_asked_to_stop_it_finishes_what_runs_and_gives_the_rest_away(trees, publish, history, store, tmp_path):
    gate = tmp_path / "gate"
    first = trees("--threads", "2")
    running = publish(["wait", str(gate)])
    history.wait_for("start")
    second, ids = trees("--threads", "2"), []

    def both_run():
        # The first one alone might take all that were published before the second one reads.
        ids.append(publish(["sleep", 0.02]))
        return len({line["pid"] for line in history.lines("start")}) == 2

    wait_until(both_run)
    ids += [publish(["sleep", 0.02]) for _ in range(100)]
    first.signal(signal.SIGTERM)
    (consumer,) = re.findall(r"Consumer (\S+) handles", first.logged())
    wait_until(lambda: len(store.held_by(consumer, limit=100)) == 1)
    history.wait_for("effect", len(ids))
    gate.touch()
    assert first.wait(10) == 0
    wait_until(lambda: empty(store))
    assert history.counts() == dict.fromkeys([running, *ids], 1)
    assert {line["attempt"] for line in history.lines("start")} == {1}
    assert second.stop() == 0


def test_ctrl_c_reaches_everybody_and_the_supervisor_decides_and_asked_twice_it_gives_back_at_once_what_runs(
    trees, publish, history, store
):
    tree = trees()
    message_id = publish(["wait", "never"])
    history.wait_for("start")
    for pid in (*tree.children(), tree.pid):
        kill(pid, signal.SIGINT)
    wait_until(lambda: "waiting for running handlers" in tree.logged())
    assert store.depths().pending == 1
    tree.signal(signal.SIGTERM)
    # Long before its grace period ends.
    assert tree.wait(within=25) == 0
    assert store.depths().ready == 1
    (again,) = store.take("x", count=1)
    assert (again.message.id, again.message.attempt) == (message_id, 1)
    assert "Traceback" not in tree.logged()


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
    tree = trees("--max-messages", "10")
    ids = [publish() for _ in range(10)]
    history.wait_for("effect", 10)
    wait_until(lambda: "will be replaced: it has handled 10 messages" in tree.logged())
    ids += [publish() for _ in range(5)]
    history.wait_for("effect", 15)
    wait_until(lambda: empty(store))
    assert history.counts() == dict.fromkeys(ids, 1)
    assert "exited with code" not in tree.logged()


def test_draining_ends_when_nothing_is_left_that_has_a_handler(trees, publish, history):
    handled = [set_aside("default", "act", {"do": []}), *(publish() for _ in range(20))]
    left = set_aside("default", "unknown")
    tree = trees("--drain", "--processes", "2")
    assert tree.wait(30) == 0
    assert history.counts() == dict.fromkeys(handled, 1)
    assert tree.logged().count("handles") == 2
    assert [view.id for view in message_lists.messages("default", "unhandled", limit=5).rows] == [left]
