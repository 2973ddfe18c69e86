"""Pause and resume a queue."""

from mq_django.conf import QueueConfig
from mq_django.core.keys import QueueKeys
from mq_django.stores.partition_wire import wire_of
from mq_django.transport import scripts
from mq_django.transport.scripts import Command
from mq_django.transport.sessions import Wire, reply_or_raise


class Control:
    """Pauses and resumes one queue."""

    def __init__(self, config: QueueConfig, wire: Wire) -> None:
        self._keys = config.keys
        self._wire = wire_of(config, wire)

    def pause(self, *, who: str = "", reason: str = "") -> bool:
        """Pause the queue, and return whether it was running before. After 100 ms no handler starts.

        A queue that is paused already keeps who paused it, why and since when.

        Deliveries that have not started by then return to the queue; no attempt is counted. A supervisor that is not
        subscribed at this moment notices the pause when it polls, up to a second later.
        """
        (reply,) = self._wire.trip([pause_command(self._keys, who=who, reason=reason)])
        return changed(reply)

    def resume(self) -> bool:
        """Resume the queue, and return whether it was paused before."""
        (reply,) = self._wire.trip([resume_command(self._keys)])
        return changed(reply)


def pause_command(keys: QueueKeys, *, who: str, reason: str) -> Command:
    """Return the command that pauses a queue."""
    return scripts.command("control_pause", keys=[keys.control], args=[keys.wake, who, reason])


def resume_command(keys: QueueKeys) -> Command:
    """Return the command that resumes a queue."""
    return scripts.command("control_resume", keys=[keys.control], args=[keys.wake])


def changed(reply: object) -> bool:
    """Return whether one of these commands changed the queue, by its reply.

    Raises:
        StoreError: Redis refused.
    """
    return reply_or_raise(reply) in (b"PAUSED", b"RESUMED")
