"""No test touches a configured server, whichever runner runs it."""

import re

import pytest
import redis

from mq_django.transport.private_server import PrivateServer
from mq_django.transport.servers import bundled_server

PUBLISHES = """
from shop.handlers import emails

def test_it_publishes():
    assert emails.publish("welcome", {"email": "ann@shop.example"})
"""

DJANGO_TESTS = """
import os
from django.test import TestCase
from mq_django.transport.connections import get_client
from shop.handlers import emails

class Tests(TestCase):
    def test_it_publishes(self):
        with self.captureOnCommitCallbacks(execute=True):
            emails.publish("welcome", {"email": "ann@shop.example"})
        assert get_client("chores", "").dbsize()
"""

SERVER = 'print("server", __import__("os").environ["MQ_DJANGO_TEST_SERVER"])'


def servers(output: str) -> set[str]:
    return set(re.findall(r"server (.*)", output))


def write(project, name, text):
    (project / "tests" / name).write_text(text)


@pytest.mark.parametrize("arguments", [[], ["-n", "2"]])
def test_pytest_does_not(project, run, configured_keys, arguments):
    for name in "abcd":
        write(project, f"test_{name}.py", PUBLISHES)
    assert "4 passed" in run("-m", "pytest", "tests", *arguments).stdout
    assert configured_keys() == []


@pytest.mark.parametrize("arguments", [[], ["--parallel", "2"]])
def test_djangos_test_command_does_not(project, run, configured_keys, arguments):
    for name in "abcd":
        write(project, f"test_{name}.py", DJANGO_TESTS)
    assert "Ran 4 tests" in run("manage.py", "test", "tests", *arguments).stderr
    assert configured_keys() == []


def test_unittest_does_not_when_the_environment_says_so(project, run, configured_keys):
    text = """
import unittest
import django
django.setup()
from shop.handlers import emails

class Tests(unittest.TestCase):
    def test_it_publishes(self):
        emails.publish("welcome", {}, on_commit=False)
"""
    write(project, "test_a.py", text)
    run("-m", "unittest", "tests.test_a", MQ_DJANGO_TESTING="1")
    assert configured_keys() == []


def test_a_runner_of_a_projects_own_does_not(project, run, configured_keys):
    (project / "check.py").write_text(
        "import django\ndjango.setup()\n"
        "from django.test.utils import setup_test_environment\nsetup_test_environment()\n"
        "from shop.handlers import emails\nemails.publish('welcome', {}, on_commit=False)\n" + SERVER
    )
    assert servers(run("check.py").stdout)
    assert configured_keys() == []


def test_settings_of_a_test_do_not(project, run, configured_keys):
    text = """
import os
from shop.handlers import emails

def test_it_publishes(settings):
    queues = {"default": {}, "emails": {"CONNECTION": os.environ["CONFIGURED_REDIS"]}}
    settings.MQ_DJANGO = {**settings.MQ_DJANGO, "QUEUES": queues}
    assert emails.publish("welcome", {"email": "ann@shop.example"})
"""
    write(project, "test_a.py", text)
    run("-m", "pytest", "tests")
    assert configured_keys() == []


def test_parallel_workers_have_servers_of_their_own(project, run):
    write(project, "test_a.py", PUBLISHES + f"    {SERVER}\n")
    assert len(servers(run("-m", "pytest", "tests", "-n", "2", "--dist", "each", "-rP").stdout)) == 2


def test_a_forked_process_has_the_server_of_its_test(project, run):
    text = """
import os
from mq_django.transport.connections import get_client
from shop.handlers import emails

def test_it_forks():
    emails.publish("welcome", {})
    child = os.fork()
    if not child:
        emails.publish("welcome", {})
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert get_client("chores", "").xlen("mq:{emails}:ready") == 2
"""
    write(project, "test_a.py", text)
    run("-m", "pytest", "tests")


def test_what_a_test_has_written_is_gone_in_the_next_one(project, run):
    text = """
import pytest
from mq_django.transport.connections import get_client
from shop.handlers import emails

@pytest.mark.parametrize("number", [1, 2])
def test_it_publishes(number):
    emails.publish("welcome", {"email": "ann@shop.example"})
    assert get_client("chores", "").xlen("mq:{emails}:ready") == 1
"""
    write(project, "test_a.py", text)
    run("-m", "pytest", "tests")


def test_the_plugin_imports_no_django(run):
    code = "import sys, mq_django.testing.plugin; print([name for name in sys.modules if name.startswith('django')])"
    assert run("-c", code).stdout.strip() == "[]"


def test_no_server_is_started_for_tests_that_do_not_publish(project, run, configured_keys):
    write(
        project, "test_a.py", "import os\ndef test_nothing():\n    assert 'MQ_DJANGO_TEST_SERVER' not in os.environ\n"
    )
    run("-m", "pytest", "tests")
    assert configured_keys() == []


class TestServiceContainer:
    """With MQ_REDIS_URL the tests use databases of that server."""

    @pytest.fixture
    def container(self):
        with PrivateServer(tcp=True) as server:
            yield server

    def test_each_worker_has_a_database(self, project, run, container):
        write(project, "test_a.py", PUBLISHES + f"    {SERVER}\n")
        output = run("-m", "pytest", "tests", "-n", "2", "--dist", "each", "-rP", MQ_REDIS_URL=container.url).stdout
        assert servers(output) == {f"gw0 2 {container.url}", f"gw1 3 {container.url}"}

    def test_only_keys_of_the_queues_are_deleted(self, project, run, container):
        write(project, "test_a.py", PUBLISHES)
        with redis.Redis.from_url(f"{container.url}/1") as client:
            client.set("session:1", "theirs")
            run("-m", "pytest", "tests", MQ_REDIS_URL=container.url)
            assert set(client.scan_iter()) == {b"session:1", b"mq_django:tests"}

    def test_a_database_with_messages_is_refused(self, project, run, container):
        write(project, "test_a.py", PUBLISHES)
        with redis.Redis.from_url(f"{container.url}/1") as client:
            client.set("mq:{emails}:ready", "theirs")
            output = run("-m", "pytest", "tests", code=1, MQ_REDIS_URL=container.url).stdout
            assert "has messages that no test has published: the key 'mq:{emails}:ready'" in output
            assert client.get("mq:{emails}:ready") == b"theirs"

    def test_what_a_killed_run_has_left_is_deleted(self, project, run, container):
        write(project, "test_a.py", PUBLISHES)
        with redis.Redis.from_url(f"{container.url}/1") as client:
            client.mset({"mq:{emails}:left": "theirs", "mq_django:tests": "1"})
            run("-m", "pytest", "tests", MQ_REDIS_URL=container.url)
            assert set(client.scan_iter()) == {b"mq_django:tests"}

    def test_a_variable_that_is_no_url_is_named(self, project, run):
        write(project, "test_a.py", PUBLISHES)
        output = run("-m", "pytest", "tests", code=1, MQ_REDIS_URL="127.0.0.1:7000").stdout
        assert "MQ_REDIS_URL must start with one of redis://, rediss://, unix://" in output

    def test_the_configured_database_is_refused(self, project, run, container):
        write(project, "test_a.py", PUBLISHES)
        url = f"{container.url}/1".replace("127.0.0.1", "localhost")
        output = run("-m", "pytest", "tests", code=1, MQ_REDIS_URL=container.url, CONFIGURED_REDIS=url).stdout
        assert 'which MQ_DJANGO["CONNECTION"] names for the project\'s own messages' in output

    def test_a_database_that_the_server_does_not_have_is_an_error(self, project, run, container):
        write(project, "test_a.py", PUBLISHES)
        output = run("-m", "pytest", "tests", code=1, MQ_REDIS_URL=f"{container.url}/15").stdout
        assert "Database 16 of 127.0.0.1" in output
        assert "cannot be used for tests" in output

    def test_the_setting_comes_first(self, project, run, container, configured_keys):
        with (project / "settings.py").open("a") as settings:
            settings.write(f'MQ_DJANGO["TEST"] = {{"CONNECTION": "{container.url}/4"}}\n')
        write(project, "test_a.py", PUBLISHES + f"    {SERVER}\n")
        output = run("-m", "pytest", "tests", "-rP", MQ_REDIS_URL="redis://127.0.0.1:1/0").stdout
        assert servers(output) == {f" 1 {container.url}/4"}


def test_a_cache_may_name_the_server(project, run, configured_keys):
    with PrivateServer(tcp=True) as server:
        with (project / "settings.py").open("a") as settings:
            settings.write(
                f'CACHES = {{"tests": {{"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "{server.url}/4"}}}}\n'
                'MQ_DJANGO["TEST"] = {"CONNECTION": "tests"}\n'
            )
        write(project, "test_a.py", PUBLISHES)
        run("-m", "pytest", "tests")
        with redis.Redis.from_url(f"{server.url}/4") as client:
            assert b"mq_django:tests" in set(client.scan_iter())
            assert list(client.scan_iter(match="mq:*")) in ([], [b"mq:testing:clock"])
    assert configured_keys() == []


@pytest.mark.skipif(bundled_server() is not None, reason="a package with a server is installed")
def test_without_a_server_on_the_machine_a_test_fails_with_advice(project, run, tmp_path):
    write(project, "test_a.py", PUBLISHES)
    output = run("-m", "pytest", "tests", code=1, PATH=str(tmp_path)).stdout
    assert "Tests need a Redis server, because they never use the configured one." in output
    assert "MQ_REDIS_URL" in output
