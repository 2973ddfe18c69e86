"""Let a SIGHUP wait while `runconsumer` starts: it asks for a reload, and by default it ends the process."""

import signal
import sys
import threading


def hold_hangups() -> None:
    """Let a SIGHUP wait until somebody handles it, if this process is a `runconsumer` that starts."""
    is_starting = sys.argv[1:2] == ["runconsumer"] and threading.current_thread() is threading.main_thread()
    if is_starting and hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])


def release_hangups() -> None:
    """Let a SIGHUP arrive that has waited."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])
