"""An ask for a check is never lost, whenever it comes."""

import time

from mq_django.consumers.supervisor.promoter import NextChecks


def test_what_was_checked_is_due_when_its_time_comes():
    checks = NextChecks(range(2))
    for number in (0, 1):
        checks.begin(number, 3600.0)
    assert list(checks.due()) == []
    assert 3000 < checks.pause() <= 3600
    checks.at(1, time.monotonic())
    assert list(checks.due()) == [1]
    assert checks.pause() == 0.0


def test_an_ask_during_a_check_outlives_it():
    checks = NextChecks(range(2))
    for number in (0, 1):
        checks.begin(number, 60.0)
        if number == 1:
            checks.ask(number)
        checks.at(number, time.monotonic() + 60.0)
    assert (list(checks.due()), checks.pause()) == ([1], 0.0)
