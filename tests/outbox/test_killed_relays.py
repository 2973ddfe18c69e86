"""A killed relay: no message is lost, and none is there twice. Other points: test_partition_relay.py."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connections

from tests.outbox.relays import publish, ready, relay, rows, run, states

ROOT = Path(__file__).parent.parent.parent

pytestmark = [
    pytest.mark.usefixtures("quick"),
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL"),
]


def run_killed_relay(alias):
    """Run a relay in a process that is killed in the transaction that finishes its claim."""
    wanted = ("ENGINE", "NAME", "HOST", "PORT", "USER", "OPTIONS")
    database = {name: connections[alias].settings_dict[name] for name in wanted}
    environment = {
        **os.environ,
        "MQ_OUTBOX_DATABASE": json.dumps(database),
        "MQ_OUTBOX_QUEUES": json.dumps(settings.MQ_DJANGO),
        "MQ_DJANGO_TESTING": "0",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    command = [sys.executable, "-m", "tests.outbox.relay_process"]
    found = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == -signal.SIGKILL, found.stderr


@pytest.mark.parametrize("alias", ["sqlite", "postgresql"], indirect=True)
def test_a_killed_relay_loses_and_doubles_nothing(alias, mq_settings, redis_client):
    mq_settings(QUEUES={"mails": {"OUTBOX": True}})
    ids = publish(alias, "mails", 700)

    run_killed_relay(alias)

    assert rows(alias).exists()
    run(relay(alias))
    assert ready(redis_client, "mails") == ids
    assert not rows(alias).exists()
    assert not states(alias).exclude(token="").exists()
