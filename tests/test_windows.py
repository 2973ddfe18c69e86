"""Windows has no fcntl, no fork and no unix sockets: only the embedded server and `runconsumer` may need those."""

import os
import subprocess
import sys

import pytest

from mq_django.transport.private_server import PrivateServer


@pytest.fixture(scope="module")
def server_url():
    with PrivateServer(tcp=True) as server:
        yield server.url


@pytest.fixture
def manage(server_url, namespace):
    def run(*arguments: str, connection: str = server_url) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tests.as_on_windows", *arguments],
            env={**os.environ, "TEST_CONNECTION": connection, "TEST_NAMESPACE": namespace, "PYTHONWARNINGS": "error"},
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
        )

    return run


def test_checks_pass(manage):
    checked = manage("check")
    assert checked.returncode == 0, checked.stderr


def test_messages_are_published_and_seen(manage):
    published = manage("publish")
    assert published.returncode == 0, published.stderr
    assert len(published.stdout.split()) == 3
    status = manage("mq", "status")
    assert status.returncode == 0, status.stderr
    heads, row = (line.split() for line in status.stdout.strip().splitlines())
    counts = dict(zip(heads, row, strict=True))
    assert (counts["ready"], counts["delayed"]) == ("2", "1")


def test_the_admin_shows_its_pages(manage):
    shown = manage("admin")
    assert shown.returncode == 0, shown.stderr
    assert [line.split()[-1] for line in shown.stdout.splitlines()] == ["200"] * 3


def test_consumers_do_not_run_and_say_where_they_do(manage):
    refused = manage("runconsumer")
    assert refused.returncode == 1
    assert refused.stderr.startswith("CommandError: runconsumer does not run on Windows.")
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("connection", "said"), [("embedded", "does not work on Windows"), ("unix:///run/s", "names a unix socket")]
)
def test_what_needs_unix_says_so(manage, connection, said):
    published = manage("publish", connection=connection)
    assert published.returncode == 1
    last = published.stderr.splitlines()[-1]
    assert last.startswith('mq_django.errors.ConfigurationError: MQ_DJANGO["CONNECTION"]')
    assert said in last
    # The embedded server is for development, and is started by whoever publishes first.
    checked = manage("check", connection=connection)
    assert (said in checked.stderr) == (connection != "embedded")
