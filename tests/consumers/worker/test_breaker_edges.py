"""What waits for a partner keeps what it has: its place, its unique key, its priority, and its run of a workflow."""

from collections import defaultdict

import pytest

from mq_django import Ack, Breaker, Retry, handler
from mq_django.core.messages import HandBack
from mq_django.errors import AlreadyPublished
from mq_django.inspector import problems, workflow_runs
from mq_django.inspector.holds import end_hold, hold, holds, open_breaker
from mq_django.inspector.queues import quick_stats
from mq_django.observability import problem_watch
from mq_django.observability.problem_watch import RunRepairer
from mq_django.stores.base import Settlement
from mq_django.workflows import workflow
from tests.consumers.worker.test_breakers import BREAKER, PartnerDown, due, plain
from tests.seeding import CONSUMER, opened, publish
from tests.working import run

__all__ = ["due", "plain"]

pytestmark = pytest.mark.usefixtures("handlers")


@pytest.mark.parametrize("options", [{"ORDERED": True}, {"ORDERED": True, "PARTITIONS": 2}])
def test_the_order_of_each_key_is_kept_through_probes_and_ramp(plain, due, options):
    plain(**options)
    answers, seen = [], defaultdict(list)

    @handler("payments", "charge", breaker=Breaker(on=[PartnerDown], of=4))
    def charge(message):
        # Away, back for a few calls, which a ramp has, away again, and back.
        answers.append(20 <= len(answers) < 24 or len(answers) >= 30)
        if not answers[-1]:
            raise PartnerDown
        seen[message.key].append(message.data)

    for number in range(120):
        publish("payments", "charge", number, key=f"c{number % 7}")
    for _ in range(60):
        run()
        due()
    run()
    assert sum(map(len, seen.values())) == 120
    assert {key: sorted(found) for key, found in seen.items()} == seen
    assert holds("payments") == ()


def test_a_unique_key_is_taken_until_the_message_is_handled(plain):
    seen = []
    handler("payments", "charge")(lambda message: seen.append(message.data))
    publish("payments", "charge", 1, unique="u", unique_for="handled")
    hold("payments", name="charge")
    run()
    with pytest.raises(AlreadyPublished):
        publish("payments", "charge", 2, unique="u", unique_for="handled", on_conflict="error")
    end_hold("payments", name="charge")
    run()
    publish("payments", "charge", 3, unique="u", unique_for="handled", on_conflict="error")
    run()
    assert seen == [1, 3]


def test_what_is_released_keeps_its_priority(plain):
    seen = []
    handler("payments", "charge")(lambda message: seen.append(message.data))
    hold("payments", name="charge")
    for priority in (0, 5, -5):
        publish("payments", "charge", priority, priority=priority)
    run()
    end_hold("payments", name="charge")
    opened("payments").promote(limit=100)
    run()
    assert seen == [5, 0, -5]


def test_a_probe_whose_consumer_stops_is_made_again_by_another_one(plain, due):
    calls = []

    @handler("payments", "charge", breaker=BREAKER)
    def charge(message):
        calls.append(message.attempt)
        if len(calls) <= BREAKER.needed:
            raise PartnerDown

    for number in range(12):
        publish("payments", "charge", number)
    run()
    due()
    store = opened("payments")
    store.promote(limit=100)
    (probe,) = store.take(CONSUMER, count=10)
    assert probe.probe == "name:charge"
    store.settle(CONSUMER, [Settlement(probe, HandBack())])
    run()
    assert holds("payments") == ()
    assert calls == [1] * (BREAKER.needed + 12)


def test_a_batch_has_probes(plain, due):
    calls = []

    @handler("payments", "charge", breaker=BREAKER, batch=4)
    def charge(messages):
        calls.append(len(messages))
        return [Retry(trips=True) if len(calls) < 5 else Ack() for _ in messages]

    for number in range(40):
        publish("payments", "charge", number)
    run()
    for _ in range(6):
        due()
        run()
    assert 1 in calls
    assert holds("payments") == ()
    assert opened("payments").depths().depth == 0


def test_a_batch_that_raises_opens_it_too(plain):
    calls = []

    @handler("payments", "charge", breaker=BREAKER, batch=16)
    def charge(messages):
        calls.append(len(messages))
        raise PartnerDown

    for number in range(160):
        publish("payments", "charge", number)
    run()
    # The first is halved until it is known that the messages are not the cause.
    assert sum(number == 16 for number in calls) == 1
    assert quick_stats("payments").parked == 160


def test_a_step_that_waits_does_not_stop_its_run(mq_settings, monkeypatch, tmp_path):
    monkeypatch.setenv("MQ_TEST_HISTORY", str(tmp_path / "history"))
    monkeypatch.setattr(problem_watch, "OLD_MS", -1000)
    mq_settings(QUEUES={"default": {}})
    from tests.workflows.flowing import tasks  # noqa: PLC0415 - needs settings

    open_breaker("default")
    definition = workflow("import")
    with definition as flow:
        flow.add(tasks.total, [2])
    run()
    RunRepairer().run_once()
    view = quick_stats("default")
    assert (view.depth, view.parked) == (1, 1)
    assert workflow_runs.run(definition.run.id).state == "running"
    assert [each.kind for each in problems() if each.kind == "stuck"] == []
    end_hold("default")
    run()
    assert workflow_runs.run(definition.run.id).state == "succeeded"
