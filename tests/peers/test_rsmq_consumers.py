"""`runconsumer` on an RSMQ queue that other programs use at the same time, with real processes."""

import json
import os
import signal
import threading
import time
from collections import Counter

import pytest

from mq_django import queues
from mq_django.inspector import dead_letters
from mq_django.rsmq import RSMQ
from tests.peers.programs import HERE
from tests.peers.rsmq_peers import Npm, PyRSMQ
from tests.waiting import wait_until

#: In one process tests/stores/ has the same: heartbeats, dead letters, and what is handed back.
pytestmark = pytest.mark.slow


@pytest.fixture
def ns(namespace):
    return f"{namespace}:r"


@pytest.fixture
def jobs(project, ns):
    def make(**options):
        return project(QUEUES={"jobs": {"STORE": "rsmq", "NAMESPACE": ns, "RETRY": {"delay": 0.05}, **options}})

    return make


class Other(threading.Thread):
    """A consumer of a peer: receives, and deletes what it received."""

    def __init__(self, peer):
        super().__init__()
        self.peer = peer
        self.handled = []
        self.ended = False

    def run(self):
        while not self.ended:
            found = self.peer.receive("jobs")
            if found is None:
                time.sleep(0.01)
            else:
                self.handled.append(found.id)
                self.peer.delete("jobs", found.id)

    def stop(self):
        self.ended = True
        self.join()
        self.peer.stop()


def test_npm_pyrsmq_and_ours_handle_a_thousand_messages_while_ours_are_killed(
    jobs, node, pyrsmq, redis_url, redis_client, ns
):
    shop = jobs()
    rsmq = RSMQ(ns)
    rsmq.create_queue("jobs", vt=30)
    environment = {**os.environ, "NODE_PATH": str(HERE / "node_modules")}
    others = [
        Other(Npm([node, HERE / "rsmq_peer.js", redis_url, ns], environment)),
        Other(PyRSMQ([pyrsmq, HERE / "rsmq_peer.py", redis_url, ns], environment)),
    ]
    programs = [shop.runconsumer("jobs", "--threads", "4") for _ in range(2)]
    sent = []

    def both_are_there() -> bool:
        sent.append(rsmq.send("jobs", "is somebody there?"))
        return len({told["pid"] for told in shop.handled()}) == 2

    wait_until(both_are_there, timeout=30)
    for other in others:
        other.start()
    for batch in range(10):
        sent += rsmq.send_many("jobs", [f"m{batch}-{n}" for n in range(100)])
        if batch in (3, 6):
            os.kill(programs[batch % 2].children()[0], signal.SIGKILL)
        wait_until(lambda: rsmq.get_queue_attributes("jobs").msgs < 50, timeout=60, message="all work on it")
    wait_until(lambda: rsmq.get_queue_attributes("jobs").msgs == 0, timeout=60)
    for other in others:
        other.stop()
    ours = [told["id"] for told in shop.handled()]
    counts = Counter(ours + [message_id for other in others for message_id in other.handled])
    assert set(counts) == set(sent)
    # What ran when a consumer was killed runs again: at most its four threads, twice.
    assert sum(counts.values()) - len(sent) <= 8
    assert ours
    assert all(other.handled for other in others)


def test_a_handler_that_runs_longer_than_the_vt_is_not_disturbed(jobs, ns):
    shop = jobs(VT=1)
    shop.runconsumer("jobs")
    queues["jobs"].publish("slow", 3)
    rsmq = RSMQ(ns)
    wait_until(lambda: rsmq.get_queue_attributes("jobs").totalrecv == 1, timeout=20)

    def handled_and_seen_by_nobody_else() -> bool:
        assert rsmq.receive("jobs") is None
        return bool(shop.handled())

    wait_until(handled_and_seen_by_nobody_else)
    (told,) = shop.handled()
    assert told["attempt"] == 1
    wait_until(lambda: rsmq.get_queue_attributes("jobs").msgs == 0)


def test_what_fails_for_good_is_a_dead_letter_by_its_receives(jobs, ns):
    shop = jobs(MAX_ATTEMPTS=3)
    shop.runconsumer("jobs")
    message_id = queues["jobs"].publish("fails", {"n": 1})
    told = shop.wait_handled(3)
    assert [each["attempt"] for each in told] == [1, 2, 3]
    entry = wait_until(lambda: dead_letters.find("jobs", message_id))
    letter = dead_letters.get("jobs", entry)
    assert (letter.reason, letter.tries, letter.data) == ("attempts", 3, {"n": 1})
    assert "as asked" in letter.error
    assert RSMQ(ns).get_queue_attributes("jobs").msgs == 0


def test_a_killed_consumer_gives_its_messages_back_at_once(jobs, ns, redis_client):
    shop = jobs(VT=60)
    program = shop.runconsumer("jobs", "--threads", "2")
    jobs_queue = queues["jobs"]
    slow = [jobs_queue.publish("slow", 1.5) for _ in range(2)]
    rsmq = RSMQ(ns)
    wait_until(lambda: rsmq.get_queue_attributes("jobs").totalrecv == 2, timeout=20)
    os.kill(program.children()[0], signal.SIGKILL)
    told = shop.wait_handled(2, within=50)
    assert sorted(each["id"] for each in told) == sorted(slow)
    # They ran side by side, so either may have ended the process: neither is charged, and each runs alone.
    assert {each["attempt"] for each in told} == {1}


def test_an_orderly_stop_hands_back_what_has_not_begun(jobs, ns):
    shop = jobs(VT=60)
    program = shop.runconsumer("jobs", "--threads", "1", "--grace", "5")
    RSMQ(ns)
    ids = queues["jobs"].publish_many([("slow", 0.05)] * 40)
    shop.wait_handled(3)
    assert program.stop() == 0
    done = {each["id"] for each in shop.handled()}
    rest = RSMQ(ns).receive_many("jobs", 100)
    assert {each.id for each in rest} == set(ids) - done
    assert json.loads(rest[0].message)["type"] == "slow"
