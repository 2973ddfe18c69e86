"""Put messages into one place of a queue, and print how many bytes the memory of Redis has grown.

python -m benchmarks.ours.filler ready|delayed|lined COUNT KEYS
"""

import json
import os
import sys

import django
import redis

from benchmarks import messages
from benchmarks.keyed_queues import publish_keyed

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.ours.settings")
django.setup()

from mq_django import queues  # noqa: E402 - needs the project to be set up
from mq_django.conf import get_config  # noqa: E402
from mq_django.stores import open_store  # noqa: E402
from mq_django.stores.base import Store  # noqa: E402
from mq_django.transport.connections import get_client  # noqa: E402
from mq_django.transport.sessions import Session  # noqa: E402

QUEUE = messages.queue_name(0)


def fill(client: redis.Redis, store: Store, place: str, count: int, keys: int) -> None:
    """Publish messages, and let them get to their place."""
    if place == "lined":
        publish_keyed(client, messages.NOOP, (f"order:{number % keys}" for number in range(count)))
        while store.line_up("filler"):
            pass
        return
    delay = 3600.0 if place == "delayed" else None
    for start in range(0, count, 1000):
        some = [(messages.NOOP, messages.make(number)) for number in range(start, start + 1000)]
        queues[QUEUE].publish_many(some, delay=delay)


def main(place: str, count: int, keys: int) -> int:
    """Return the bytes.

    Raises RuntimeError when they are in another place.
    """
    store = open_store(get_config().queue(QUEUE), Session(get_client("consume")))
    store.create_groups()
    with redis.Redis.from_url(messages.URL) as client:
        fill(client, store, place, 1000, min(keys, 1))  # scripts, and what a queue has of each once
        before = client.info("memory")["used_memory"]
        fill(client, store, place, count, keys)
        after = client.info("memory")["used_memory"]
    depths = store.depths()
    found = {"ready": depths.ready, "delayed": depths.delayed, "lined": depths.parked}[place]
    if found != count + 1000:
        raise RuntimeError(f"{depths} after {count} messages that should be {place}")
    return int(after - before)


if __name__ == "__main__":
    print(json.dumps({"bytes": main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))}))
