"""`manage.py mq metrics`: the metrics of queues, once or over HTTP."""

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from tests.optional import needs_prometheus
from tests.seeding import publish_many
from tests.shell import ROOT, shell_environment

pytestmark = pytest.mark.usefixtures("mq_settings")


def metrics(*args):
    out = StringIO()
    call_command("mq", "metrics", *args, stdout=out)
    return out.getvalue()


@needs_prometheus
def test_it_prints_them():
    publish_many("emails", [("welcome", 1)])
    assert 'mq_django_messages_published_total{queue="emails"} 1.0' in metrics().splitlines()
    assert "mq_django_up 1.0" in json.loads(metrics("--json"))


@needs_prometheus
def test_a_port_in_use_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CommandError, match=rf"^--port 127\.0\.0\.1:{port}: another process uses this port\.$"):
            metrics("--port", f"127.0.0.1:{port}")


@needs_prometheus
def test_it_serves_them_until_a_signal_stops_it(redis_url, namespace, tmp_path):
    publish_many("emails", [("welcome", 1)])
    settings = {"CONNECTION": redis_url, "NAMESPACE": namespace, "QUEUES": {"default": {}, "emails": {}}}
    text = "from tests.settings import *\nSILENCED_SYSTEM_CHECKS = ['mq_django.W003', 'mq_django.W004']\n"
    (tmp_path / "project.py").write_text(f"{text}MQ_DJANGO = {settings}\n", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = subprocess.Popen(
        [sys.executable, "-m", "django", "mq", "metrics", "--port", f"127.0.0.1:{port}"],
        env=shell_environment(DJANGO_SETTINGS_MODULE="project", PYTHONPATH=f"{tmp_path}:{ROOT}"),
        stderr=subprocess.PIPE,
    )
    try:
        assert program.stderr.readline() == b"Serving /metrics. Stop with Ctrl-C.\n"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=")
            assert b"mq_django_up 1.0" in answer.read()
        program.send_signal(signal.SIGTERM)
        assert program.wait(60) == 0
    finally:
        program.kill()
        program.communicate()


def test_without_the_package_it_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("mq_django.observability.prometheus")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(CommandError, match=r"'mq-django\[prometheus\]'"):
        metrics()
