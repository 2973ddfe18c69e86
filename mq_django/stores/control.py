"""Pause and resume a queue."""

from mq_django.conf import QueueConfig
from mq_django.transport import scripts
from mq_django.transport.sessions import Wire, reply_or_raise


class Control:
    """Pauses and resumes one queue."""

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        self._keys = config.keys
        self._wire = wire

    def pause(self) -> bool:
        """Pause the queue, and return whether it was running before. After 100 ms no handler starts.

        Deliveries that have not started by then return to the queue; no attempt is counted. A supervisor that is not
        subscribed at this moment notices the pause when it polls, up to a second later.
        """
        return self._run("control_pause") == b"PAUSED"

    def resume(self) -> bool:
        """Resume the queue, and return whether it was paused before."""
        return self._run("control_resume") == b"RESUMED"

    def _run(self, script: str) -> bytes:
        command = scripts.command(script, keys=[self._keys.control], args=[self._keys.wake])
        reply: bytes = reply_or_raise(self._wire.trip([command])[0])
        return reply
