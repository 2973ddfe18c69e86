"""What a supervisor serves, and how its consumers are started."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mq_django.consumers.measuring import Measurers
from tests.optional import needs_prometheus

PAGE = (Path(__file__).parent.parent.parent / "docs" / "prometheus.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Metrics of one runconsumer")[2].partition("\n## ")[0]


@pytest.fixture
def process_metrics():
    return pytest.importorskip("mq_django.observability.process_metrics")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    return tmp_path


@needs_prometheus
def test_a_supervisor_is_measured_inside(process_metrics, folder):
    with process_metrics.measuring() as metrics:
        assert Measurers.supervisor is metrics.supervisor
        metrics.supervisor.promoted("default", 0.02)
        (private,) = folder.iterdir()
        assert metrics.environment == {"PROMETHEUS_MULTIPROC_DIR": str(private)}
        assert metrics.module == "mq_django.observability.measured_process"
        answer = metrics.routes()["/metrics"]()
    assert (answer.status, answer.content_type.partition(";")[0]) == (200, "text/plain")
    assert b'mq_django_promotion_lag_seconds_bucket{le="0.025",queue="default"} 1.0' in answer.body
    assert Measurers.supervisor is None
    assert list(folder.iterdir()) == []


@needs_prometheus
def test_the_live_gauges_of_a_supervisor_end_with_it_in_the_project_s_folder(process_metrics, folder):
    own = [folder / f"{kind}_{os.getpid()}.db" for kind in ("gauge_livesum", "gauge_liveall", "counter")]
    other = folder / f"gauge_livesum_{os.getpid()}1.db"
    with process_metrics.measuring():
        for file in (*own, other):
            file.touch()
    assert sorted(folder.iterdir()) == sorted([own[2], other])


@needs_prometheus
def test_the_files_of_ended_processes_are_merged_and_served(process_metrics, folder):
    mmap_dict = pytest.importorskip("prometheus_client.mmap_dict")
    with process_metrics.measuring() as metrics:
        (private,) = folder.iterdir()
        with subprocess.Popen([sys.executable, "-c", ""]) as process:
            pass
        for pid, value in ((process.pid, 2.0), (os.getpid(), 3.0)):
            file = mmap_dict.MmapedDict(str(private / f"counter_{pid}.db"))
            file.write_value('["orders", "orders_total", {}, "Orders."]', value, 0.0)
            file.close()
        assert b"orders_total 5.0" in metrics.answer().body
        metrics.run_once()
        assert sorted(path.name for path in private.iterdir()) == [f"counter_{os.getpid()}.db", "counter_ended.db"]
        assert b"orders_total 5.0" in metrics.answer().body


@needs_prometheus
def test_without_a_folder_only_the_supervisor_is_measured(process_metrics, folder, monkeypatch, caplog):
    (folder / "file").touch()
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(folder / "file"))
    with process_metrics.measuring() as metrics:
        assert (metrics.module, metrics.environment) == ("django", {})
        assert b"mq_django_redis_outages_total 0.0" in metrics.answer().body
        assert metrics.run_once() > 0
    assert caplog.text.count("The consumers are not measured") == 1


@needs_prometheus
def test_every_metric_has_its_row():
    consumer_metrics = pytest.importorskip("mq_django.observability.process_metrics")
    supervisor_metrics = pytest.importorskip("mq_django.observability.process_metrics")
    metrics = [
        *(metric for value in vars(consumer_metrics.ConsumerMetrics()).values() for metric in _collected(value)),
        *supervisor_metrics.SupervisorMetrics().collect(),
    ]
    names = {metric.name + ("_total" if metric.type == "counter" else ""): metric.type for metric in metrics}
    assert dict(re.findall(r"^- `(mq_django_\w+)`, (\w+)", SECTION, re.M)) == names


def _collected(value):
    return value.collect() if hasattr(value, "collect") else ()
