"""When a process is replaced, and when it is spared."""

import pytest

from mq_django.consumers.shared_state import SharedState
from mq_django.consumers.supervisor.workers import STILL, Decision, Watchdog


class Watched:
    def __init__(self):
        self.shared_state = SharedState.create(2)
        self.dog = Watchdog(self.shared_state)
        self.now = self.dog._looked

    def check(self, seconds, *, ticks=False):
        """Look every 0.2 s for some time, and return the last decision."""
        for _ in range(round(seconds / 0.2)):
            self.now += 0.2
            if ticks:
                self.shared_state.tick()
            decision = self.dog.check(self.now)
        return decision


@pytest.fixture
def watched():
    found = Watched()
    found.shared_state.tick()
    found.check(0.2)
    yield found
    found.shared_state.close()


def test_a_handler_within_its_timeout_may_hold_the_gil(watched):
    watched.shared_state.run(0, 0, 0, b"1-1", watched.now)
    assert watched.check(STILL * 10) is Decision.KEEP
    assert not watched.dog.responds


def test_handlers_that_are_late_one_after_another_are_well(watched):
    """Each is interrupted in time; that there is one at every look says nothing."""
    for number in range(20):
        watched.shared_state.run(0, 0, 0, b"1-%d" % number, watched.now, watched.now + 0.1)
        assert watched.check(0.8, ticks=True) is Decision.KEEP
        assert [item.receipt.entry for item in watched.dog.late] == [b"1-%d" % number]


def test_interrupted_in_time_nobody_is_replaced(watched):
    watched.shared_state.run(0, 0, 0, b"1-1", watched.now, watched.now + 5)
    watched.check(5.6, ticks=True)
    watched.shared_state.idle(0)
    assert watched.check(2.0, ticks=True) is Decision.KEEP


def test_while_we_ourselves_were_stopped_nobody_grows_late(watched):
    watched.shared_state.run(0, 0, 0, b"1-1", watched.now, watched.now + 5)
    watched.now += 3600
    assert watched.dog.check(watched.now) is Decision.KEEP
    assert watched.check(0.4) is Decision.KEEP
    assert watched.check(0.8) is Decision.KILL_LATE
