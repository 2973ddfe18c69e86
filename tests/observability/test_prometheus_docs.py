"""The tables of docs/prometheus.md."""

import re
from pathlib import Path

from mq_django.observability.queue_metrics import COUNTERS, GAUGES, HISTOGRAMS

PAGE = (Path(__file__).parent.parent.parent / "docs" / "prometheus.md").read_text(encoding="utf-8")


def test_each_metric_has_its_row():
    section = PAGE.partition("## Metrics of queues and topics")[2].partition("\n## ")[0]
    plain = [(each.name, each.labels, each.help) for each in GAUGES]
    plain += [(f"{each.name}_total", each.labels, each.help) for each in COUNTERS]
    plain += [(each.name, ("queue",), f"{each.help} A histogram.") for each in HISTOGRAMS]
    shown = {name: f" ({', '.join(f'`{label}`' for label in labels)})" if labels else "" for name, labels, _ in plain}
    rows = [f"- `{name}`{shown[name]}: {text}" for name, _, text in plain]
    assert re.findall(r"^- `mq_django_.*$", re.sub(r"\n  (?=\S)", " ", section), re.M)[1:] == rows


def test_names_follow_the_rules_of_prometheus():
    names = [each.name for each in (*GAUGES, *COUNTERS, *HISTOGRAMS)]
    assert len(set(names)) == len(names)
    assert [name for name in names if not re.fullmatch(r"mq_django_[a-z_]+", name) or name.endswith("_total")] == []
