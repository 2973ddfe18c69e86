"""What stands in a message cannot write a log line of its own."""

import json
import logging
import subprocess
import sys

from mq_django.core.logs import LONGEST, JsonFormatter, TextFormatter, get_logger
from mq_django.core.texts import MAX_TRACEBACK

logger = get_logger("mq_django.tests")
FORGED = "a\n2026-01-01 00:00:00 ERROR forged\r\x1b[2K\u2028\u202e"


def test_an_argument_is_one_line(caplog):
    for value in (FORGED, FORGED.encode(), ValueError(FORGED), b"\xff\n"):
        logger.error("Message %s of queue %s: %d", value, "default", 7)
    assert len(caplog.messages) == 4
    assert [
        told for told in caplog.messages if not (told.isprintable() and told.endswith(" of queue default: 7"))
    ] == []


def test_a_text_that_another_program_has_written_is_bounded(caplog):
    """Such as the name of a schedule. The text of an exception has a bound of its own."""
    forged = ["x" * 5000, b"x" * 5000, "\n" * 5000, b"\xff" * 5000]
    for value in forged:
        logger.error("%s", value, extra={"message_id": value})
        logger.error("%r", value)
        assert JsonFormatter().format(caplog.records[-2]).count("x") <= 3 * LONGEST
    logger.error("%s", ValueError("x" * 5000))
    *bounded, error = map(len, caplog.messages)
    assert max(bounded) <= 2 * LONGEST + 2  # with a second backslash for each
    assert error == 5000


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


def test_any_exception_has_a_traceback_of_a_bounded_length(caplog):
    """With the formatter of any project, too."""

    class Nameless:
        def __getattr__(self, name):
            raise KeyError(name)

        def look(self):
            return missing_name  # noqa: F821

    def long():
        raise ValueError("x" * 3_000_000)

    for act, last in ((Nameless().look, "NameError: "), (long, "xxx")):
        try:
            act()
        except Exception:
            logger.exception("It failed")
        record = caplog.records[-1]
        for formatter in (logging.Formatter("%(message)s"), TextFormatter("%(message)s"), JsonFormatter()):
            text = formatter.format(record)
            assert "It failed" in text
            assert last in text
            assert len(text) < 2 * MAX_TRACEBACK


LOG_AS_JSON = """
import logging
import django
from django.conf import settings
settings.configure(DEBUG=True)
django.setup()
from mq_django.core.logs import configure_logs
configure_logs("json", verbosity=1)
for name in ("django.tasks", "mq_django.consumers", "shop"):
    logging.getLogger(name).warning("from %s", name)
"""


def test_with_json_each_record_is_written_once():
    done = subprocess.run([sys.executable, "-c", LOG_AS_JSON], capture_output=True, check=True)
    messages = [json.loads(line)["message"] for line in done.stderr.splitlines()]
    assert messages == ["from django.tasks", "from mq_django.consumers", "from shop"]
