"""`runconsumer --metrics-port`: real processes, and what Prometheus reads from them."""

import os
import signal
import socket
import subprocess
import tempfile
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from django.core.management import CommandError

from mq_django.management.verb_types import serving_ports
from tests.consumers.trees import kill
from tests.optional import needs_prometheus
from tests.shell import free_port
from tests.waiting import wait_until

pytestmark = needs_prometheus

#: Seconds: each process of the tree imports Django and prometheus_client, which takes long on a busy machine.
PATIENCE = 45.0


class Scraper:
    """Reads the samples of a port, as Prometheus does."""

    def __init__(self):
        self.port = free_port()

    def read(self, path="/metrics"):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return answer.read().decode()

    def samples(self):
        """Return the value of each sample, by its name with its labels; none while the port is closed."""
        try:
            lines = self.read().splitlines()
        except (urllib.error.URLError, ConnectionError):
            return {}
        rows = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in rows}

    def value(self, name, **labels):
        """Return the sum of the samples with this name and these labels."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        found = self.samples().items()
        return sum(
            value for key, value in found if key.partition("{")[0] == name and all(pair in key for pair in wanted)
        )

    def wait_for(self, least, name, **labels):
        wait_until(lambda: self.value(name, **labels) >= least, timeout=PATIENCE, message=f"{least} of {name} {labels}")


class Counters:
    """All counters of a port, which must not decrease."""

    def __init__(self, scraper):
        self.scraper = scraper
        self.seen = {}

    def look(self):
        """Compare the counters with the last ones, and return them."""
        found = {
            name: value
            for name, value in self.scraper.samples().items()
            if name.partition("{")[0].endswith(("_total", "_count", "_bucket", "_sum"))
        }
        decreased = {name: (value, found.get(name)) for name, value in self.seen.items() if found.get(name, -1) < value}
        assert not decreased
        self.seen = found
        return found


@pytest.fixture
def scraper():
    return Scraper()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder for temporary files of the tree."""
    found = tmp_path / "temporary"
    found.mkdir()
    monkeypatch.setenv("TMPDIR", str(found))
    return found


@pytest.fixture
def small_disk(folder):
    """Make the folder for temporary files a disk of 1 MiB."""
    if os.getuid() != 0 or not Path("/proc/mounts").exists():
        pytest.skip("only root mounts file systems")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("file systems cannot be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk):
    """Write to a disk until it is full."""
    with suppress(OSError), (disk / "fill").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


@pytest.fixture
def start(trees, scraper, folder):
    def start(*arguments, **overrides):
        return trees("--metrics-port", f"127.0.0.1:{scraper.port}", *arguments, **overrides)

    return start


def files(folder, pattern="*.db"):
    return sorted(path.name for path in folder.glob(f"mq_django-metrics-*/{pattern}"))


def test_what_prometheus_reads_of_a_tree(start, scraper, publish, tmp_path, monkeypatch, folder):
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(own))
    monkeypatch.setenv("MQ_TEST_APPS", "tests.observability.counting")
    tree = start("--processes", "2", QUEUES={"default": {"MAX_ATTEMPTS": 1}, "emails": {}})
    publish(["sleep", 0.3])
    publish(queue="emails", name="aact")
    publish(["raise", "on purpose"])
    count = "mq_django_handler_duration_seconds_count"
    scraper.wait_for(1, count, queue="default", handler="act", outcome="handled")
    scraper.wait_for(1, count, queue="default", handler="act", outcome="buried")
    scraper.wait_for(1, count, queue="emails", handler="aact", outcome="handled")
    assert scraper.value("mq_django_handler_duration_seconds_sum", outcome="handled", queue="default") >= 0.3
    assert scraper.value("mq_django_settled_messages_total", queue="default") == 2
    assert scraper.value("mq_django_settle_duration_seconds_count", queue="default") >= 1
    assert scraper.value("mq_django_fetched_messages_total", queue="default") == 2
    assert 1 <= scraper.value("mq_django_fetches_total", queue="default") <= 2
    assert scraper.samples()["mq_django_redis_outages_total"] == 0
    # A name without a handler, which anybody may publish, is no label.
    publish(name="nobody-handles-this")
    scraper.wait_for(1, "mq_django_settled_messages_total", outcome="unhandled")
    assert "nobody" not in scraper.read()
    delayed = []

    def promotion_measured():
        # It is only if the supervisor learns of the message before it is due.
        delayed.append(publish(delay=0.5))
        return scraper.value("mq_django_promotion_lag_seconds_count", queue="default")

    wait_until(promotion_measured, timeout=PATIENCE)
    assert scraper.value("mq_django_wakeup_lag_seconds_count") >= 1
    # Metrics of the project, from both processes.
    for _ in range(20):
        publish(name="count")
    scraper.wait_for(20, "shop_orders_total", kind="a")
    assert scraper.value("shop_orders_total") == 20
    # The files are in a private folder inside that of the project, and go with the supervisor.
    (found,) = own.glob("mq_django-metrics-*")
    assert found.stat().st_mode & 0o777 == 0o700
    # The supervisor imports the metrics of the project, too.
    assert not [path for path in own.glob("*.db") if str(tree.pid) not in path.name]
    assert not list(folder.iterdir())
    # Replaced code keeps the counts.
    settled = 4 + len(delayed) + 20
    scraper.wait_for(settled, "mq_django_settled_messages_total")
    before = set(tree.children())
    tree.signal(signal.SIGHUP)
    wait_until(lambda: len(tree.children()) == 2 and not before & set(tree.children()), timeout=PATIENCE)
    publish()
    scraper.wait_for(settled + 1, "mq_django_settled_messages_total")
    assert tree.stop() == 0
    assert not found.exists()


@pytest.mark.slow
def test_no_counter_ever_decreases_and_no_files_pile_up(start, scraper, publish, history, folder):
    tree = start("--processes", "3", "--max-messages", "50")
    counters = Counters(scraper)
    wait_until(counters.look, timeout=PATIENCE)
    wait_until(lambda: len(tree.children()) == 3, timeout=PATIENCE)
    sent = most = 0

    def replaced():
        return tree.logged().count("will be replaced: it has handled")

    def handle_60():
        nonlocal sent, most
        for _ in range(6):
            for _ in range(10):
                publish()
            sent += 10
            counters.look()
            most = max(most, len(files(folder)))
        history.wait_for("effect", sent, timeout=PATIENCE)
        return replaced()

    def kill_two():
        killed = tree.children()[-2:]
        for child in killed:
            kill(child)
        wait_until(lambda: not set(killed) & set(tree.children()), timeout=PATIENCE)
        return "exited with code -9" in tree.logged()

    wait_until(lambda: handle_60() >= 2, timeout=PATIENCE)
    # A process that is leaving already, after its 50 messages, is not missed: then others are killed.
    wait_until(kill_two, timeout=PATIENCE)
    wait_until(lambda: handle_60() >= 4, timeout=PATIENCE)
    # At once: those of three processes, of those that replace them, and the totals.
    wait_until(lambda: counters.look() and len(files(folder)) <= 2 * 3 + 2, timeout=PATIENCE)
    assert most <= 2 * 12 + 2
    handled = scraper.value("mq_django_handler_duration_seconds_count", outcome="handled")
    # What a killed process had not settled, its supervisor has settled.
    assert sent - 100 <= handled <= sent + 100
    assert tree.stop() == 0
    assert not list(folder.iterdir())


@pytest.fixture
def temporary(folder, monkeypatch):
    """The folder for temporary files of this process."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_health_and_metrics_have_one_port_or_a_port_each(scraper, temporary):
    health = Scraper()
    for health_at, metrics_at in ((scraper, scraper), (health, scraper)):
        options = {"health_port": ("127.0.0.1", health_at.port), "metrics_port": ("127.0.0.1", metrics_at.port)}
        with serving_ports(options):
            assert health_at.read("/live")
            assert metrics_at.samples()
            for port, path in ((health_at, "/metrics"), (metrics_at, "/live")):
                if health_at is not metrics_at:
                    with pytest.raises(urllib.error.HTTPError, match="404"):
                        port.read(path)
    assert not list(temporary.iterdir())


def test_a_port_in_use_leaves_no_folder(scraper, temporary):
    with socket.create_server(("127.0.0.1", scraper.port)), pytest.raises(CommandError, match="uses this port"):
        serving_ports({"health_port": None, "metrics_port": ("127.0.0.1", scraper.port)}).__enter__()
    assert not list(temporary.iterdir())


def test_without_the_package_it_says_which_extra_to_install(trees, scraper, tmp_path, monkeypatch):
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "prometheus_client.py").write_text("raise ImportError('No module named prometheus_client')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "without"))
    tree = trees("--metrics-port", str(scraper.port))
    assert tree.wait(PATIENCE) == 1
    assert "python -m pip install 'mq-django[prometheus]'" in tree.logged()
    assert "Traceback" not in tree.logged()
    assert "Handling" not in tree.logged()


def test_without_a_folder_the_consumers_are_not_measured_and_the_log_says_so(scraper, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "file"))
    with serving_ports({"health_port": None, "metrics_port": ("127.0.0.1", scraper.port)}) as (_, measured):
        assert (measured.module, measured.environment) == ("django", {})
        assert scraper.samples()["mq_django_redis_outages_total"] == 0
    assert "The consumers are not measured" in caplog.text


def test_a_full_disk_does_not_stop_the_consumers(small_disk, start, scraper, publish, history):
    tree = start(QUEUES={"default": {}, "emails": {}})
    publish()
    scraper.wait_for(1, "mq_django_settled_messages_total")
    fill(small_disk)
    for _ in range(50):
        publish()
        # Further labels, for which there is no place.
        publish(queue="emails", name="aact")
    history.wait_for("effect", 101, timeout=PATIENCE)
    (child,) = tree.children()
    kill(child)
    for _ in range(50):
        publish()
    history.wait_for("effect", 151, timeout=PATIENCE)
    assert "exited with code -7" not in tree.logged()
    assert "No space left on device" in tree.logged()
    assert scraper.value("mq_django_settled_messages_total") >= 1
    assert tree.stop() == 0
