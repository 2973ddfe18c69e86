"""docs/opentelemetry.md: its examples as a project with a real `runconsumer`, and its tables."""

import json
import re
import sys
from pathlib import Path

import pytest

from mq_django.observability import semantic_conventions as names
from tests.consumers import template
from tests.optional import needs_opentelemetry
from tests.shell import shell_environment
from tests.waiting import wait_until

PAGE = (Path(__file__).parent.parent.parent / "docs" / "opentelemetry.md").read_text(encoding="utf-8")
FILES = re.findall(r"<!-- file: ([\w/.]+) -->\n```python\n(.*?)```", PAGE, re.S)
SETTINGS = """
SECRET_KEY = "only for tests"
USE_TZ = True
ROOT_URLCONF = "shop.urls"
ALLOWED_HOSTS = ["*"]
INSTALLED_APPS = ["mq_django", "shop.apps.ShopConfig"]
MQ_DJANGO["CONNECTION"], MQ_DJANGO["NAMESPACE"] = {connection!r}, {namespace!r}
"""
HANDLERS = """
import logging

from mq_django import Bury, handler

@handler("emails", "welcome")
def welcome(message):
    logging.getLogger("shop").info("handled")
    return Bury("no such user")
"""
URLS = """
from django.http import HttpResponse
from django.urls import path

from mq_django import queues

urlpatterns = [path("", lambda request: HttpResponse(queues["emails"].publish("welcome", None)))]
"""
#: Publishes as the web process does, and prints the response.
REQUEST = """
import django
django.setup()
from django.test import Client
response = Client().get("/", headers={"X-Request-ID": "req-7"})
print("response", response.headers["X-Request-ID"], response.content.decode())
"""


@pytest.fixture
def project(tmp_path, redis_url, namespace):
    """The folder of a project with the files of the page."""
    (tmp_path / "shop").mkdir()
    for name in ("__init__.py", "handlers.py", "urls.py"):
        (tmp_path / "shop" / name).write_text({"handlers.py": HANDLERS, "urls.py": URLS}.get(name, ""))
    for name, code in FILES:
        with (tmp_path / name).open("a") as file:
            file.write(code)
    with (tmp_path / "settings.py").open("a") as file:
        file.write(SETTINGS.format(connection=redis_url, namespace=namespace))
    return tmp_path


@pytest.fixture
def start(project):
    """Start a Python program in the project, whose output goes to a file; it ends with the test."""
    started = []

    def start(*arguments):
        output = project / f"output{len(started)}"
        with output.open("wb") as file:
            path = f"{project}:{shell_environment()['PYTHONPATH']}"
            env = shell_environment(DJANGO_SETTINGS_MODULE="settings", PYTHONPATH=path)
            process = template.start([sys.executable, *arguments], env=env, output=file, forks=arguments[0] == "-m")
        started.append(process)
        return process, output

    yield start
    for process in started:
        process.terminate()
        process.wait(20)


def spans(text):
    """Return what ConsoleSpanExporter has printed among other lines."""
    return [json.loads(found) for found in re.findall(r"^\{\n.*?^\}$", text, re.M | re.S)]


#: It starts three processes, which import a lot.
@needs_opentelemetry
def test_a_request_and_its_handler_are_in_one_trace_and_have_one_correlation_id(start):
    request, response = start("-c", REQUEST)
    assert request.wait(60) == 0
    (published,) = spans(response.read_text())
    message_id = published["attributes"]["messaging.message.id"]
    assert f"response req-7 {message_id}" in response.read_text()

    consumer, log = start("-m", "django", "runconsumer")
    wait_until(lambda: "buried after attempt" in log.read_text(), timeout=60, message="the handler's burial")
    consumer.terminate()
    # Spans that wait for their export are exported at the end.
    assert consumer.wait(30) == 0
    (processed,) = spans(log.read_text())
    assert (published["name"], processed["name"]) == ("publish emails", "process emails")
    assert processed["context"]["trace_id"] == published["context"]["trace_id"]
    assert processed["parent_id"] == published["context"]["span_id"]
    assert processed["attributes"]["messaging.message.conversation_id"] == "req-7"

    lines = [line for line in log.read_text().splitlines() if "handled" in line or "buried after" in line]
    lines = [line for line in lines if "shop" in line or "buried after" in line]
    shown = [line.partition(" mq_django")[0].partition(" shop")[0] for line in lines]
    assert shown == ["INFO [req-7]", "ERROR [req-7]"]


def test_the_tables_have_each_name():
    values = {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
    documented = {value for value in values if value.startswith(("messaging.", "mq_django", "error."))}
    assert sorted(value for value in documented if f"`{value}`" not in PAGE) == []


def test_the_tables_of_entries_have_each_middleware():
    for name in ("trace_publishing", "trace_handling", "trace_handling_with_link"):
        assert f"- `….opentelemetry.{name}`: " in PAGE
    for name in ("correlate_requests", "send_correlation_id", "receive_correlation_id", "CorrelationIdFilter"):
        assert f"\n- `{name}" in PAGE
