"""Purge a queue and learn which messages that were."""

import redis

from mq_django.core.keys import QueueKeys
from mq_django.transport import scripts


def purge(client: redis.Redis, keys: QueueKeys, *, limit: int, place: str = "") -> list[str]:
    """Delete at most `limit` messages from each place of a queue, or from one, and return their ids."""
    places = [keys.ready, keys.urgent, keys.due, keys.priority, keys.unhandled, keys.parked]
    index = [keys.waiting, keys.unique, keys.claims, keys.step_notes, keys.permits, keys.next_checks]
    text = scripts.load("stream_purge").text
    ids: list[bytes] = client.eval(text, len(places + index), *places, *index, keys.group, limit, place, "1")
    return [found.decode() for found in ids]
