"""Metrics of queues in the formats of Prometheus."""

import pytest

from mq_django import queues, registry, topics
from tests.optional import needs_prometheus

pytestmark = [needs_prometheus, pytest.mark.django_db]


def test_try(mq_settings):
    from mq_django.observability.prometheus import queue_registry
    from prometheus_client import generate_latest
    from prometheus_client.openmetrics.exposition import generate_latest as om
    from prometheus_client.openmetrics.parser import text_string_to_metric_families
    queues["default"].publish("hello", {})
    text = generate_latest(queue_registry()).decode()
    print(text)
    print(len(list(text_string_to_metric_families(om(queue_registry()).decode()))))
    assert 0
