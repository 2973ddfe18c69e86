"""A breaker opens by what all consumers see, lets probes through, and closes by a ramp; nothing is charged meanwhile."""

import json

import pytest

from mq_django import Ack, Breaker, handler
from mq_django.conf import get_config
from mq_django.inspector.holds import holds
from mq_django.signals import breaker_closed, breaker_opened, breaker_probed
from tests.hearing import hears
from tests.seeding import opened, publish
from tests.working import run

pytestmark = pytest.mark.usefixtures("handlers")

FORMS = {
    "stream": {},
    "ordered": {"ORDERED": True},
    "fair": {"FAIR": True},
    "limited": {"CONCURRENCY": {"key": 3}},
    "partitions": {"PARTITIONS": 2},
}


class PartnerDown(Exception):
    """What a partner raises that is down."""


class Partner:
    """What handlers call: it is up or down."""

    def __init__(self):
        self.is_up = False
        self.calls = []

    def call(self, message):
        self.calls.append((message.data, message.attempt))
        if not self.is_up:
            raise PartnerDown("no answer")


@pytest.fixture
def partner():
    return Partner()


@pytest.fixture(params=FORMS)
def queue(request, mq_settings):
    mq_settings(QUEUES={"payments": {"MAX_ATTEMPTS": 3, "RETRY": {"delay": 0}, **FORMS[request.param]}})
    return "payments"


@pytest.fixture
def probe(redis_client):
    """Return a function that makes the next probe due, and runs what is ready then."""

    def make_due(queue="payments"):
        for part in get_config().queue(queue).each_part:
            for subject, text in redis_client.hgetall(part.keys.holds).items():
                redis_client.hset(part.keys.holds, subject, json.dumps(json.loads(text) | {"next": 1}))
        return run()

    return make_due


def depth(queue):
    return sum(opened(part.name).depths().depth for part in get_config().queue(queue).each_part)


BREAKER = Breaker(on=[PartnerDown], of=10)


def test_it_opens_probes_and_closes(queue, partner, probe):
    handler(queue, "charge", breaker=BREAKER)(partner.call)
    handler(queue, "note")(lambda message: None)
    parts = len(get_config().queue(queue).each_part)
    for number in range(100):
        publish(queue, "charge", number, key=f"c{number % 50}")
    publish(queue, "note", key="n")
    with hears(breaker_opened) as told:
        handled = run()
    assert len(partner.calls) == 5 * parts
    assert [(each["value"], each["failed"], each["of"]) for each in told] == [("charge", 5, 10)] * parts
    assert [each.message.name for each in handled if isinstance(each.outcome, Ack)] == ["note"]
    found = holds(queue)[0]
    assert (found.state, found.kind, found.value, found.failed, found.of) == ("open", "name", "charge", 5, 10)
    assert "no answer" in found.error
    assert run() == []
    before = len(partner.calls)
    for _ in range(4):
        probe(queue)
    assert len(partner.calls) - before == 4 * parts
    assert len({data for data, _ in partner.calls[before:]}) > 1, "the same message is each probe"
    partner.is_up = True
    with hears(breaker_closed, breaker_probed) as told:
        for _ in range(20):
            probe(queue)
    assert sum("succeeded" not in each for each in told) == parts
    assert depth(queue) == 0
    assert holds(queue) == ()
    assert {attempt for _, attempt in partner.calls} == {1}
    assert len({data for data, _ in partner.calls}) == 100
