"""What holds for a queue as a whole: whether it is paused."""

from mq_django.conf import QueueConfig
from mq_django.transport import scripts
from mq_django.transport.sessions import Wire, reply_or_raise


class Control:
    """The switches of one queue."""

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        self._keys = config.keys
        self._wire = wire

    def pause(self) -> bool:
        """Let no handler of the queue start from 100 ms on; tell whether it was running before.

        What a consumer holds by then and has not begun goes back uncharged. A supervisor whose subscription is broken
        at this moment learns of it with its next look, up to a second later.
        """
        return self._run("control_pause") == b"PAUSED"

    def resume(self) -> bool:
        """Let handlers start again; tell whether the queue was paused before."""
        return self._run("control_resume") == b"RESUMED"

    def _run(self, script: str) -> bytes:
        command = scripts.command(script, keys=[self._keys.control], args=[self._keys.wake])
        reply: bytes = reply_or_raise(self._wire.trip([command])[0])
        return reply
