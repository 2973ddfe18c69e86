"""All of it where less is allowed than usual: a user with the keys of one queue, and a Redis Cluster."""

import random
import socket

import pytest
import redis

from mq_django import inspector
from mq_django.consumers.supervisor.job_runner import work_here
from mq_django.errors import StoreError
from mq_django.inspector import dead_letters
from mq_django.inspector import jobs as jobs_of
from mq_django.producers import queues
from mq_django.stores.background_jobs import IDLE
from mq_django.transport.private_server import PrivateServer
from tests.seeding import bury
from tests.stores.cases import RSMQ, STREAM, TOPIC, RsmqCase
from tests.stores.everything import use
from tests.users import rules_of, user
from tests.waiting import wait_until


def jobs(namespace):
    """Return an RSMQ queue in a namespace."""
    options = {"STORE": "rsmq", "NAMESPACE": namespace, "REALTIME": True}
    return RsmqCase(name="rsmq", settings={"QUEUES": {"jobs": options}}, queue="jobs", refuses=RSMQ.refuses)


@pytest.mark.parametrize("case", [STREAM, TOPIC, jobs], ids=["stream", "topic", "rsmq"])
def test_all_of_it_runs_for_a_user_who_has_the_keys_of_one_queue(
    case, mq_settings, redis_url, namespace, redis_client, subtests
):
    """And each pattern is needed."""
    if case is jobs:
        case = jobs(f"{namespace}:r")
    with user(redis_client, redis_url, rules_of(case.name, namespace)) as url:
        mq_settings(CONNECTION=url, **{"QUEUES": {}, **case.settings})
        use(case)
        mq_settings(CONNECTION=url, QUEUES={"other": {}})
        with pytest.raises(StoreError, match=r"NOPERM|permission"):
            queues["other"].publish("welcome", 1)
    assert list(redis_client.scan_iter(match=f"{namespace}:*other*")) == []
    for missing in [rule for rule in rules_of(case.name, namespace) if rule[0] in "~&"]:
        rules = [rule for rule in rules_of(case.name, namespace) if rule != missing]
        redis_client.delete("", *redis_client.scan_iter(match=f"{namespace}:*"))
        with subtests.test(missing=missing), user(redis_client, redis_url, rules) as url:
            mq_settings(CONNECTION=url, **{"QUEUES": {}, **case.settings})
            with pytest.raises(StoreError, match=r"NOPERM|permission|can't publish"):
                use(case)


def free_port(*, below):
    for port in random.sample(range(20_000, below), 100):
        try:
            for each in (port, port + 10_000):
                with socket.socket() as one:
                    one.bind(("127.0.0.1", each))
        except OSError:
            continue
        return port
    raise AssertionError("no free port")


@pytest.fixture(scope="module")
def cluster():
    """The URL of a Redis Cluster with one node, which has all slots."""
    server = PrivateServer(tcp=True, settings={"cluster-enabled": "yes", "cluster-node-timeout": "1000"})
    # The nodes of a cluster talk on a port that is higher by 10,000.
    server.port = free_port(below=50_000)
    with server:
        with redis.Redis.from_url(server.url) as client:
            client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
            wait_until(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO", NEVER_DECODE=True))
        yield server.url


@pytest.mark.parametrize("target", ["bulk", "jobs"])
def test_dead_letters_are_moved_between_slots_of_a_cluster(mq_settings, cluster, target):
    rsmq = {"STORE": "rsmq", "NAMESPACE": "{moved}"}
    mq_settings(CONNECTION=cluster, QUEUES={"emails": {}, "bulk": {}, "jobs": rsmq})
    ids = [bury("emails", "welcome", {"n": number}) for number in range(3)]
    assert dead_letters.move_messages("emails", target, ids[:1]).done == 1
    assert jobs_of.begin("emails", "move", who="me", target=target).total == 2
    while work_here("emails", "w1") != IDLE:
        pass
    assert (inspector.queue("emails").dead, inspector.queue(target).ready) == (0, 3)


@pytest.mark.parametrize("case", [STREAM, TOPIC, jobs("{rsmq}")], ids=["stream", "topic", "rsmq"])
def test_all_of_it_runs_on_a_cluster(case, mq_settings, cluster):
    mq_settings(CONNECTION=cluster, **{"QUEUES": {}, **case.settings})
    use(case)
