"""The metrics that a supervisor serves itself."""

import pytest

from tests.optional import needs_prometheus

pytestmark = needs_prometheus

pytest.importorskip("prometheus_client")
supervisor_metrics = pytest.importorskip("mq_django.observability.process_metrics")


def values(metrics):
    return {
        (sample.name, *sample.labels.values()): sample.value
        for metric in metrics.collect()
        for sample in metric.samples
    }


def test_lags_are_a_histogram_by_queue():
    metrics = supervisor_metrics.SupervisorMetrics()
    for seconds in (0.0005, 0.001, 0.3, 100.0):
        metrics.promoted("a", seconds)
    metrics.promoted("b", 1.0)
    found = values(metrics)
    name = "mq_django_promotion_lag_seconds"
    assert [found[f"{name}_bucket", "a", le] for le in ("0.001", "0.25", "0.5", "30.0", "+Inf")] == [2, 2, 3, 3, 4]
    assert found[f"{name}_count", "a"] == 4
    assert found[f"{name}_sum", "a"] == pytest.approx(100.3015)
    assert found[f"{name}_count", "b"] == 1


def test_outages_are_counted_from_0():
    metrics = supervisor_metrics.SupervisorMetrics()
    assert values(metrics) == {("mq_django_redis_outages_total",): 0}
    metrics.lost_redis()
    assert values(metrics) == {("mq_django_redis_outages_total",): 1}
