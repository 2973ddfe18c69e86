"""All of it where less is allowed than usual: a user with the keys of one queue, and a Redis Cluster."""

import pytest

from mq_django import inspector
from mq_django.consumers.supervisor.chores import work_here
from mq_django.errors import StoreError
from mq_django.inspector import dead_letters
from mq_django.inspector import jobs as jobs_of
from mq_django.producers import queues
from mq_django.stores.background_jobs import IDLE
from tests.seeding import bury
from tests.stores.cases import RSMQ, STREAM, TOPIC, RsmqCase
from tests.stores.everything import use
from tests.users import rules_of, user


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


@pytest.mark.parametrize("target", ["bulk", "jobs"])
def test_dead_letters_are_moved_between_slots_of_a_cluster(mq_settings, cluster, target):
    rsmq = {"STORE": "rsmq", "NAMESPACE": "{moved}"}
    mq_settings(CONNECTION=cluster.url, QUEUES={"emails": {}, "bulk": {}, "jobs": rsmq})
    ids = [bury("emails", "welcome", {"n": number}) for number in range(3)]
    assert dead_letters.move_messages("emails", target, ids[:1]).done == 1
    assert jobs_of.begin("emails", "move", who="me", target=target).total == 2
    while work_here("emails", "w1") != IDLE:
        pass
    assert (inspector.queue("emails").dead, inspector.queue(target).ready) == (0, 3)


@pytest.mark.parametrize("case", [STREAM, TOPIC, jobs("{rsmq}")], ids=["stream", "topic", "rsmq"])
def test_all_of_it_runs_on_a_cluster(case, mq_settings, cluster):
    mq_settings(CONNECTION=cluster.url, **{"QUEUES": {}, **case.settings})
    use(case)
