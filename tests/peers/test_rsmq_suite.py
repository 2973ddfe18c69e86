"""RSMQ's own tests, unchanged, run through our class. They are in rsmq_suite/ with their licence."""

import json
import os
import subprocess
import sys

import pytest

from mq_django.transport.private_server import PrivateServer
from tests.peers.programs import HERE, ROOT

pytestmark = pytest.mark.slow

SUITE = HERE / "rsmq_suite"


def test_rsmqs_own_tests_pass(node):
    # A server of their own: they use the default namespace, and expect it to be empty.
    with PrivateServer() as server:
        done = subprocess.run(
            [
                node,
                HERE / "node_modules" / "mocha" / "bin" / "_mocha",
                "--exit",
                "--bail",
                # By default each has 2 s, of which the first starts a Python.
                "--timeout",
                "20000",
                "--reporter",
                "json",
                "test/test.js",
            ],
            cwd=SUITE,
            env={
                **os.environ,
                "MQ_REDIS_URL": server.url,
                "MQ_PYTHON": sys.executable,
                "PYTHONPATH": str(ROOT),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
        )
    # The tests print a line before the report.
    report = json.loads(done.stdout[done.stdout.index("{\n") :])
    failed = [(test["fullTitle"], test["err"].get("message")) for test in report["failures"]]
    assert (failed, report["stats"]["passes"], report["stats"]["pending"]) == ([], 87, 0)
