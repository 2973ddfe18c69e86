"""A process that promotes as a supervisor does, and tells how much: `python -m tests.consumers.promoting`.

It waits for the key `go` of the namespace, so that several begin at the same moment.
"""

import json
import os
import sys

import django

from mq_django.conf import get_config
from mq_django.consumers.supervisor.promoter import Promoter
from mq_django.stores import open_store
from mq_django.transport.connections import get_client
from mq_django.transport.sessions import Session
from tests.waiting import wait_until


def main() -> None:
    """Promote until nothing waits in any queue."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.consumers.project.settings")
    django.setup()
    config, client = get_config(), get_client("chores")
    stores = [open_store(queue, Session(client)) for queue in config.queues.values()]
    moved: list[int] = []
    promoter = Promoter(
        dict(enumerate(stores)), is_subscribed=lambda: True, seen=lambda _, promoted: moved.append(promoted.moved)
    )
    _tell("ready")
    wait_until(lambda: client.exists(f"{config.namespace}:go"), timeout=60)
    while any(client.exists(store.keys.due) for store in stores):
        promoter.run_once()
    _tell(json.dumps({"calls": len(moved), "moved": sum(moved)}))


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
