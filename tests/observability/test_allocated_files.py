"""Files of metrics, also where there is no place for them."""

import errno
import os
from pathlib import Path

import pytest

from tests.optional import needs_prometheus
from tests.waiting import wait_until

pytestmark = needs_prometheus

mmap_dict = pytest.importorskip("prometheus_client.mmap_dict")
allocated_files = pytest.importorskip("mq_django.observability.process_metrics")


@pytest.fixture
def path(tmp_path):
    return tmp_path / f"counter_{os.getpid()}.db"


@pytest.fixture
def full(monkeypatch):
    """Return a function that fills the disk."""

    def no_space(file, size):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return lambda: monkeypatch.setattr(allocated_files, "_write_zeros", no_space)


def stored(path):
    return {key: value for key, value, *_ in mmap_dict.MmapedDict.read_all_values_from_file(str(path))}


def opened(path):
    return allocated_files.AllocatedDict(str(path))


def test_values_are_in_a_file_that_prometheus_client_reads(path):
    file = opened(path)
    file.write_value("a", 1.5, 0.0)
    file.write_value("b", 2.0, 0.0)
    assert stored(path) == {"a": 1.5, "b": 2.0}
    file.close()
    again = opened(path)
    assert again.read_value("a") == (1.5, 0.0)
    again.close()


def test_all_its_bytes_are_allocated_also_when_it_grows(path):
    file = opened(path)
    for number in range(3000):
        file.write_value(f"{number} ü {'x' * 60}", number, 0.0)
        assert path.stat().st_size == file._capacity
    assert path.stat().st_size > 4 * allocated_files.NEW
    assert path.stat().st_blocks * 512 >= path.stat().st_size
    assert len(stored(path)) == 3000
    file.close()
    assert [name.name for name in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("reason", ["full", "gone"])
def test_without_a_file_values_are_kept_in_memory(path, full, caplog, reason):
    full()
    file = opened(path if reason == "full" else path.parent / "gone" / path.name)
    for number in range(3000):
        file.write_value(f"{number} {'x' * 60}", number, 0.0)
    assert file.read_value(f"2999 {'x' * 60}") == (2999.0, 0.0)
    assert not list(path.parent.iterdir())
    wait_until(lambda: caplog.text.count("are served without its later changes") == 1)
    file.close()


def test_a_file_that_cannot_grow_stays_as_it_is_and_nothing_else_changes(path, full, caplog):
    file = opened(path)
    file.write_value("first", 1.0, 0.0)
    full()
    for number in range(3000):
        file.write_value(f"{number} {'x' * 60}", number, 0.0)
    file.write_value("first", 2.0, 0.0)
    assert file.read_value("first") == (2.0, 0.0)
    assert file.read_value(f"2999 {'x' * 60}") == (2999.0, 0.0)
    before = stored(path)
    assert before["first"] == 1.0
    assert 100 < len(before) < 3000
    wait_until(lambda: caplog.text.count("No space left on device") == 1)
    file.close()


def test_a_file_that_cannot_be_read_is_replaced_by_memory(path, caplog):
    path.write_bytes(b"\xff\xff\xff\x7f" + bytes(100))
    file = opened(path)
    file.write_value("a", 1.0, 0.0)
    assert file.read_value("a") == (1.0, 0.0)
    wait_until(lambda: "are served without its later changes" in caplog.text)
    file.close()


def test_prometheus_client_uses_them(path, monkeypatch):
    values = pytest.importorskip("prometheus_client.values")
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(path.parent))
    monkeypatch.setattr(values, "MmapedDict", values.MmapedDict)
    allocated_files.use_allocated_files()
    kind = values.MultiProcessValue()
    kind("counter", "orders", "orders_total", (), (), "Orders.").inc(3)
    assert Path(path).stat().st_blocks * 512 >= allocated_files.NEW
    assert list(stored(path).values()) == [3.0]
    kind("counter", "orders", "orders_total", (), (), "Orders.")._file.close()
