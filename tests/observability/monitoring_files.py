"""The files of docs/monitoring: the queries of the dashboard and the rules of the alerts."""

import json
import re
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from mq_django.observability.queue_metrics import COUNTERS, GAUGES, HISTOGRAMS

DOCS = Path(__file__).parent.parent.parent / "docs"
FOLDER = DOCS / "monitoring"
ALERTS, ALERTS_TEST = FOLDER / "alerts.yml", FOLDER / "alerts_test.yml"

DASHBOARD: dict[str, Any] = json.loads((FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8"))

#: Metrics of the processes of runconsumer that the dashboard uses.
OF_PROCESSES = ("mq_django_handler_duration_seconds",)


def panels() -> list[dict[str, Any]]:
    """Return the panels with queries, also those of collapsed rows."""
    inside = [panel["panels"] if panel["type"] == "row" else [panel] for panel in DASHBOARD["panels"]]
    return list(chain.from_iterable(inside))


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return list(group["rules"])


def documented_names() -> set[str]:
    """Return the names of the metrics as people know them: without what a histogram adds."""
    counters = {f"{each.name}_total" for each in COUNTERS}
    return {"mq_django_up", *(each.name for each in (*GAUGES, *HISTOGRAMS)), *counters}


def served_names() -> set[str]:
    """Return the names that queries may use."""
    buckets = {f"{each.name}_bucket" for each in HISTOGRAMS}
    of_processes = {f"{name}_{suffix}" for name in OF_PROCESSES for suffix in ("bucket", "count", "sum")}
    return documented_names() - {each.name for each in HISTOGRAMS} | buckets | of_processes


def metrics_in(query: str) -> set[str]:
    return set(re.findall(r"\bmq_django_\w+", query))


def with_values(query: str) -> str:
    """Return a query with values for the variables of the dashboard and of Grafana."""
    values = {"$job": "mq_django", "$queue": ".*", "$__rate_interval": "1m"}
    return re.sub("|".join(map(re.escape, values)), lambda found: values[found[0]], query)
