"""The output of `manage.py mq`: colours and progress."""

from io import BytesIO, StringIO, TextIOWrapper

import pytest
from django.core.management.base import BaseCommand

from mq_django.management import terminal
from mq_django.management.terminal import CLEAR_LINE, Terminal, table


class Screen(StringIO):
    """An output that is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def screen(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Screen()


def terminal_on(out, err=None, **options):
    command = BaseCommand(stdout=out, stderr=err or StringIO(), force_color=True)
    return Terminal(command, as_json=False, **options)


def test_headings_have_a_style_on_a_terminal_only(screen, monkeypatch):
    rows = table([{"queue": "emails"}])
    terminal_on(screen).show(None, rows)
    assert screen.getvalue() == "\x1b[1mqueue\x1b[0m\nemails\n"
    plain = StringIO()
    terminal_on(plain).show(None, rows)
    assert plain.getvalue() == "queue\nemails\n"
    monkeypatch.setenv("NO_COLOR", "1")
    without = Screen()
    terminal_on(without).show(None, rows)
    assert without.getvalue() == "queue\nemails\n"
    terminal_on(plain, force_color=True).show(None, rows)
    assert "\x1b[1m" in plain.getvalue()


def test_characters_that_an_output_does_not_have_are_escaped():
    out = TextIOWrapper(BytesIO(), encoding="latin-1")
    terminal_on(out).show(None, table([{"queue": "é\u2713\ud800"}]))
    out.flush()
    assert out.buffer.getvalue() == b"queue\n\xe9\\u2713<U+D800>\n"


def test_progress_is_a_bar_on_a_terminal(screen):
    found = terminal_on(StringIO(), screen)
    found.progress(5, 10, "5 redriven")
    assert screen.getvalue() == f"{CLEAR_LINE}[##########          ]  50%  5 redriven"
    found.end_progress()
    found.end_progress()
    assert screen.getvalue().endswith(f"5 redriven{CLEAR_LINE}")


def test_progress_is_a_line_now_and_then_elsewhere(monkeypatch):
    err = StringIO()
    found = terminal_on(StringIO(), err)
    found.progress(1, 10, "1 redriven")
    assert err.getvalue() == ""
    monkeypatch.setattr(terminal, "PROGRESS", 0.0)
    found.progress(2, 10, "2 redriven")
    assert "2 redriven\n" in err.getvalue()
