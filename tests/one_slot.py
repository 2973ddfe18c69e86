"""Watch the pipelines of a test: each must be for one hash slot, or it could not be sent to a Redis Cluster."""

from contextvars import ContextVar
from functools import lru_cache

from mq_django.transport.cluster_topology import hash_slot, keys_of
from mq_django.transport.sessions import Session, Transport

#: Several pipelines are being sent as one, each of which was looked at.
_together = ContextVar("tests_trips_together", default=False)


@lru_cache(10_000)
def slot_of(key):
    """Return what shares a slot with a key.

    RSMQ puts no braces around names: on a cluster its namespace has them, so that all its keys are in one slot.
    """
    text = key.decode(errors="replace") if isinstance(key, bytes) else str(key)
    return hash_slot(key) if "{" in text else text.partition(":")[0]


def slots_of(commands):
    """Return the slots of a pipeline."""
    return {slot_of(key) for command in commands for key in keys_of(command)}


def watch(monkeypatch):
    """Return a list, to which each pipeline for several slots is added, and each script without a key."""
    found, send, pipelines = [], Session.send, Transport.pipelines

    def look_at(commands):
        if len(slots_of(commands)) > 1:
            found.append(commands)
        found.extend(command for command in commands if command[0] in ("EVAL", "EVALSHA") and not keys_of(command))

    def watched_send(session, commands):
        if not _together.get():
            look_at(commands)
        send(session, commands)

    def watched_pipelines(transport, each):
        for commands in each:
            look_at(commands)
        token = _together.set(True)
        try:
            return pipelines(transport, each)
        finally:
            _together.reset(token)

    monkeypatch.setattr(Session, "send", watched_send)
    monkeypatch.setattr(Transport, "pipelines", watched_pipelines)
    return found
