"""The lists of runs do not grow for ever."""

import pytest

from mq_django.core.keys import WorkflowKeys
from mq_django.producers.workflow_run import by_run, do, forget_old
from mq_django.producers.workflow_steps import open_home
from mq_django.stores import workflow_home
from tests.seeding import start_run

pytestmark = pytest.mark.usefixtures("mq_settings")

#: When all runs of a test are old.
LATER_MS = 4_000_000_000_000


@pytest.fixture
def keys(namespace):
    return WorkflowKeys(namespace, "0")


def test_runs_that_were_kept_long_enough_leave_the_list(redis_client, keys, monkeypatch):
    monkeypatch.setattr(workflow_home, "BATCH", 2)
    ids = [start_run({1: []}) for _ in range(5)]
    for run_id in ids[1:4]:
        redis_client.delete(*keys.of_run(run_id))
    home, skipped, seen = open_home("0"), 0, []
    for _ in range(4):
        skipped = forget_old(home, now_ms=LATER_MS, skipped=skipped)
        seen.append(skipped)
    assert {run_id.decode() for run_id in redis_client.zrange(keys.index, 0, -1)} == {ids[0], ids[4]}
    # It begins again at the beginning.
    assert 0 in seen
    assert forget_old(home, now_ms=0, skipped=0) == 0


def test_a_deleted_run_leaves_the_lists_when_it_expires(redis_client, keys):
    run_id = start_run({1: []})
    redis_client.delete(*keys.of_run(run_id))
    redis_client.zadd(keys.alive, {run_id: 1})
    home = open_home("0")
    for work in by_run(home.left(age_ms=0)):
        do(home, work)
    assert redis_client.zscore(keys.alive, run_id) is redis_client.zscore(keys.index, run_id) is None
