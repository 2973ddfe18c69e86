"""What tests of supervisors share."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def signal_state() -> Iterator[None]:
    """Put back what a command does to the signals of this process."""
    handled = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
    handlers, mask = [signal.getsignal(number) for number in handled], signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for number, handler in zip(handled, handlers, strict=True):
        signal.signal(number, handler)
