"""A process that writes orders until it is killed: `python -m tests.chaos.order_writer SEED SECONDS`.

Each order is a transaction: a lock of its key, a row, and two publishes through the outbox. One tenth is rolled back.
"""

import os
import random
import sys
import time
from pathlib import Path
from uuid import UUID

import django
from django.db import transaction

from tests.chaos.history import History
from tests.chaos.settings import KEYS, ORDERS, PLACED

#: The share of transactions that are rolled back.
ROLLED_BACK = 0.1
#: The name of a file in the folder of a run. While it is there, no order is written.
PAUSE = "writers-pause"


class RolledBack(Exception):
    """This order is not to be."""


def main(seed: str, seconds: float) -> None:
    """Write an order every so many seconds."""
    django.setup()
    folder = Path(os.environ["CHAOS_HISTORY"])
    rng, history = random.Random(seed), History(folder)
    while True:
        while (folder / PAUSE).exists():
            time.sleep(0.1)
        began = time.monotonic()
        order = str(UUID(int=rng.getrandbits(128)))
        try:
            write(order, rng.choice(KEYS), is_rolled_back=rng.random() < ROLLED_BACK)
        except RolledBack:
            history.note("rolled-back", ids=[order])
        except Exception as error:  # noqa: BLE001 - whatever a request would have seen
            history.note("refused", ids=[order], error=repr(error))
        time.sleep(max(0.0, began + seconds - time.monotonic()))


def write(order: str, key: str, *, is_rolled_back: bool) -> None:
    """Write an order with its messages."""
    # Their modules need the settings.
    from mq_django import queues, topics  # noqa: PLC0415
    from tests.chaos import points  # noqa: PLC0415
    from tests.chaos.orders import Orders  # noqa: PLC0415

    with transaction.atomic():
        number = Orders().write(order, key)
        data = {"id": order, "key": key, "number": number}
        queues[ORDERS].publish("order", data, key=key, message_id=order)
        topics[PLACED].publish("placed", data, key=key)
        points.reached("order-written")
        if is_rolled_back:
            raise RolledBack
    points.reached("order-committed")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
