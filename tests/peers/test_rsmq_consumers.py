"""`runconsumer` on an RSMQ queue that other programs use at the same time, with real processes."""

import os
import signal
import threading
import time
from collections import Counter

import pytest

from mq_django.rsmq import RSMQ
from tests.peers.programs import HERE
from tests.peers.rsmq_peers import Npm, PyRSMQ
from tests.waiting import wait_until

#: Heartbeats, dead letters, and what is handed back are tried in tests/stores/ and by `make chaos`.
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
