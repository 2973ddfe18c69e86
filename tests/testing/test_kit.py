"""The tests of a project that use the kit, by each runner."""

import re
import subprocess
import sys

import pytest
import redis

from mq_django.transport.private_server import PrivateServer
from tests.waiting import wait_until


def passed(output: str) -> int:
    return int(re.search(r"(\d+) passed", output)[1])


@pytest.mark.parametrize("arguments", [[], ["-n", "4"]], ids=["alone", "parallel"])
def test_by_pytest(run, configured_keys, arguments):
    assert passed(run("-m", "pytest", "kit", "-W", "error", *arguments).stdout) > 40
    assert configured_keys() == []


@pytest.mark.parametrize("arguments", [["kit"], ["kit.test_mixin", "--parallel", "4"]], ids=["alone", "parallel"])
def test_by_djangos_command(run, configured_keys, arguments):
    ran = run("-W", "error", "manage.py", "test", *arguments).stderr
    assert int(re.search(r"Ran (\d+) tests", ran)[1]) >= 8
    assert configured_keys() == []


def test_queues_with_partitions_need_no_other_tests(run, configured_keys):
    run("-W", "error", "-m", "pytest", "kit", PARTITIONS="4")
    run("-W", "error", "manage.py", "test", "kit", PARTITIONS="4")
    assert configured_keys() == []


def test_queues_with_an_outbox_need_no_other_tests(run, configured_keys):
    """Their messages are seen as if they waited for the commit, and no relay runs."""
    tests = ["kit/test_outbox.py", "kit/test_mixin.py", "-k", "Transaction or outbox or row or relay"]
    run("-W", "error", "-m", "pytest", *tests, OUTBOX="1")
    assert configured_keys() == []


def test_by_pytest_in_databases_of_one_server(run, configured_keys):
    with PrivateServer(tcp=True) as container:
        assert passed(run("-m", "pytest", "kit", "-n", "3", MQ_REDIS_URL=container.url).stdout) > 40


@pytest.fixture
def consumer(project, environment, tmp_path):
    """A consumer of the project, on a configured server of its own; and the file with its output."""
    output = tmp_path / "consumer.txt"
    with PrivateServer() as server, output.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "runconsumer", "--threads", "2"],
            cwd=project,
            env=environment | {"CONFIGURED_REDIS": server.url},
            stdout=file,
            stderr=file,
        )
        try:
            wait_until(lambda: "handles default, emails" in output.read_text(), timeout=60)
            yield server, output
            assert process.poll() is None
        finally:
            process.terminate()
            process.wait(30)


def test_a_consumer_of_the_configured_server_receives_nothing(consumer, run):
    server, output = consumer
    run("-m", "pytest", "kit", CONFIGURED_REDIS=server.url)
    run("manage.py", "test", "kit", CONFIGURED_REDIS=server.url)
    assert not re.search("retried|buried|Ignored", output.read_text())
    with redis.Redis.from_url(server.url) as client:
        # Nothing was published there, so nothing was counted.
        assert list(client.scan_iter(match="*:counters:*")) == []
