"""The files of processes that have ended become one of each kind, and no number is lost."""

import errno
import json
import os
import subprocess
import sys

import pytest

from tests.optional import needs_prometheus

pytestmark = needs_prometheus

mmap_dict = pytest.importorskip("prometheus_client.mmap_dict")
multiprocess = pytest.importorskip("prometheus_client.multiprocess")
ended_processes = pytest.importorskip("mq_django.observability.process_metrics")


@pytest.fixture(scope="module")
def dead():
    """The ids of processes that have ended."""
    found = []
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", ""]) as process:
            found.append(process.pid)
    return found


@pytest.fixture
def write(tmp_path):
    """Write a value to the file of a process."""

    def write(kind, process, value, *, timestamp=0.0, name="orders", **labels):
        file = mmap_dict.MmapedDict(str(tmp_path / f"{kind}_{process}.db"))
        file.write_value(json.dumps([name, name, labels, "Help."]), value, timestamp)
        file.close()

    return write


@pytest.fixture
def collect(tmp_path):
    """Return what prometheus_client serves."""

    def collect():
        metrics = multiprocess.MultiProcessCollector(None, str(tmp_path)).collect()
        return {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for metric in metrics
            for sample in metric.samples
        }

    return collect


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_is_served_stays_the_same(tmp_path, dead, write, collect):
    kinds = ("counter", "summary", "gauge_sum", "gauge_min", "gauge_max")
    for kind in kinds:
        for process, value in zip([*dead, os.getpid()], (3.0, 1.0, 4.0, 2.0), strict=True):
            write(kind, process, value, name=kind)
            write(kind, process, 10 * value, name=kind, shop="a")
    before = collect()
    assert len(before) >= 2 * len(kinds)
    ended_processes.merge_ended(tmp_path)
    assert collect() == before
    assert names(tmp_path) == sorted(f"{kind}_{whose}.db" for kind in kinds for whose in (os.getpid(), "ended"))


def test_totals_grow_with_each_process_and_their_file_does_not(tmp_path, dead, write, collect):
    sizes = []
    for number in range(1, 30):
        write("counter", dead[0], 2.0)
        ended_processes.merge_ended(tmp_path)
        assert collect() == {("orders",): 2.0 * number}
        sizes.append((tmp_path / "counter_ended.db").stat().st_size)
    assert len(set(sizes)) == 1
    assert names(tmp_path) == ["counter_ended.db"]


def test_of_the_most_recent_the_latest_stays(tmp_path, dead, write, collect):
    for process, value, timestamp in zip(dead, (1.0, 2.0, 3.0), (10.0, 30.0, 20.0), strict=True):
        write("gauge_mostrecent", process, value, timestamp=timestamp)
    ended_processes.merge_ended(tmp_path)
    assert collect() == {("orders",): 2.0}


def test_gauges_of_a_process_end_with_it(tmp_path, dead, write, collect):
    kinds = ("gauge_all", "gauge_liveall", "gauge_livesum", "gauge_livemostrecent")
    for kind in kinds:
        write(kind, dead[0], 1.0, timestamp=1.0, name=kind)
        write(kind, os.getpid(), 2.0, timestamp=2.0, name=kind)
    ended_processes.merge_ended(tmp_path)
    assert [*collect().values()] == [2.0] * len(kinds)
    assert names(tmp_path) == sorted(f"{kind}_{os.getpid()}.db" for kind in kinds)


def test_buckets_are_summed(tmp_path, dead, write, collect):
    for process in dead[:2]:
        write("histogram", process, 2.0, le="1.0")
        write("histogram", process, 1.0, le="+Inf")
    before = collect()
    ended_processes.merge_ended(tmp_path)
    assert collect() == before
    assert max(before.values()) == 6.0


def test_without_space_the_files_stay(tmp_path, dead, write, collect, monkeypatch):
    write("counter", dead[0], 1.0)
    write("counter", dead[1], 2.0)

    def no_space(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.write_bytes", no_space)
        with pytest.raises(OSError, match="No space left"):
            ended_processes.merge_ended(tmp_path)
    assert names(tmp_path) == sorted(f"counter_{process}.db" for process in dead[:2])
    ended_processes.merge_ended(tmp_path)
    assert collect() == {("orders",): 3.0}


def test_a_damaged_file_is_dropped_and_said(tmp_path, dead, write, collect, caplog):
    write("counter", dead[0], 1.0)
    (tmp_path / f"counter_{dead[1]}.db").write_bytes(b"\xff\xff\xff\x7f" + bytes(100))
    (tmp_path / f"counter_{dead[2]}.db").write_bytes(b"")
    ended_processes.merge_ended(tmp_path)
    assert collect() == {("orders",): 1.0}
    assert names(tmp_path) == ["counter_ended.db"]
    assert caplog.text.count("A damaged file") == 2
