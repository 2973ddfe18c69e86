"""What a consumer measures of the outcomes that it settles."""

import pytest

from mq_django.core.messages import ACK, Bury, Expire, HandBack, Retry, SetAside, Undecodable
from mq_django.producers import queues
from mq_django.registry import ANY, Handler, register
from mq_django.stores.base import Settlement
from tests.optional import needs_prometheus
from tests.seeding import opened

pytestmark = needs_prometheus

pytest.importorskip("prometheus_client")
consumer_metrics = pytest.importorskip("mq_django.observability.process_metrics")


@pytest.fixture
def metrics():
    return consumer_metrics.ConsumerMetrics()


def values(metric, suffix):
    return {
        tuple(sample.labels.values()): sample.value
        for family in metric.collect()
        for sample in family.samples
        if sample.name.endswith(suffix)
    }


@pytest.fixture
def delivery(mq_settings):
    queues["default"].publish("act", {})
    store = opened("default")
    (found,) = store.take("me", count=1)
    return found


def test_every_outcome_is_counted_and_durations_only_of_handlers_that_ran(metrics, delivery):
    outcomes = [ACK, ACK, Retry(), Bury(), HandBack()]
    settlements = [Settlement(delivery, outcome, 0, 250_000) for outcome in outcomes]
    settlements += [Settlement(delivery, outcome) for outcome in (Expire(), SetAside())]
    settlements.append(Settlement(Undecodable(0, b"1-0", [], "no message"), Bury()))
    metrics.settled("default", settlements, 0.002)
    assert values(metrics._settled, "_total") == {
        ("default", "handled"): 2,
        ("default", "retried"): 1,
        ("default", "buried"): 2,
        ("default", "handed_back"): 1,
        ("default", "expired"): 1,
        ("default", "unhandled"): 1,
    }
    counts = values(metrics._handlers, "_count")
    assert {labels[2]: count for labels, count in counts.items()} == {
        "handled": 2,
        "retried": 1,
        "buried": 1,
        "handed_back": 1,
    }
    assert sum(values(metrics._handlers, "_sum").values()) == pytest.approx(1.25)
    assert values(metrics._settle_seconds, "_count") == {("default",): 1}


def test_the_sum_over_processes_is_the_same_in_each_order(delivery):
    """Prometheus takes a counter that has become smaller, if only by its last digit, for one of a new process."""
    sums = []
    for micros in (10_000, 20_000, 11_760):
        process = consumer_metrics.ConsumerMetrics()
        process.settled("default", [Settlement(delivery, ACK, 0, micros)], micros / 1e6)
        process.fetched("default", 1, micros / 1e6)
        process.woken("default", micros / 1e6)
        found = (process._handlers, process._settle_seconds, process._fetch_seconds, process._lag)
        sums.append([sum(values(metric, "_sum").values()) for metric in found])
    for one, two, three in zip(*sums, strict=True):
        assert one + two + three == three + two + one == one + three + two
        assert one + two + three == pytest.approx(0.04176, abs=3e-6)


def test_a_handler_is_known_by_its_registered_name(metrics, delivery, handlers):
    register(Handler(name="act", queue="default", call=lambda message: None, where="shop.handlers.act"))
    register(Handler(name=ANY, queue="news:all", call=lambda message: None, where="shop.handlers.everything"))
    for queue in ("default", "news:all", "emails"):
        metrics.settled(queue, [Settlement(delivery, ACK, 0, 1000)], 0.001)
    found = {labels[:2] for labels in values(metrics._handlers, "_count")}
    assert found == {("default", "act"), ("news:all", "shop.handlers.everything"), ("emails", "other")}


def test_a_fetch_that_waited_has_no_round_trip_time(metrics):
    metrics.fetched("default", 3, 0.001)
    metrics.fetched("default", 1, None)
    assert values(metrics._fetches, "_total") == {("default",): 2}
    assert values(metrics._fetched, "_total") == {("default",): 4}
    assert values(metrics._fetch_seconds, "_count") == {("default",): 1}


def test_several_durations_at_once_are_counted_as_one_by_one(metrics):
    durations = [0.0, 0.001, 0.0011, 0.3, 300, 301, 0.3]
    consumer_metrics._observe(metrics._handlers.labels("a", "act", "handled"), durations)
    for seconds in durations:
        metrics._handlers.labels("b", "act", "handled").observe(seconds)
    found = [
        (sample.labels, sample.value)
        for sample in metrics._handlers.collect()[0].samples
        if "_created" not in sample.name
    ]
    at = {queue: [value for labels, value in found if labels["queue"] == queue] for queue in "ab"}
    assert at["a"] == pytest.approx(at["b"], rel=1e-6)
    assert max(at["a"]) > 600
