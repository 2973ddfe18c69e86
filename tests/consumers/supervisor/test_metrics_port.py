"""`runconsumer --metrics-port`: real processes, and what Prometheus reads from them."""

import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from tests.consumers.trees import kill
from tests.optional import needs_prometheus
from tests.waiting import wait_until

pytestmark = needs_prometheus

#: Seconds: each process of the tree imports Django and prometheus_client, which takes long on a busy machine.
PATIENCE = 45.0


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


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


def test_attempts_are_measured_by_queue_handler_and_outcome(start, scraper, publish):
    tree = start(QUEUES={"default": {"MAX_ATTEMPTS": 1}, "emails": {}})
    publish(["sleep", 0.3])
    publish(queue="emails", name="aact")
    publish(["raise", "on purpose"])
    count = "mq_django_handler_duration_seconds_count"
    scraper.wait_for(1, count, queue="default", handler="act", outcome="handled")
    scraper.wait_for(1, count, queue="default", handler="act", outcome="buried")
    scraper.wait_for(1, count, queue="emails", handler="aact", outcome="handled")
    assert 0.3 <= scraper.value("mq_django_handler_duration_seconds_sum", outcome="handled", queue="default") < 5
    assert scraper.value("mq_django_settled_messages_total", queue="default") == 2
    assert scraper.value("mq_django_settle_duration_seconds_count", queue="default") >= 1
    assert scraper.value("mq_django_fetched_messages_total", queue="default") == 2
    assert 1 <= scraper.value("mq_django_fetches_total", queue="default") <= 2
    assert tree.stop() == 0


def test_a_name_without_a_handler_is_no_label(start, scraper, publish):
    start()
    publish(name="nobody-handles-this")
    publish()
    scraper.wait_for(1, "mq_django_settled_messages_total", outcome="unhandled")
    scraper.wait_for(1, "mq_django_settled_messages_total", outcome="handled")
    assert "nobody" not in scraper.read()


def test_the_lags_of_an_idle_consumer_and_of_a_delayed_message(start, scraper, publish):
    tree = start()
    publish()
    scraper.wait_for(1, "mq_django_settled_messages_total")
    delay = 3.0
    publish(delay=delay)
    scraper.wait_for(2, "mq_django_settled_messages_total")
    scraper.wait_for(1, "mq_django_promotion_lag_seconds_count", queue="default")
    # The time in which it was not due is no lag.
    assert 0 <= scraper.value("mq_django_promotion_lag_seconds_sum") < delay
    assert scraper.value("mq_django_wakeup_lag_seconds_count") >= 1
    assert scraper.value("mq_django_wakeup_lag_seconds_sum") < delay
    assert scraper.samples()["mq_django_redis_outages_total"] == 0
    assert tree.stop() == 0


def test_metrics_of_the_project_are_served_too(start, scraper, publish, monkeypatch):
    monkeypatch.setenv("MQ_TEST_APPS", "tests.observability.counting")
    start("--processes", "2")
    for _ in range(20):
        publish(name="count")
    scraper.wait_for(20, "shop_orders_total", kind="a")
    assert scraper.value("shop_orders_total") == 20


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


def test_health_and_metrics_share_a_port(trees, scraper, folder):
    where = f"127.0.0.1:{scraper.port}"
    tree = trees("--health-port", where, "--metrics-port", where)
    wait_until(scraper.samples, timeout=PATIENCE)
    assert scraper.read("/live")
    assert tree.stop() == 0


def test_each_may_have_a_port_of_its_own(trees, scraper, folder):
    health = Scraper()
    tree = trees("--health-port", f"127.0.0.1:{health.port}", "--metrics-port", str(scraper.port))
    wait_until(scraper.samples, timeout=PATIENCE)
    assert health.read("/live")
    for probes, path in ((health, "/metrics"), (scraper, "/live")):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            probes.read(path)
    assert tree.stop() == 0


@pytest.mark.parametrize("options", [[], ["--autoreload"]])
def test_a_port_in_use_is_refused(trees, scraper, folder, options):
    with socket.create_server(("127.0.0.1", scraper.port)):
        tree = trees("--metrics-port", f"127.0.0.1:{scraper.port}", *options)
        assert tree.wait(PATIENCE) == 1
    assert f"--metrics-port 127.0.0.1:{scraper.port}: another process uses this port." in tree.logged()
    assert "Traceback" not in tree.logged()
    assert not list(folder.iterdir())


@pytest.mark.parametrize("options", [[], ["--autoreload"]])
def test_one_port_at_two_hosts_is_refused_with_both_options(trees, scraper, folder, options):
    metrics_at = f"127.0.0.1:{scraper.port}"
    tree = trees("--health-port", str(scraper.port), "--metrics-port", metrics_at, *options)
    assert tree.process.wait(PATIENCE) == 2
    said = f"--health-port {scraper.port}: --metrics-port {metrics_at} uses this port."
    assert f"{said} Use the same host and port for both, or another port." in tree.logged()
    assert "another process" not in tree.logged()
    assert "Handling" not in tree.logged()
    assert not list(folder.iterdir())


@pytest.mark.parametrize("options", [[], ["--autoreload"]])
def test_without_the_package_it_says_which_extra_to_install(trees, scraper, tmp_path, monkeypatch, options):
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "prometheus_client.py").write_text("raise ImportError('No module named prometheus_client')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "without"))
    tree = trees("--metrics-port", str(scraper.port), *options)
    assert tree.wait(PATIENCE) == 1
    assert "python -m pip install 'mq-django[prometheus]'" in tree.logged()
    assert "Traceback" not in tree.logged()
    assert "Handling" not in tree.logged()


def test_when_the_command_line_is_executed_again_they_start_from_0(start, scraper, publish, tmp_path, monkeypatch):
    changes = tmp_path / "code" / "site_settings.py"
    changes.parent.mkdir()
    changes.write_text("from tests.consumers.project.settings import *\n")
    monkeypatch.setenv("PYTHONPATH", str(changes.parent))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    tree = start("--settings", "site_settings")
    publish()
    scraper.wait_for(1, "mq_django_settled_messages_total")
    changes.write_text(changes.read_text() + 'MQ_DJANGO["QUEUES"] = {"default": {}, "emails": {}, "a": {}}\n')
    tree.signal(signal.SIGHUP)
    wait_until(lambda: "Handling default, emails, a." in tree.logged(), timeout=PATIENCE)
    for _ in range(3):
        publish(queue="emails")
    scraper.wait_for(3, "mq_django_settled_messages_total", queue="emails")
    assert scraper.value("mq_django_settled_messages_total", queue="default") == 0
    assert tree.stop() == 0


def test_replaced_code_keeps_the_counts(start, scraper, publish):
    tree = start()
    publish()
    scraper.wait_for(1, "mq_django_settled_messages_total")
    (before,) = tree.children()
    tree.signal(signal.SIGHUP)
    wait_until(lambda: tree.children() not in ([], [before]) and before not in tree.children(), timeout=PATIENCE)
    publish()
    scraper.wait_for(2, "mq_django_settled_messages_total")
    assert tree.stop() == 0


def test_the_folder_is_private_and_inside_that_of_the_project(start, scraper, folder, tmp_path, monkeypatch, publish):
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(own))
    tree = start()
    publish()
    scraper.wait_for(1, "mq_django_settled_messages_total")
    (found,) = own.glob("mq_django-metrics-*")
    assert found.stat().st_mode & 0o777 == 0o700
    assert not list(folder.iterdir())
    assert not list(own.glob("*.db"))
    assert tree.stop() == 0
    assert not list(own.iterdir())


def test_the_folder_of_a_killed_supervisor_is_removed_by_the_next(start, scraper, folder, publish):
    first = start()
    wait_until(lambda: scraper.samples() and first.children(), timeout=PATIENCE)
    first.kill_all()
    (left,) = folder.iterdir()
    second = start()
    wait_until(scraper.samples, timeout=PATIENCE)
    assert not left.exists()
    assert len(list(folder.iterdir())) == 1
    assert second.stop() == 0


def test_without_a_folder_messages_are_handled_and_the_log_says_so(
    trees, scraper, publish, history, monkeypatch, tmp_path
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "file"))
    tree = trees("--metrics-port", str(scraper.port))
    publish()
    history.wait_for("effect", timeout=PATIENCE)
    assert "The consumers are not measured" in tree.logged()
    assert scraper.samples()["mq_django_redis_outages_total"] == 0
    assert tree.stop() == 0


def test_a_folder_that_is_gone_does_not_stop_the_consumers(start, scraper, folder, publish, history):
    tree = start()
    publish()
    scraper.wait_for(1, "mq_django_settled_messages_total")
    (gone,) = folder.iterdir()
    for path in gone.iterdir():
        path.unlink()
    gone.rmdir()
    (child,) = tree.children()
    kill(child)
    publish()
    history.wait_for("effect", 2, timeout=PATIENCE)
    wait_until(lambda: "are served without its later changes" in tree.logged())
    assert tree.stop() == 0


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
