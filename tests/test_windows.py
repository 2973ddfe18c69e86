"""Windows has no fcntl, no fork and no unix sockets: only the embedded server and `runconsumer` may need those."""

import json
import os
import sys

from mq_django.transport.private_server import PrivateServer
from tests.shell import ran


def test_all_but_consumers_works_and_what_needs_unix_says_so(namespace):
    with PrivateServer(tcp=True) as server:
        done = ran(
            [sys.executable, "-m", "tests.as_on_windows"],
            env={**os.environ, "TEST_CONNECTION": server.url, "TEST_NAMESPACE": namespace, "PYTHONWARNINGS": "error"},
        )
    found = json.loads(done.stdout)
    assert found["check"].startswith("System check identified no issues")
    assert found["publish"] == 3
    heads, row = (line.split() for line in found["status"].strip().splitlines())
    counts = dict(zip(heads, row, strict=True))
    assert (counts["ready"], counts["delayed"]) == ("2", "1")
    assert found["admin"] == [200] * 3
    assert found["runconsumer"].startswith("CommandError: runconsumer does not run on Windows.")
    assert "\n" not in found["runconsumer"]
    for connection, said in (("embedded", "does not work on Windows"), ("unix:///run/s", "names a unix socket")):
        refused = found[f"publish, {connection}"]
        assert refused.startswith('ConfigurationError: MQ_DJANGO["CONNECTION"]')
        assert said in refused
        # The embedded server is for development, and is started by whoever publishes first.
        assert (said in found[f"check, {connection}"]) == (connection != "embedded")
