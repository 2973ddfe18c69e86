"""What stands in a message cannot write a log line of its own."""

import ast
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

import mq_django
from mq_django.consumers.log_formats import TextFormatter
from mq_django.core.logs import get_logger

logger = get_logger("mq_django.tests")
FORGED = "a\n2026-01-01 00:00:00 ERROR forged\r\x1b[2K\u2028\u202e"
#: Loggers that are not ours, or are only configured.
OTHERS = {"core/logs.py", "consumers/log_formats.py", "task_backend/task_api.py"}


@pytest.mark.parametrize(
    "value", [FORGED, FORGED.encode(), ValueError(FORGED), b"\xff\n"], ids=lambda v: type(v).__name__
)
def test_an_argument_is_one_line(caplog, value):
    logger.error("Message %s of queue %s: %d", value, "default", 7)
    (told,) = caplog.messages
    assert told.isprintable()
    assert told.endswith(" of queue default: 7")


def test_numbers_and_what_is_printable_stay_as_they_are(caplog):
    logger.error("%s, %r, %d %.1f", "schön", "x", 1, 2.5)
    assert caplog.messages == ["schön, 'x', 1 2.5"]


def test_the_text_of_an_exception_stays_inside_its_record():
    error = ValueError(FORGED)
    record = logging.LogRecord("mq_django", logging.ERROR, "", 0, "failed", None, (type(error), error, None))
    head, *rest = TextFormatter("%(levelname)s %(message)s").format(record).splitlines()
    assert head == "ERROR failed"
    assert len(rest) == 2
    assert all(line.startswith("  ") and line.isprintable() for line in rest)


def test_every_module_takes_its_logger_from_there():
    root = Path(mq_django.__file__).parent
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "getLogger"
    }
    assert found == OTHERS


def test_no_call_writes_its_text_itself():
    """Only arguments are looked at: a text that was put together before would pass."""
    root = Path(mq_django.__file__).parent
    levels = {"debug", "info", "warning", "error", "exception", "critical"}
    wrong = [
        f"{path.relative_to(root)}:{node.lineno}"
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in levels
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "logger"
        and not isinstance(node.args[0], ast.Constant | ast.Name)
    ]
    assert wrong == []


LOG_AS_JSON = """
import logging
import django
from django.conf import settings
settings.configure(DEBUG=True)
django.setup()
from mq_django.consumers.log_formats import configure_logs
configure_logs("json", verbosity=1)
for name in ("django.tasks", "mq_django.consumers", "shop"):
    logging.getLogger(name).warning("from %s", name)
"""


def test_with_json_each_record_is_written_once():
    done = subprocess.run([sys.executable, "-c", LOG_AS_JSON], capture_output=True, check=True)
    messages = [json.loads(line)["message"] for line in done.stderr.splitlines()]
    assert messages == ["from django.tasks", "from mq_django.consumers", "from shop"]
