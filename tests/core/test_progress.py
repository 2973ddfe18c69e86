"""Reporting progress: what is refused, and where it works."""

import math
import threading
from contextvars import Context

import pytest
from django.utils.translation import gettext_lazy

from mq_django import Progress, progress
from mq_django.core.messages import Delivery, Message
from mq_django.core.running_handler import (
    MAX_NOTE,
    MAX_NUMBER,
    HandlerRun,
    Report,
    progress_text,
    read_progress,
    running,
)
from mq_django.errors import InvalidProgress, NotInHandler

DELIVERY = Delivery(Message("m1", "n", None, "default", attempt=3), 0, b"1-0", b"null")


@pytest.fixture
def handler_run():
    """A handler that runs in this context."""

    def opened(found):
        found.report = Report(delivery=DELIVERY, config=None, stopping=threading.Event())
        return found.report

    found = HandlerRun(DELIVERY, opened)
    token = running.set(found)
    yield found
    running.reset(token)


def test_outside_a_handler_it_is_refused():
    with pytest.raises(NotInHandler, match=r"progress\(\) works only while a consumer runs a handler"):
        Context().run(progress, 1)


def test_the_latest_report_counts(handler_run):
    progress(1, 10)
    progress(2, 10, note="cups")
    found = handler_run.report.progress
    assert (found.done, found.total, found.note, found.attempt) == (2, 10, "cups", 3)
    assert handler_run.report.changed


def test_a_note_may_be_a_lazy_translation(handler_run):
    progress(1, 2, note=gettext_lazy("Yes"))
    assert type(handler_run.report.progress.note) is str
    assert handler_run.report.progress.note == "Yes"


def test_a_handler_that_does_not_report_has_no_report(handler_run):
    assert handler_run.report is None


def test_a_thread_that_outlives_its_handler_reports_nothing(handler_run):
    handler_run.is_over = True
    with pytest.raises(NotInHandler, match="The handler of message m1 has ended"):
        progress(1)


def test_a_number_that_is_none_is_refused(handler_run, subtests):
    for done in [-1, math.nan, math.inf, True, None, "1", MAX_NUMBER * 2, 10**400, 10**5000, [1]]:
        with subtests.test(done=done):
            with pytest.raises(InvalidProgress, match="done must be a finite number"):
                progress(done)
            if done is not None:
                with pytest.raises(InvalidProgress, match="total must be None or a finite number"):
                    progress(1, done)
            assert handler_run.report is None


def test_a_note_that_is_no_text_is_refused(handler_run, subtests):
    for note in [None, b"x", 7, "x" * (MAX_NOTE + 1), "\ud800"]:
        with subtests.test(note=note):
            with pytest.raises(InvalidProgress, match="note"):
                progress(1, note=note)
            assert handler_run.report is None


def test_the_fraction_is_known_with_a_total(subtests):
    for found, fraction in [
        (Progress(done=1, total=4), 0.25),
        (Progress(done=9, total=4), 1.0),
        (Progress(done=9), None),
        (Progress(done=0, total=0), None),
    ]:
        with subtests.test(found=found):
            assert found.fraction == fraction


def test_what_is_written_is_read():
    found = Progress(done=1.5, total=3, note="tea ☕", attempt=2, at_ms=1_700_000_000_000)
    assert read_progress(progress_text(found)) == found
    assert found.at.isoformat() == "2023-11-14T22:13:20+00:00"


def test_what_another_program_has_written_is_no_progress():
    wrong = [b'{"done":"1"}', b'{"done":-1}', b'{"done":1e999}', b'{"done":1,"total":"x"}', b"[]", b"{", b"", b"\xff"]
    assert [text for text in [None, 7, *wrong] if read_progress(text) is not None] == []


def test_what_is_half_valid_is_read_in_part():
    found = read_progress(b'{"done":1,"note":7,"attempt":"x","at":1e300}')
    assert found == Progress(done=1)
    assert found.at is None
    assert len(read_progress(b'{"done":1,"note":"' + b"x" * 5000 + b'"}').note) == MAX_NOTE
