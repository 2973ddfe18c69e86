"""The tests of a project that uses the kit, by each runner. None touches the server that the project has configured."""

import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from mq_django.testing import MQ
from mq_django.transport.private_server import PrivateServer
from tests.waiting import wait_until

PAGE = (Path(__file__).parent.parent.parent / "docs" / "testing.md").read_text(encoding="utf-8")
#: The examples of the page, which become tests of the project.
EXAMPLES = dict(re.findall(r"<!-- test: (\w+\.py) -->\n```python\n(.*?)```", PAGE, re.S))


def passed(output: str) -> int:
    return int(re.search(r"(\d+) passed", output)[1])


@pytest.fixture
def servers(tmp_path):
    """A folder for what a test notes of the server of its process, and a function that returns what they noted."""
    folder = tmp_path / "servers"
    folder.mkdir()
    return {"SERVERS": str(folder)}, lambda: {path.read_text() for path in folder.iterdir()}


@pytest.fixture
def examples(project):
    for name, text in EXAMPLES.items():
        (project / "tests" / f"test_of_docs_{name}").write_text(text)


def test_every_method_of_the_kit_is_named_in_the_documentation():
    methods = {name for name in dir(MQ) if not name.startswith("_")}
    assert sorted(name for name in methods if not re.search(rf"`{name}(\(\))?`", PAGE)) == []


@pytest.mark.versions
def test_by_pytest_while_a_consumer_of_the_configured_server_receives_nothing(consumer, run, servers, examples):
    (server, told), (environment, noted) = consumer, servers
    options = ["-rA", "-W", "error"]
    output = run("-m", "pytest", "tests", "kit", *options, CONFIGURED_REDIS=server.url, **environment).stdout
    assert passed(output) > 50
    ran = {Path(name).name.removeprefix("test_of_docs_") for name in re.findall(r"^PASSED (\S+\.py)::", output, re.M)}
    assert ran >= EXAMPLES.keys()
    assert len(noted()) == 1
    assert not re.search("retried|buried|Ignored", told.read_text())
    with redis.Redis.from_url(server.url) as client:
        # Nothing was published there, so nothing was counted.
        assert list(client.scan_iter(match="*:counters:*")) == []


@pytest.mark.slow
def test_by_pytest_in_parallel_processes(run, configured_keys, servers):
    environment, noted = servers
    # Each of them runs all.
    tests = ["tests/test_publishing.py", "kit/test_mixin.py"]
    run("-m", "pytest", *tests, "-W", "error", "-n", "2", "--dist", "each", **environment)
    assert len(noted()) == 2
    assert configured_keys() == []


@pytest.mark.slow
def test_by_pytest_in_databases_of_one_server(run):
    with PrivateServer(tcp=True) as server:
        clients = [redis.Redis.from_url(f"{server.url}/{number}") for number in (2, 3)]
        # A run that was killed has left a message, and the key that says that the database is for tests.
        clients[0].mset({"mq:{emails}:left": "theirs", "mq_django:tests": "1"})
        for client in clients:
            client.set("session:1", "another program's")
        run("-m", "pytest", "kit/test_fixture.py", "-n", "2", "--dist", "each", MQ_REDIS_URL=server.url)
        for client in clients:
            assert set(client.scan_iter()) - {b"mq:testing:clock"} == {b"session:1", b"mq_django:tests"}
            client.close()


IN_PROCESS = """
from django.core.management import call_command
from django.db import connections
from django.test import TransactionTestCase
from mq_django.testing import MQTestMixin
from shop.models import Order
from shop.tasks import confirm

class Tests(MQTestMixin, TransactionTestCase):
    def test_it_confirms(self):
        order = Order.objects.create(email="ann@shop.example")
        confirm.enqueue(order.pk)
        call_command("runconsumer", "--drain")
        order.refresh_from_db()
        assert order.confirmed
        # Another one, for which Django has created no database of tests, is still there.
        assert "other" in connections.settings
"""


@pytest.mark.versions
def test_by_djangos_command_with_a_consumer_in_the_process_of_a_test(project, run, configured_keys, servers, examples):
    environment, noted = servers
    with (project / "settings.py").open("a") as settings:
        settings.write(
            'DATABASES["other"] = {**DATABASES["default"], "NAME": BASE_DIR / "other.sqlite3", "TEST": {}}\n'
        )
    (project / "tests" / "test_a.py").write_text(IN_PROCESS)
    ran = run("-W", "error", "manage.py", "test", "kit", "tests", TEST_DATABASE_FILE="1", **environment).stderr
    assert int(re.search(r"Ran (\d+) tests", ran)[1]) >= 17
    assert len(noted()) == 1
    assert configured_keys() == []


@pytest.mark.slow
def test_by_djangos_command_in_parallel_processes(run, configured_keys, servers):
    environment, noted = servers
    tests = ["kit.test_mixin", "tests.test_publishing", "--parallel", "2"]
    run("-W", "error", "manage.py", "test", *tests, **environment)
    # A machine may be so busy that one of the processes runs all.
    assert {server.partition(" ")[0] for server in noted()} in ({"django1"}, {"django2"}, {"django1", "django2"})
    assert configured_keys() == []


def test_by_a_runner_of_a_projects_own(run, configured_keys):
    """It protects the database of the settings as well."""
    assert "no database of tests is known" in run("check.py").stdout
    assert configured_keys() == []


@pytest.mark.slow
def test_queues_with_partitions_need_no_other_tests(run, configured_keys):
    run("-W", "error", "-m", "pytest", "kit", PARTITIONS="4")
    assert configured_keys() == []


@pytest.mark.slow
def test_queues_with_an_outbox_need_no_other_tests(run, configured_keys):
    """Their messages are seen as if they waited for the commit, and no relay runs."""
    tests = ["kit/test_outbox.py", "kit/test_mixin.py", "-k", "Transaction or outbox or row or relay"]
    run("-W", "error", "-m", "pytest", *tests, OUTBOX="1")
    assert configured_keys() == []


def test_consumers_of_a_test_use_its_database(project, run, configured_keys):
    run("-m", "pytest", "tests/test_consumers.py", TEST_DATABASE_FILE="1")
    assert configured_keys() == []
    # pytest removes its own; nothing was written to that of the settings.
    if (project / "development.sqlite3").exists():
        with sqlite3.connect(project / "development.sqlite3") as database:
            assert database.execute("SELECT * FROM sqlite_master").fetchall() == []


def test_by_unittest_when_the_environment_says_so_and_before_nothing_is_imported_or_started(run, configured_keys):
    code = """
import os, sys, unittest
from mq_django.testing import plugin
print([name for name in sys.modules if name.startswith("django")])
import django
django.setup()
plugin.pytest_runtest_teardown()
print("MQ_DJANGO_TEST_SERVER" in os.environ)
unittest.main("kit.test_isolated")
"""
    assert run("-c", code, MQ_DJANGO_TESTING="1").stdout == "[]\nFalse\n"
    assert configured_keys() == []


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
