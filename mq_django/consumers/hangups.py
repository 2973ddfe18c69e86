"""Let a SIGHUP wait while `runconsumer` starts: it asks for a reload, and by default it ends the process."""

import signal
import threading


def hold() -> None:
    """Let a SIGHUP wait until somebody handles it."""
    if threading.current_thread() is threading.main_thread() and hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])


def release() -> None:
    """Let a SIGHUP arrive that has waited."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])
