"""Watch the pipelines of a test: each must be for one hash slot, or it could not be sent to a Redis Cluster."""

from contextvars import ContextVar
from functools import lru_cache

from mq_django.transport import scripts
from mq_django.transport.cluster_topology import hash_slot, keys_of
from mq_django.transport.sessions import Session, Transport

#: The end of each script for several queues.
_SEVERAL = scripts.load("around/several").text
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


def is_several(command):
    """Return whether a command is one for several queues of a server that is no cluster: see Transport.together()."""
    if command[0] == "XREADGROUP" and "BLOCK" in command:
        # See RestingQueues.
        return len(slots_of([command])) > 1 and all(str(key).endswith(":ready") for key in keys_of(command))
    if command[0] not in ("EVALSHA", "EVAL"):
        return False
    text = scripts._by_sha[command[1]].text if command[0] == "EVALSHA" else command[1]
    return text.endswith(_SEVERAL)


def parts_of(command):
    """Yield what such a command does for each queue, as commands; any other as it is."""
    if not is_several(command):
        yield command
        return
    if command[0] == "XREADGROUP":
        yield from (("XLEN", key) for key in keys_of(command))
        return
    keys, args = list(command[3 : 3 + command[2]]), list(command[3 + command[2] :])
    while args:
        counts, rest = args[:2], args[2:]
        yield ("EVALSHA", command[1], counts[0], *keys[: counts[0]], *rest[: counts[1]])
        keys, args = keys[counts[0] :], rest[counts[1] :]


def watch(monkeypatch):
    """Return a list, to which each pipeline for several slots is added, and each script without a key."""
    found, send, pipelines = [], Session.send, Transport.pipelines

    def look_at(commands):
        if any(is_several(command) for command in commands):
            found.extend(part for command in commands for part in parts_of(command) if len(slots_of([part])) > 1)
            return
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
