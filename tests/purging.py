"""Delete the messages of a queue as `mq purge` and the admin do."""

from typing import get_args

from mq_django.conf import QueueConfig
from mq_django.stores.dead_letters import NO_STEP
from mq_django.stores.message_scans import Cursor, DeletableState, delete_found, scan_state
from mq_django.transport.connections import open_transport


def purge(config: QueueConfig, *places: DeletableState, limit: int = 1000) -> list[str]:
    """Delete what is ready or waits in some places, or in all, about `limit` messages of each; return the ids."""
    transport = open_transport("inspect", config.connection)
    ids: list[str] = []
    for place in places or get_args(DeletableState):
        left, cursor = limit, Cursor()
        while left > 0 and (read := scan_state(config, transport, place, cursor, left)):
            source, found, cursor = read
            while found and left > 0:
                some, found = found[:left], found[left:]
                gone = delete_found(config, transport, source, some, NO_STEP._replace(state=place))
                ids, left = ids + gone, left - len(gone)
    return ids
