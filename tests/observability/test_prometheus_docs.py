"""The examples and tables of docs/prometheus.md."""

import re
from importlib import import_module
from pathlib import Path

from mq_django.observability.queue_metrics import COUNTERS, GAUGES, HISTOGRAMS
from tests.optional import needs_prometheus

PAGE = (Path(__file__).parent.parent.parent / "docs" / "prometheus.md").read_text(encoding="utf-8")
BOXES = re.findall(r"```python\n(.*?)```", PAGE, re.S)


def test_each_metric_has_its_row():
    section = PAGE.partition("## Metrics of queues and topics")[2].partition("\n## ")[0]
    plain = [(each.name, each.labels, each.help) for each in GAUGES]
    plain += [(f"{each.name}_total", each.labels, each.help) for each in COUNTERS]
    plain += [(each.name, ("queue",), f"{each.help} A histogram.") for each in HISTOGRAMS]
    rows = [f"| `{name}` | {', '.join(f'`{label}`' for label in labels)} | {text} |" for name, labels, text in plain]
    assert re.findall(r"^\| `mq_django_.*$", section, re.M)[1:] == rows


def test_names_follow_the_rules_of_prometheus():
    names = [each.name for each in (*GAUGES, *COUNTERS, *HISTOGRAMS)]
    assert len(set(names)) == len(names)
    assert [name for name in names if not re.fullmatch(r"mq_django_[a-z_]+", name) or name.endswith("_total")] == []


@needs_prometheus
def test_the_view_needs_its_token(monkeypatch, client, settings, mq_settings):
    monkeypatch.setenv("METRICS_TOKEN", "of-the-example-1234")
    found = {}
    exec(BOXES[0], found)
    (pattern,) = found["urlpatterns"]
    assert pattern.resolve("metrics/").func.mq_django_weak_token is False


@needs_prometheus
def test_the_collector_joins_another_registry(mq_settings):
    found = {}
    registry = import_module("prometheus_client").REGISTRY
    before = set(registry._collector_to_names)
    try:
        exec(BOXES[1], found)
        assert registry.get_sample_value("mq_django_up") == 1
    finally:
        for collector in set(registry._collector_to_names) - before:
            registry.unregister(collector)
