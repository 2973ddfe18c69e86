"""The import of a price list, while the shop is deployed in the middle of it."""

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.shell import ROOT, ran, shell_environment
from tests.waiting import wait_until

LINES = 150
SEED = f"""
from decimal import Decimal
from example_project.office.models import PriceList
from example_project.office.tasks import import_prices
prices = PriceList.objects.create(supplier="Bone China Ltd")
for number in range({LINES}):
    prices.lines.create(product=f"cup {{number}}", price=Decimal(number))
print(import_prices.enqueue(prices.pk).id)
"""


# The resuming itself is tested with consumers; this is the shop that does so.
pytestmark = pytest.mark.slow


class Shop:
    """The example project with a database of its own, and what runs in it."""

    def __init__(self, folder: Path, redis_url: str, namespace: str) -> None:
        self.folder = folder
        self.log = folder / "consumers.log"
        self._environment = shell_environment(
            EXAMPLE_PROJECT_DIR=str(folder),
            EXAMPLE_PROJECT_NAMESPACE=namespace,
            EXAMPLE_PROJECT_OFTEN_SECONDS="86400",
            EXAMPLE_PROJECT_PRICE_LINE_SECONDS="0.02",
            MQ_REDIS_URL=redis_url,
        )
        self._started: list[subprocess.Popen[bytes]] = []

    def manage(self, *arguments: str) -> str:
        done = ran([sys.executable, "example_project/manage.py", *arguments], env=self._environment)
        return done.stdout.strip()

    def start(self) -> "subprocess.Popen[bytes]":
        with self.log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "example_project/manage.py", "runconsumer", "default", "--processes", "1"],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._started.append(process)
        return process

    def applied(self) -> list[int]:
        """Return how often each line was applied."""
        with closing(sqlite3.connect(self.folder / "shop.sqlite3", timeout=20)) as connection:
            return [count for (count,) in connection.execute("SELECT applied FROM office_priceline ORDER BY id")]

    def end(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.wait(20)


@pytest.fixture
def office(tmp_path: Path, redis_url: str, namespace: str) -> Iterator[Shop]:
    shop = Shop(tmp_path, redis_url, namespace)
    shop.manage("migrate", "--verbosity", "0")
    yield shop
    shop.end()


def test_a_deploy_in_the_middle_of_an_import_repeats_no_line(office: Shop) -> None:
    task = office.manage("shell", "--verbosity", "0", "-c", SEED).splitlines()[-1]
    first = office.start()
    wait_until(lambda: sum(office.applied()) > 20, timeout=60)
    first.send_signal(signal.SIGTERM)
    assert first.wait(28) == 0
    before = office.applied()
    assert 20 < sum(before) < LINES
    (shown,) = json.loads(office.manage("mq", "find", "default", task, "--json"))["found"]
    assert shown["progress"]["done"] == sum(before)

    second = office.start()
    wait_until(lambda: sum(office.applied()) >= LINES, timeout=60)
    second.send_signal(signal.SIGTERM)
    assert second.wait(28) == 0

    assert office.applied() == [1] * LINES
    assert "Traceback" not in office.log.read_text()
    count = "from example_project.office.models import PriceList as P; print(P.objects.filter(imported=None).count())"
    assert office.manage("shell", "--verbosity", "0", "-c", count).splitlines()[-1] == "0"
